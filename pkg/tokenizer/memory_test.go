package tokenizer

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// bigJSON writes a tokenizer.json with as many tokens and merges as SmolLM2's, each token joined of two before.
func bigJSON(t testing.TB) string {
	t.Helper()
	const merged = 48_900
	var texts []string
	for b := range 256 {
		texts = append(texts, string(byteChar(byte(b))))
	}
	var b vocabBuilder
	add := func(id int) {
		b.text = append(b.text, texts[id]...)
		if err := b.add(int64(id)); err != nil {
			t.Fatal(err)
		}
	}
	for id := range texts {
		add(id)
	}
	// Pairs in an order that makes tokens of 7 bytes on average: single bytes first, then joins of joins.
	seen := map[string]bool{}
	var list []merge
	for i := 0; len(list) < merged; i++ {
		left, right := i*7919%len(texts), i*104729%min(len(texts), 4096)
		joined := texts[left] + texts[right]
		if len(joined) > 12 || seen[joined] {
			continue
		}
		seen[joined] = true
		list = append(list, merge{int32(left), int32(right), int32(len(texts))})
		texts = append(texts, joined)
		add(len(texts) - 1)
	}
	v, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	model, err := newBPE(v, newMerges(list), bpeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	src, err := style{digits: true}.source(Vocab{})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := assemble(parts{model: model, source: src, roles: NoRoles()})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := tok.WriteJSON(f); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMemory measures what a tokenizer of SmolLM2's size costs a process whose memory is capped: what stays, and what
// loading takes at most, all that it allocates counted as if nothing were collected meanwhile.
func TestMemory(t *testing.T) {
	path := os.Getenv("TOKENIZER_JSON")
	if path == "" {
		path = bigJSON(t)
	}
	heap := func() (live, total uint64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, m.TotalAlloc
	}
	liveBefore, totalBefore := heap()
	tok := loadFile(t, path)
	liveAfter, totalAfter := heap()
	live, total := int64(liveAfter-liveBefore), int64(totalAfter-totalBefore)
	t.Logf("%d tokens: %s live, %s allocated by loading", tok.Tokens(), mib(live), mib(total))
	if tok.Tokens() == 49_156 && live > 3<<20 {
		t.Errorf("%s live, more than 3 MiB", mib(live))
	}
	if tok.Tokens() == 49_156 && total > 12<<20 {
		t.Errorf("%s allocated by loading, more than 12 MiB", mib(total))
	}
	if bytes := tok.Bytes(); bytes < live-live/50 || bytes > live+live/10+componentBytes {
		t.Errorf("Bytes says %s, measured %s", mib(bytes), mib(live))
	}
	encode(t, tok, "still here", asPlain)
}

func mib(n int64) string { return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20)) }
