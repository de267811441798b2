package calib

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"substrate/pkg/doc"
)

// Document is one text: the unit of splitting into parts and of standard
// errors, since tokens of one document depend on each other.
type Document struct {
	Name string
	Part string // "fit", "link", "test"
	Text string
	Chat bool // Text is a rendered conversation: special tokens in it are meant as such
}

// Parts of the data. Codes are fitted to "codes", KL tables see "fit", the link
// "link", and verify "test".
const (
	PartCodes = "codes"
	PartFit   = "fit"
	PartLink  = "link"
	PartTest  = "test"
)

// Sequence is a run of tokens of one document, scored teacher-forced from an
// empty context.
type Sequence struct {
	Document int // index into Data.Documents
	IDs      []int32
}

// Data is text ready to be scored.
type Data struct {
	Documents []Document
	Sequences []Sequence
	Part      doc.DataPart
}

// Encode turns a document's text into token ids.
type Encode func(d *Document) ([]int32, error)

// minSequence is the shortest sequence worth a step: below it nearly all
// tokens would be predicted without context.
const minSequence = 16

// Tokenize cuts documents into sequences of at most length tokens until at
// least want tokens are collected, taking documents in turn so that every kind
// of text appears however small want is. Each sequence begins with bos if that
// is not negative.
func Tokenize(docs []Document, part string, encode Encode, bos, length, want int) (*Data, error) {
	d := &Data{Part: doc.DataPart{Name: "text", Part: part}}
	var queues [][]int32
	for i := range docs {
		ids, err := encode(&docs[i])
		if err != nil {
			return nil, fmt.Errorf("document %s: %w", docs[i].Name, err)
		}
		if len(ids) < minSequence {
			continue
		}
		d.Documents = append(d.Documents, docs[i])
		queues = append(queues, ids)
	}
	for again := true; again && int(d.Part.Tokens) < want; {
		again = false
		for i, ids := range queues {
			if len(ids) < minSequence || int(d.Part.Tokens) >= want {
				continue
			}
			var seq []int32
			if bos >= 0 {
				seq = append(seq, int32(bos))
			}
			n := min(length-len(seq), len(ids))
			seq = append(seq, ids[:n]...)
			queues[i] = ids[n:]
			d.Sequences = append(d.Sequences, Sequence{Document: i, IDs: seq})
			d.Part.Tokens += int64(len(seq) - 1) // the last token predicts nothing that is known
			again = true
		}
	}
	if len(d.Sequences) == 0 {
		return nil, fmt.Errorf("no document of part %q has %d tokens", part, minSequence)
	}
	// Documents are taken in turn: those that gave nothing are the last.
	used := 0
	for _, s := range d.Sequences {
		used = max(used, s.Document+1)
	}
	d.Documents = d.Documents[:used]
	d.sum()
	return d, nil
}

// sum writes the digest of the sequences.
func (d *Data) sum() {
	digest := sha256.New()
	for _, s := range d.Sequences {
		for _, id := range s.IDs {
			digest.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)})
		}
		digest.Write([]byte{0xff, 0xff, 0xff, 0xff})
	}
	d.Part.SHA256 = hex.EncodeToString(digest.Sum(nil))
}

// Cut splits d into its first sequences, of at least tokens in sum, and the
// rest as a part of its own, nil if nothing is left.
func (d *Data) Cut(tokens int, part string) (head, rest *Data) {
	first, second := *d, *d
	n := 0
	first.Part.Tokens = 0
	for n < len(d.Sequences) && first.Part.Tokens < int64(tokens) {
		first.Part.Tokens += int64(len(d.Sequences[n].IDs) - 1)
		n++
	}
	if n == len(d.Sequences) {
		return d, nil
	}
	first.Sequences, second.Sequences = d.Sequences[:n], d.Sequences[n:]
	second.Part.Part, second.Part.Tokens = part, d.Part.Tokens-first.Part.Tokens
	first.sum()
	second.sum()
	return &first, &second
}

// Longest is the length of the longest sequence.
func (d *Data) Longest() int {
	n := 0
	for _, s := range d.Sequences {
		n = max(n, len(s.IDs))
	}
	return n
}

// Tokens is the number of tokens that a model sees.
func (d *Data) Tokens() int {
	n := 0
	for _, s := range d.Sequences {
		n += len(s.IDs)
	}
	return n
}
