package tokenizer

import (
	"slices"
	"testing"
	"unicode/utf8"
)

// scannedPatterns are the patterns that have a scanner.
var scannedPatterns = []string{gpt2Pattern, llama3Pattern, qwen2Pattern}

func matches(t testing.TB, p pattern, text []byte) [][2]int {
	t.Helper()
	all := [][2]int{}
	if err := p.find(text, func(start, end int) error {
		all = append(all, [2]int{start, end})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func checkScanners(t testing.TB, text []byte) {
	t.Helper()
	for _, expr := range scannedPatterns {
		slow, err := compileRegex(expr)
		if err != nil {
			t.Fatal(err)
		}
		fast := scannerOf(expr)
		if fast == nil {
			t.Fatalf("no scanner of %s", expr)
		}
		if got, want := matches(t, fast, text), matches(t, slow, text); !slices.Equal(got, want) {
			t.Fatalf("%s\nin %q: scanner %v, expression %v", expr, text, got, want)
		}
	}
}

// TestScanners compares the scanners with the expressions on all strings of up to five characters, one of each kind that
// the patterns tell apart.
func TestScanners(t *testing.T) {
	alphabet := []string{" ", "\n", "\t", "'", "s", "l", "7", "!"}
	length := 5
	if testing.Short() {
		length = 4
	}
	var slow []*regex
	for _, expr := range scannedPatterns {
		re, err := compileRegex(expr)
		if err != nil {
			t.Fatal(err)
		}
		slow = append(slow, re)
	}
	var try func(text []byte, left int)
	try = func(text []byte, left int) {
		for i, expr := range scannedPatterns {
			if got, want := matches(t, scannerOf(expr), text), matches(t, slow[i], text); !slices.Equal(got, want) {
				t.Fatalf("%s\nin %q: scanner %v, expression %v", expr, text, got, want)
			}
		}
		if left == 0 {
			return
		}
		for _, c := range alphabet {
			try(append(text[:len(text):len(text)], c...), left-1)
		}
	}
	try(nil, length)
}

// TestClasses compares what scanners and expressions take for a letter, a number and white space.
func TestClasses(t *testing.T) {
	for class, expr := range map[class]string{letter: `\p{L}`, number: `\p{N}`, space: `[^\S\r\n]`, newline: `[\r\n]`} {
		re, err := compileRegex(expr)
		if err != nil {
			t.Fatal(err)
		}
		wrong := 0
		for r := rune(0); r <= utf8.MaxRune && wrong < 5; r++ {
			if r >= 0xD800 && r < 0xE000 || r > 0x323AF && r < 0xE0000 {
				continue
			}
			text := utf8.AppendRune(nil, r)
			got, _ := classOf(text)
			if matched, err := re.re.MatchRunes([]rune{r}); err != nil || matched != (got == class) {
				t.Errorf("%U is of class %d; %s matches it: %v %v", r, got, expr, matched, err)
				wrong++
			}
		}
	}
}

func FuzzScanners(f *testing.F) {
	for _, s := range []string{
		"Hello, world! It's 12345\n\n  x", "'s'T'RE 'ſ 'ﬆ don't", " \n \r\n\t x", "a\u00a0b\u3000 c", "\xff\xfe'\xc5\xbf", "½²٣ ४५६", "=\n\n\r", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkScanners(t, text) })
}
