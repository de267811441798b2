package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// testManifest is a small manifest with everything in it.
func testManifest(t testing.TB, layers, experts int) *doc.Manifest {
	e := doc.Encoding{Bits: 4, Group: 32, Scale: "bf16", Fit: "lsq", FitVersion: 1}
	e.ID = doc.EncodingID(&e)
	hash := strings.Repeat("0", 64)
	m := &doc.Manifest{
		Format: doc.FormatStore, ModelID: "m", Align: footprint.RecordAlign, ScaleType: "bf16", Encodings: []doc.Encoding{e},
		Plans: []doc.StoredPlan{{Name: "default", File: "plans/default.json", SHA256: hash, Records: []int{0}}},
		Profile: doc.Profile{
			Format: doc.FormatProfile, ModelID: "m", Family: "qwen3_moe", Reference: "source bf16",
			Architecture: doc.Architecture{
				HiddenSize: 64, Layers: layers, Heads: 2, KVHeads: 1, HeadDim: 32, VocabSize: 100, ContextTokens: 128, NormEps: 1e-6,
				Experts: experts, ExpertsPerToken: 2, ExpertSize: 32, BOS: -1, EOS: []int{1}, RoPE: doc.RoPE{Theta: 1e4, Type: "default"},
			},
			KVCaches: []doc.KVCache{{Type: "f32", BytesPerTokenPerLayer: 256}},
		},
		Annotations: doc.Annotations{"note": "kept"},
	}
	for l := range layers {
		m.Profile.Architecture.MoELayers = append(m.Profile.Architecture.MoELayers, l)
		m.Files = append(m.Files, doc.StoreFile{File: fmt.Sprintf("tensors/block_%d.experts.skeleton.bin", l), SHA256: hash})
		for x := range experts {
			op := doc.Op{ID: fmt.Sprintf("block_%d.expert_%d", l, x), Kind: doc.KindMoEExpert, Layer: l, Expert: x, Parameters: 6144}
			for _, role := range []string{doc.RoleGate, doc.RoleUp, doc.RoleDown} {
				tensor := doc.Tensor{Role: role, Rows: 32, Cols: 64, DType: "bf16"}
				if role == doc.RoleDown {
					tensor.Rows, tensor.Cols = 64, 32
				}
				tensor.Source = doc.Source{Name: fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s_proj.weight", l, x, role), Index: -1}
				op.Tensors = append(op.Tensors, tensor)
			}
			layout, err := footprint.Layout(&op, &e)
			if err != nil {
				t.Fatal(err)
			}
			if m.Layouts == nil {
				m.Layouts = []doc.RecordLayout{layout}
			}
			m.Profile.Ops = append(m.Profile.Ops, op)
			m.Records = append(m.Records, doc.Record{
				ID: op.ID + ".skeleton", Identity: digest([]byte(op.ID)), Op: op.ID, Encoding: e.ID, File: l,
				Offset: m.Files[l].Bytes, Bytes: layout.Bytes, CRC32C: uint32(x),
			})
			m.Files[l].Bytes += layout.Bytes
		}
	}
	m.Files = append(m.Files, doc.StoreFile{File: "plans/default.json", Bytes: 1, SHA256: hash})
	return m
}

// Reading value by value gives what reading at once gives.
func FuzzManifest(f *testing.F) {
	b, err := doc.Write(testManifest(f, 2, 2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	for _, edit := range [][2]string{
		{`"sb.store/1"`, `"sb.store/2"`}, {`"format": "sb.store/1",`, ``}, {`"records": [`, `"records": [null, `}, {`"ops": [`, `"ops": 3, "x": [`},
		{`"model_id": "m",`, `"model_id": "m", "model_id": "m",`}, {`"role": "up"`, `"role": "up", "role": "up"`}, {`"offset": 0`, `"offset": 1`},
		{`tensors/block_0`, `../block_0`}, {`"note": "kept"`, `"note": "kept", "more": "text"`}, {`"crc32c": 1`, `"crc32c": -1`},
		{`"align_bytes": 4096`, `"align_bytes": 9007199254740993`}, {`"layouts": [`, `"layouts": [], "layouts": [`},
	} {
		if !bytes.Contains(b, []byte(edit[0])) {
			f.Fatalf("nothing to edit at %s", edit[0])
		}
		f.Add(bytes.Replace(b, []byte(edit[0]), []byte(edit[1]), 1))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want, wantErr := doc.Read[doc.Manifest]("manifest.json", b)
		got, err := readManifest("manifest.json", bytes.NewReader(b))
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("read value by value: %v, at once: %v", err, wantErr)
		}
		if err == nil && !cmp.Equal(got, want) {
			t.Error(cmp.Diff(want, got))
		}
	})
}

// Errors name file, place and reason.
func TestManifestErrors(t *testing.T) {
	b, err := doc.Write(testManifest(t, 2, 2))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"sb.store/1"`, `"sb.store/9"`, `manifest.json: /format: version "9" of sb.store is not known here; this tool reads "sb.store/1"`},
		{`"id": "block_1.expert_0.skeleton"`, `"id": 7`, `manifest.json: /records/2/id: number where a string should be`},
		{`"id": "block_1.expert_0.skeleton"`, `"it": "x", "id": "y"`, `manifest.json: /records/2: unknown member "it"`},
		{`"role": "down"`, `"roll": "down"`, `manifest.json: /profile/ops/0/tensors/2: unknown member "roll"`},
		{`"heads": 2`, `"heads": "2"`, `manifest.json: /profile/architecture/heads: string where an integer should be`},
		{`"align_bytes": 4096`, `"align_bytes": 3`, `manifest.json: /align_bytes: 3: want a power of two up to 2^24`},
		{`"scale_type"`, `"scale"`, `manifest.json: unknown member "scale"`},
	} {
		_, err := readManifest("manifest.json", strings.NewReader(strings.Replace(string(b), c.old, c.new, 1)))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s for %s:\n got %v\nwant %s", c.new, c.old, err, c.want)
		}
	}
}

// A store of 12,000 records opens in less than 40 MiB, a small one in next to
// nothing: sb-run pays for it out of the model's cap.
func TestManifestMemory(t *testing.T) {
	for _, c := range []struct {
		layers, experts int
		limit           uint64
	}{{94, 128, 40 << 20}, {30, 2, 2 << 20}} {
		b, err := doc.Write(testManifest(t, c.layers, c.experts))
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), ManifestFile)
		if err := os.WriteFile(name, b, 0o666); err != nil {
			t.Fatal(err)
		}
		size := len(b)
		b = nil
		before := settledHeap()
		stop, peak := make(chan bool), make(chan uint64)
		go watchHeap(stop, peak)
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := readManifest(name, f)
		f.Close()
		close(stop)
		most := <-peak
		if err != nil {
			t.Fatal(err)
		}
		held := settledHeap()
		t.Logf("%d records, %d bytes of text: at most %d KiB, held %d KiB", len(m.Records), size, (most-min(most, before))>>10, (held-min(held, before))>>10)
		if most > before+c.limit {
			t.Errorf("%d records: reading took %d bytes of heap, want at most %d", len(m.Records), most-before, c.limit)
		}
		runtime.KeepAlive(m)
	}
}

func settledHeap() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// watchHeap sends the largest heap, garbage included, until stop.
func watchHeap(stop chan bool, peak chan uint64) {
	var most uint64
	var s runtime.MemStats
	for {
		runtime.ReadMemStats(&s)
		most = max(most, s.HeapAlloc)
		select {
		case <-stop:
			peak <- most
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("{\"item\":0,\"stored_bytes\":4096,\"crc32c\":1}\n{\"item\":1"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, end := parseJournal(b, 0)
		if end < 0 || end > int64(len(b)) || end > 0 && b[end-1] != '\n' {
			t.Errorf("%d lines end at %d of %d", len(lines), end, len(b))
		}
	})
}

// Compressed frames of every size come back, and damaged ones do not pass.
func TestCodec(t *testing.T) {
	var c codec
	defer c.close()
	for _, n := range []int{4096, windowBytes - 4096, windowBytes, windowBytes + 4096, 5*windowBytes + 8192} {
		raw := make([]byte, n)
		for i := range raw {
			raw[i] = byte(i >> 5 * i >> 9)
		}
		frame, ok, err := c.compress(nil, raw)
		if err != nil || !ok {
			t.Fatalf("%d bytes: %v, %v", n, ok, err)
		}
		back := make([]byte, n)
		if err := c.decompress(back, frame); err != nil || !bytes.Equal(back, raw) {
			t.Errorf("%d bytes: came back otherwise: %v", n, err)
		}
		if err := c.decompress(make([]byte, n-1), frame); err == nil {
			t.Errorf("%d bytes: fits into less", n)
		}
		if err := c.decompress(make([]byte, n), frame[:len(frame)-1]); err == nil {
			t.Errorf("%d bytes: a cut frame passes", n)
		}
	}
	if _, ok, err := c.compress(nil, noise(8192)); err != nil || ok {
		t.Errorf("noise: gains %v, %v", ok, err)
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// The steps of a lock that another process may take at any moment.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(path); err == nil {
		t.Error("locked twice")
	}
	first.Close()
	second, err := lock(path)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}
