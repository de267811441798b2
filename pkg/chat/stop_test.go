package chat

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// However a text is cut into pieces, what comes out is the text up to the stop
// string that ends first, the longest of those.
func TestStop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.SampledFrom([]rune("abä")), 0, 4, -1)
		stops := rapid.SliceOfN(word, 0, 3).Draw(t, "stops")
		pieces := rapid.SliceOf(word).Draw(t, "pieces")
		whole := strings.Join(pieces, "")
		want := whole
		for end := len(whole); end > 0; end-- {
			for at := end - 1; at >= 0; at-- {
				if slices.Contains(stops, whole[at:end]) {
					want = whole[:at]
				}
			}
		}
		s := NewStop(stops)
		got, found := "", false
		for _, p := range pieces {
			var out string
			out, found = s.Push(p)
			got += out
		}
		got += s.Flush()
		if got != want || found != (len(want) < len(whole)) {
			t.Fatalf("got %q, %v, want %q of %q", got, found, want, whole)
		}
	})
}

// A stop string that began earlier but has not ended does not win: a token more
// in the same piece would change the answer.
func TestStopEndsFirst(t *testing.T) {
	for _, pieces := range [][]string{{"baä"}, {"ba", "ä"}, {"b", "a", "ä"}} {
		s := NewStop([]string{"a", "baä"})
		got, found := "", false
		for _, p := range pieces {
			if out, now := s.Push(p); !found {
				got, found = got+out, now
			}
		}
		if got != "b" || !found {
			t.Errorf("%q: got %q, %v, want %q", pieces, got, found, "b")
		}
	}
}

// Text that cannot begin a stop string is not held back.
func TestStopHoldsNoMore(t *testing.T) {
	s := NewStop([]string{"\n\nUser:"})
	for _, p := range [][2]string{{"one", "one"}, {" two\n", " two"}, {"three\n\nUs", "\nthree"}, {"e", ""}, {"\n", "\n\nUse"}} {
		if got, found := s.Push(p[0]); got != p[1] || found {
			t.Errorf("%q gave %q, %v, want %q", p[0], got, found, p[1])
		}
	}
	if got, found := s.Push("\nUser: x"); got != "" || !found {
		t.Errorf("got %q, %v", got, found)
	}
}
