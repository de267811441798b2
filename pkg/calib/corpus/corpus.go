// Package corpus is the text that calibration uses where the user gives none: essays, stories, explanations, dialogues,
// code, configuration and passages in seven other languages, written for this project and under its licence.
//
// A text lies in texts/PART/KIND/NAME.txt. Parts share no document, and every kind is in each part: what was fitted on one
// part is judged on another of the same mixture.
package corpus

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed texts
var texts embed.FS

// Parts of the corpus.
const (
	Fit  = "fit"  // scales and codes are fitted, and levels measured, on it
	Link = "link" // the link from summed to whole-plan divergence is fitted on it
	Test = "test" // plans and stores are judged on it
)

// Kinds are the kinds of text. "data" is configuration, records and logs; "language" is prose that is not English.
func Kinds() []string {
	return []string{"essay", "narrative", "science", "dialogue", "code", "data", "language"}
}

// Document is one text, of 600 to 2,500 bytes.
type Document struct {
	Name string // unique: "code/ring.c"
	Kind string // one of Kinds
	Part string // Fit, Link or Test
	Text string
}

// Documents returns all documents: by part, and within one by name.
func Documents() []Document {
	var docs []Document
	for _, part := range []string{Fit, Link, Test} {
		for _, kind := range Kinds() {
			dir := "texts/" + part + "/" + kind
			files, err := texts.ReadDir(dir) // sorted by name
			if err != nil {
				panic(fmt.Sprintf("internal error: embedded folder: %v", err))
			}
			for _, f := range files {
				text, err := fs.ReadFile(texts, dir+"/"+f.Name())
				if err != nil {
					panic(fmt.Sprintf("internal error: embedded file: %v", err))
				}
				name := kind + "/" + strings.TrimSuffix(f.Name(), ".txt")
				docs = append(docs, Document{Name: name, Kind: kind, Part: part, Text: string(text)})
			}
		}
	}
	return docs
}

// OfPart returns the documents of one part, their kinds in turn: however few are taken from the front, most kinds are
// among them.
func OfPart(part string) []Document {
	byKind := map[string][]Document{}
	total := 0
	for _, d := range Documents() {
		if d.Part == part {
			byKind[d.Kind] = append(byKind[d.Kind], d)
			total++
		}
	}
	var docs []Document
	for len(docs) < total {
		for _, kind := range Kinds() {
			if list := byKind[kind]; len(list) > 0 {
				docs = append(docs, list[0])
				byKind[kind] = list[1:]
			}
		}
	}
	return docs
}

// Digest is the SHA-256, in hex, of documents: their names, parts and texts in order.
func Digest(docs []Document) string {
	h := sha256.New()
	for _, d := range docs {
		fmt.Fprintf(h, "%q %q %d\n%s", d.Name, d.Part, len(d.Text), d.Text)
	}
	return hex.EncodeToString(h.Sum(nil))
}
