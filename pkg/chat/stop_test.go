package chat

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// However a text is cut into pieces, what comes out is the text up to the
// first stop string.
func TestStop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.SampledFrom([]rune("abä")), 0, 4, -1)
		stops := rapid.SliceOfN(word, 0, 3).Draw(t, "stops")
		pieces := rapid.SliceOf(word).Draw(t, "pieces")
		want := strings.Join(pieces, "")
		whole := want
		for at := range whole {
			for _, stop := range stops {
				if stop != "" && strings.HasPrefix(whole[at:], stop) && at < len(want) {
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
