package calib

import (
	"strings"
	"testing"
)

// A text is cut between sequences, nothing is lost, and each part has a digest
// of its own.
func TestCut(t *testing.T) {
	docs := []Document{{Name: "a", Text: strings.Repeat("x", 100)}, {Name: "b", Text: strings.Repeat("y", 60)}}
	encode := func(d *Document) ([]int32, error) {
		ids := make([]int32, len(d.Text))
		for i := range ids {
			ids[i] = int32(d.Text[i])
		}
		return ids, nil
	}
	whole, err := Tokenize(docs, PartFit, encode, -1, 20, 140)
	if err != nil {
		t.Fatal(err)
	}
	head, rest := whole.Cut(50, PartCodes)
	if len(head.Sequences)+len(rest.Sequences) != len(whole.Sequences) || head.Part.Tokens+rest.Part.Tokens != whole.Part.Tokens {
		t.Errorf("%d and %d sequences of %d", len(head.Sequences), len(rest.Sequences), len(whole.Sequences))
	}
	if head.Part.Tokens < 50 || head.Part.Tokens >= 50+20 {
		t.Errorf("%d tokens ahead of the cut, want 50", head.Part.Tokens)
	}
	if head.Part.SHA256 == whole.Part.SHA256 || rest.Part.SHA256 == whole.Part.SHA256 || rest.Part.Part != PartCodes {
		t.Errorf("parts %+v and %+v of %+v", head.Part, rest.Part, whole.Part)
	}
	if all, none := whole.Cut(1000, PartCodes); none != nil || all.Part != whole.Part {
		t.Error("nothing is left after a cut behind the end")
	}
}
