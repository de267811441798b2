package tokenizer

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// slowUnigram finds the best tokens of a word by trying all ways to cut it.
func slowUnigram(u *unigram, word string, memo map[string]slowWay) slowWay {
	if word == "" {
		return slowWay{}
	}
	if way, ok := memo[word]; ok {
		return way
	}
	best := slowWay{score: math.Inf(-1)}
	try := func(size int, id int32, score float64) {
		rest := slowUnigram(u, word[size:], memo)
		if s := score + rest.score; s > best.score {
			best = slowWay{s, append([]int32{id}, rest.ids...)}
		}
	}
	_, single := utf8.DecodeRuneInString(word)
	known := false
	for end := 1; end <= len(word); end++ {
		if id, ok := u.vocab.id([]byte(word[:end])); ok {
			try(end, id, u.scores[id])
			known = known || end == single
		}
	}
	if !known {
		try(single, u.unk, u.unkScore)
	}
	memo[word] = best
	return best
}

type slowWay struct {
	score float64
	ids   []int32
}

// testUnigram has random scores, so that no two ways are equal.
func testUnigram(t testing.TB, rng *rand.Rand, tokens []string) *unigram {
	t.Helper()
	var b vocabBuilder
	var scores []float64
	for i, token := range append([]string{"<unk>"}, tokens...) {
		b.text = append(b.text, token...)
		if err := b.add(int64(i)); err != nil {
			t.Fatal(err)
		}
		scores = append(scores, -1-10*rng.Float64())
	}
	v, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	u, err := newUnigram(v, scores, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestUnigram(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	letters := []string{"a", "b", "c", "é", "日", "x"}
	random := func(most int) string {
		var s strings.Builder
		for range 1 + rng.IntN(most) {
			s.WriteString(letters[rng.IntN(len(letters))])
		}
		return s.String()
	}
	for range 100 {
		tokens := slices.Clone(letters[:5]) // x is unknown
		for len(tokens) < 25 {
			if s := random(4); strings.Trim(s, "x") != "" && !slices.Contains(tokens, s) {
				tokens = append(tokens, s)
			}
		}
		u := testUnigram(t, rng, tokens)
		for range 20 {
			word := random(12)
			// Equal ways are the same tokens in another order, if scores are random.
			tokens := func(ids []int32) []int32 {
				return slices.Sorted(slices.Values(slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return id == u.unk })))
			}
			want := tokens(slowUnigram(u, word, map[string]slowWay{}).ids)
			var w work
			if got := tokens(u.encode(nil, []byte(word), &w)); !slices.Equal(got, want) {
				t.Fatalf("%q with %q: got %v, want %v", word, u.vocab.text, got, want)
			}
		}
	}
}

func TestTrie(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var tokens []string
	for range 2000 {
		b := make([]byte, 1+rng.IntN(4))
		for i := range b {
			b[i] = "abcdefgh\x00\xff"[rng.IntN(10)]
		}
		if s := string(b); !slices.Contains(tokens, s) {
			tokens = append(tokens, s)
		}
	}
	u := testUnigram(t, rng, tokens)
	for range 2000 {
		text := tokens[rng.IntN(len(tokens))] + tokens[rng.IntN(len(tokens))]
		node := int32(0)
		for i := range len(text) {
			if node = u.trie.next(node, text[i]); node < 0 {
				for end := i + 1; end <= len(text); end++ {
					if _, ok := u.vocab.id([]byte(text[:end])); ok {
						t.Fatalf("%q is a token, the trie ends before it", text[:end])
					}
				}
				break
			}
			want, ok := u.vocab.id([]byte(text[:i+1]))
			if !ok {
				want = -1
			}
			if got := u.trie.ids[node]; got != want {
				t.Fatalf("%q is token %d, in the trie %d", text[:i+1], want, got)
			}
		}
	}
}

// FuzzPrecompiled gives a normalizer maps of characters that nobody compiled.
func FuzzPrecompiled(f *testing.F) {
	tok := loadFile(f, "testdata/tiny/t5.json")
	p := tok.normalizer.(*precompiled)
	var units []byte
	for _, u := range p.units {
		units = append(units, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	f.Add(units, p.values, "ﬁ ½ e\u0301 a\r\nb \u0600x ก\u0e33")
	f.Add([]byte{}, []byte{}, "x")
	f.Add([]byte{255, 255, 255, 255}, []byte("a"), "\xff\xffabc")
	f.Fuzz(func(t *testing.T, units, values []byte, text string) {
		q := &precompiled{values: values}
		for len(units) >= 4 {
			q.units = append(q.units, uint32(units[0])|uint32(units[1])<<8|uint32(units[2])<<16|uint32(units[3])<<24)
			units = units[4:]
		}
		for i := range q.ascii {
			q.ascii[i].value, q.ascii[i].ok = q.lookup([]byte{byte(i)})
		}
		if _, err := q.normalize([]byte(text)); err != nil {
			return
		}
		for at := 0; at < len(text); {
			n := clusterLen([]byte(text[at:]))
			if n < 1 || n > len(text)-at {
				t.Fatalf("a cluster of %d bytes in %q", n, text[at:])
			}
			at += n
		}
	})
}
