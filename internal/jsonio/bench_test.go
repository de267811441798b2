package jsonio

import (
	"fmt"
	"io"
	"testing"
)

// largeDocument is a document of about 20 MB, as the table of a model with very many experts.
func largeDocument(b *testing.B) (document, []byte) {
	v := document{Format: "sb.test/1", Sizes: map[string]int{}}
	for i := range 320_000 {
		v.Items = append(v.Items, item{fmt.Sprintf("block_%d.expert_%d", i/64, i%64), 1 / float64(i+3)})
	}
	text, err := Marshal(v)
	if err != nil {
		b.Fatal(err)
	}
	return v, text
}

func BenchmarkUnmarshal(b *testing.B) {
	_, text := largeDocument(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var v document
		if err := Unmarshal("", text, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMarshal(b *testing.B) {
	v, text := largeDocument(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Marshal(v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	_, text := largeDocument(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := check("", text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	e := NewEncoder(io.Discard)
	v := &struct {
		Type  string  `json:"type"`
		TNs   int64   `json:"t_ns"`
		Token int     `json:"token"`
		Op    string  `json:"op"`
		Bytes int64   `json:"bytes"`
		Ratio float64 `json:"ratio"`
	}{"read", 123456789012, 17, "block_5.expert_17", 1 << 20, 0.123456789}
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Encode(v); err != nil {
			b.Fatal(err)
		}
	}
}
