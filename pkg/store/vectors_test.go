package store_test

import (
	"encoding/hex"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"substrate/internal/crc32c"
	"substrate/internal/jsonio"
	"substrate/pkg/doc"
	"substrate/pkg/quant"
)

// The test vectors of FORMAT.md, read from there: what our reader and the one
// in Python make of the bytes is what the text says.
func TestFormatVectors(t *testing.T) {
	text, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "## Test vectors\n")
	if !ok {
		t.Fatal("FORMAT.md has no test vectors")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	vectors := regexp.MustCompile("(?m)^    (codes|dense) (.*)\n    bytes +([0-9a-f ]+)\n    crc32c +([0-9a-f]{8})\n    values +(.*)\n").FindAllStringSubmatch(section, -1)
	if len(vectors) < 5 {
		t.Fatalf("%d vectors, want 5 or more", len(vectors))
	}
	for _, v := range vectors {
		l := &doc.TensorLayout{DType: "codes"}
		for _, field := range strings.Fields(v[2]) {
			key, value, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseInt(value, 10, 64)
			switch key {
			case "rows":
				l.Rows = int(n)
			case "cols":
				l.Cols = int(n)
			case "bits":
				l.Bits = int(n)
			case "group":
				l.Group = int(n)
			case "scale":
				l.Scale = value
			case "dtype":
				l.DType = value
			case "scales_offset":
				l.Scales = n
			case "biases_offset":
				l.Biases = n
			}
		}
		l.Role = "w"
		raw, err := hex.DecodeString(strings.ReplaceAll(v[3], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if sum := strconv.FormatUint(uint64(crc32c.Sum(raw))|1<<32, 16)[1:]; sum != v[4] {
			t.Errorf("%s: crc32c is %s, the text has %s", v[2], sum, v[4])
		}
		layout := &doc.RecordLayout{Bytes: int64(len(raw)), Tensors: []doc.TensorLayout{*l}}
		got := make([]float32, l.Rows*l.Cols)
		if err := quant.Dequantize(got, "w", quant.Record{Layout: layout, Bytes: raw}); err != nil {
			t.Fatalf("%s: %v", v[2], err)
		}
		checkVector(t, "quant.Dequantize", v, got)
		checkVector(t, "read_store.py", v, pythonValues(t, l, raw))
	}
}

// checkVector compares values with those of the text: first ones, dots, last
// one.
func checkVector(t *testing.T, of string, v []string, got []float32) {
	t.Helper()
	want := strings.Fields(v[5])
	dots := len(want)
	for i, w := range want {
		if w == "..." {
			dots = i
		}
	}
	for i, w := range want {
		at := i
		if i == dots {
			continue
		}
		if i > dots {
			at = len(got) - (len(want) - i)
		}
		x, err := strconv.ParseFloat(w, 32)
		if err != nil {
			t.Fatal(err)
		}
		if got != nil && math.Float32bits(got[at]) != math.Float32bits(float32(x)) {
			t.Errorf("%s: %s: value %d is %g, the text has %s", of, v[2], at, got[at], w)
		}
	}
}

// pythonValues asks the reader in Python; nil if there is no Python.
func pythonValues(t *testing.T, l *doc.TensorLayout, raw []byte) []float32 {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil
	}
	layout, err := jsonio.MarshalLine(l)
	if err != nil {
		t.Fatal(err)
	}
	const program = "import json,sys; sys.path.insert(0,'testdata'); import read_store as r; print(json.dumps(r.tensor(bytes.fromhex(sys.argv[2]), json.loads(sys.argv[1]))))"
	cmd := exec.Command(python, "-B", "-c", program, string(layout), hex.EncodeToString(raw))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var values []float64
	if err := jsonio.Unmarshal("read_store.py", out, &values); err != nil {
		t.Fatal(err)
	}
	floats := make([]float32, len(values))
	for i, x := range values {
		floats[i] = float32(x)
	}
	return floats
}
