package corpus

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestDocuments(t *testing.T) {
	docs := Documents()
	bytes := map[string]int{}
	count := map[string]map[string]int{}
	names, starts := map[string]bool{}, map[string]string{}
	for _, d := range docs {
		if names[d.Name] {
			t.Errorf("%s occurs twice", d.Name)
		}
		names[d.Name] = true
		if !utf8.ValidString(d.Text) || strings.ContainsRune(d.Text, '\r') || strings.HasPrefix(d.Text, "\uFEFF") {
			t.Errorf("%s: not plain UTF-8 text", d.Name)
		}
		if !strings.HasSuffix(d.Text, "\n") || strings.HasSuffix(d.Text, "\n\n") {
			t.Errorf("%s: should end with one line feed", d.Name)
		}
		if n := len(d.Text); n < 600 || n > 2500 {
			t.Errorf("%s: %d bytes are not 600 to 2500", d.Name, n)
		}
		if other, ok := starts[d.Text[:40]]; ok {
			t.Errorf("%s and %s start alike", d.Name, other)
		}
		starts[d.Text[:40]] = d.Name
		bytes[d.Part] += len(d.Text)
		if count[d.Part] == nil {
			count[d.Part] = map[string]int{}
		}
		count[d.Part][d.Kind]++
	}
	for part, least := range map[string]int{Fit: 30_000, Link: 10_000, Test: 25_000} {
		if bytes[part] < least {
			t.Errorf("part %s has %d bytes, fewer than %d", part, bytes[part], least)
		}
		for _, kind := range Kinds() {
			if count[part][kind] == 0 {
				t.Errorf("part %s has no %s", part, kind)
			}
		}
	}
}

// TestAllFilesAreDocuments finds a file that lies in the wrong folder.
func TestAllFilesAreDocuments(t *testing.T) {
	files := 0
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := texts.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				walk(dir + "/" + e.Name())
			} else {
				files++
			}
		}
	}
	walk("texts")
	if got := len(Documents()); got != files {
		t.Errorf("%d documents of %d files", got, files)
	}
}

func TestLanguages(t *testing.T) {
	scripts := map[string]*unicode.RangeTable{"chinese": unicode.Han, "japanese": unicode.Hiragana, "russian": unicode.Cyrillic}
	for _, d := range Documents() {
		if d.Kind != "language" {
			continue
		}
		language, _, _ := strings.Cut(strings.TrimPrefix(d.Name, "language/"), "_")
		letters := 0
		for _, r := range d.Text {
			if table, ok := scripts[language]; ok && unicode.Is(table, r) || !ok && r > 0x7F && r < 0x180 {
				letters++
			}
		}
		if letters < 10 {
			t.Errorf("%s has %d letters of its language", d.Name, letters)
		}
	}
}

func TestOfPart(t *testing.T) {
	for _, part := range []string{Fit, Link, Test} {
		docs := OfPart(part)
		kinds, names := map[string]bool{}, map[string]bool{}
		for i, d := range docs {
			if d.Part != part {
				t.Errorf("%s is of part %s, not %s", d.Name, d.Part, part)
			}
			if i < len(Kinds()) {
				kinds[d.Kind] = true
			}
			names[d.Name] = true
		}
		if len(kinds) != len(Kinds()) {
			t.Errorf("part %s starts with %d kinds of %d", part, len(kinds), len(Kinds()))
		}
		for _, d := range Documents() {
			if d.Part == part && !names[d.Name] {
				t.Errorf("part %s lacks %s", part, d.Name)
			}
		}
	}
	if docs := OfPart("training"); docs != nil {
		t.Errorf("part training has %d documents", len(docs))
	}
}

func TestDigest(t *testing.T) {
	docs := Documents()
	if Digest(docs) != Digest(Documents()) {
		t.Error("equal documents have two digests")
	}
	if Digest(docs) == Digest(docs[1:]) || Digest(nil) == Digest(docs) {
		t.Error("other documents have the same digest")
	}
	docs[3].Text += " "
	if Digest(docs) == Digest(Documents()) {
		t.Error("a changed text has the same digest")
	}
}
