package tokenizer

import (
	"slices"
	"sync"
	"testing"
)

// TestConcurrentUse shares tokenizers that remember nothing yet between goroutines; run it with -race.
func TestConcurrentUse(t *testing.T) {
	for name, tok := range tinyTokenizers(t) {
		cases := readGoldens(t, "testdata/tiny/"+name+".jsonl")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for _, c := range cases {
					ids, err := tok.Encode(c.Text, asPrompt)
					if err != nil || !slices.Equal(ids, c.Prompt) || tok.Decode(ids) != *c.Decoded {
						t.Errorf("%s: %q gives %v, %v, want %v", name, c.Text, ids, err, c.Prompt)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}
