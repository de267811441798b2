package cli

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	tests := []struct {
		text  string
		bytes int64
		echo  string
	}{
		{"36G", 36 << 30, "36 GiB (38654705664 bytes)"},
		{"36GiB", 36 << 30, "36 GiB (38654705664 bytes)"},
		{"36g", 36 << 30, "36 GiB (38654705664 bytes)"},
		{"36GB", 36e9, "36 GB (36000000000 bytes)"},
		{"4096", 4096, "4 KiB (4096 bytes)"},
		{"4096B", 4096, "4 KiB (4096 bytes)"},
		{"1000", 1000, "1000 bytes"},
		{"0", 0, "0 bytes"},
		{"1.5G", 3 << 29, "1.5 GiB (1610612736 bytes)"},
		{"0.5K", 512, "512 bytes"},
		{"1.1G", 1181116006, "1.10 GiB (1181116006 bytes)"}, // 1181116006.4
		{"1.10", 1, "1 bytes"},
		{"0.1kB", 100, "100 bytes"},
		{"64M", 64 << 20, "64 MiB (67108864 bytes)"},
		{"2T", 2 << 40, "2 TiB (2199023255552 bytes)"},
		{"7E", 7 << 60, "7 EiB (8070450532247928832 bytes)"},
		{"9223372036854775807", math.MaxInt64, "8.00 EiB (9223372036854775807 bytes)"},
		{"7.999999999999999999E", 9223372036854775806, "8.00 EiB (9223372036854775806 bytes)"},
		{"0000001K", 1024, "1 KiB (1024 bytes)"},
	}
	for _, test := range tests {
		got, err := ParseSize(test.text)
		if err != nil || int64(got) != test.bytes {
			t.Errorf("%s: got %d, %v, want %d", test.text, got, err, test.bytes)
		}
		if got.String() != test.echo {
			t.Errorf("%s: got %q, want %q", test.text, got, test.echo)
		}
	}
}

func TestParseSizeErrors(t *testing.T) {
	for _, text := range []string{"", " ", "G", "-1G", "+1G", "1e9", "1E9", "0x10", "1,5G", "1.5.5G", ".5G", "5.", "5.G", " 36G",
		"36 G", "36Gi", "36GIB", "36gib", "36Gb", "36GBs", "36X", "36iB", "36KM", "8E", "9223372036854775808", "99999999999G",
		"1_000", "٣G", "NaN", "Inf", "1/2", "75%", "auto", strings.Repeat("1", 41)} {
		if n, err := ParseSize(text); err == nil {
			t.Errorf("%q is taken for %d", text, n)
		}
	}
}

// TestSizeEcho reads back what is echoed, as far as it is exact.
func TestSizeEcho(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := Size(rapid.Int64Range(0, math.MaxInt64).Draw(t, "n") >> rapid.IntRange(0, 62).Draw(t, "shift"))
		amount, rest, _ := strings.Cut(n.String(), " (")
		if rest == "" {
			amount = strings.TrimSuffix(amount, " bytes")
		}
		back, err := ParseSize(strings.ReplaceAll(amount, " ", ""))
		if strings.HasPrefix(amount, "8.00 EiB") {
			return // rounded up, beyond an int64
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := math.Abs(float64(back - n)); diff > float64(n)*0.005 {
			t.Fatalf("%d is echoed as %s", int64(n), n)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"36G", "1.5GiB", "36GB", "0", "-1", "1e9", "99999999999999999999E", "."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseSize(s); err == nil && (n < 0 || s == "" || s[0] < '0' || s[0] > '9') {
			t.Fatalf("%q is taken for %d", s, n)
		}
	})
}

func TestRAMSize(t *testing.T) {
	const total, auto = 24 << 30, 20 << 30
	for text, want := range map[string]int64{
		"36G": 36 << 30, "75%": 18 << 30, "100%": total, "12.5%": 3 << 30, "33.3%": 8581344657, "auto": auto,
	} {
		r, err := ParseRAMSize(text)
		if got := r.Bytes(total, auto); err != nil || got != want || !r.IsSet() || r.IsAuto() != (text == "auto") {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "0%", "101%", "-5%", "%", "1e1%", "75%%", "75 %", "AUTO", "autos", "0.5"} {
		if r, err := ParseRAMSize(text); err == nil {
			t.Errorf("%q is taken for %+v", text, r)
		}
	}
	var none RAMSize
	if none.IsSet() || none.Bytes(total, auto) != 0 || none.String() != "" {
		t.Error("the zero value is an amount")
	}
}
