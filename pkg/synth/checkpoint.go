package synth

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"substrate/internal/jsonio"
	"substrate/internal/safetensors"
	"substrate/pkg/doc"
	"substrate/pkg/plane"
)

// defaultShardBytes is where a checkpoint is split into several files.
const defaultShardBytes = 2 << 30

// Checkpoint writes a model of a shape as a Hugging Face folder: config.json,
// safetensors files and a tokenizer of single bytes. The same shape and
// weights give the same bytes.
//
// dir must not exist. It appears when all is written; until then the files
// are in dir.partial, which an error removes. The memory needed does not
// depend on the shape.
func Checkpoint(ctx context.Context, dir string, s Shape, w Weights) error {
	p, err := checkpointProfile(s)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); err == nil {
		return &fs.PathError{Op: "create", Path: dir, Err: fs.ErrExist}
	}
	partial := filepath.Clean(dir) + ".partial"
	if err := os.Mkdir(partial, 0o777); err != nil {
		return err
	}
	err = writeCheckpoint(ctx, partial, p, w.withDefaults())
	if err == nil {
		err = os.Rename(partial, dir)
	}
	if err != nil {
		os.RemoveAll(partial)
	}
	return err
}

// CheckpointBytes is the size of the weights that [Checkpoint] writes.
func CheckpointBytes(s Shape) (int64, error) {
	p, err := checkpointProfile(s)
	if err != nil {
		return 0, err
	}
	return p.Parameters * int64(weightFormat(p).Bits) / 8, nil
}

// checkpointProfile is [Profile] for shapes that a family of checkpoints has.
func checkpointProfile(s Shape) (*doc.Profile, error) {
	s = s.withDefaults()
	if s.Shared > 0 {
		return nil, &ShapeError{"shared", "no family of checkpoints that can be read has shared experts"}
	}
	if s.Vocab < tokens {
		return nil, &ShapeError{"vocab", fmt.Sprintf("%d: the tokenizer has %d tokens", s.Vocab, tokens)}
	}
	switch s.Weights {
	case "bf16", "f16", "f32":
	default:
		return nil, &ShapeError{"weights", fmt.Sprintf("%q: a checkpoint has bf16, f16 or f32", s.Weights)}
	}
	return Profile(s)
}

// weightFormat is how the checkpoint stores a weight.
func weightFormat(p *doc.Profile) plane.Format {
	switch p.Ops[0].Tensors[0].DType {
	case "f32":
		return plane.Format{Bits: 32}
	case "f16":
		return plane.Format{Bits: 16, Scale: plane.F16}
	}
	return plane.Format{Bits: 16, Scale: plane.BF16}
}

// place is a tensor of the checkpoint and the op that it belongs to.
type place struct {
	op     *doc.Op
	tensor *doc.Tensor
	bytes  int64
}

// shard is one file of weights.
type shard struct {
	file   string
	places []place
	bytes  int64
}

func writeCheckpoint(ctx context.Context, dir string, p *doc.Profile, w Weights) error {
	shards := layoutShards(p, w.ShardBytes)
	config, err := configJSON(p)
	if err != nil {
		return err
	}
	tokenizer, err := tokenizerJSON()
	if err != nil {
		return err
	}
	files := map[string][]byte{"config.json": config, "tokenizer.json": tokenizer}
	if len(shards) > 1 {
		if files["model.safetensors.index.json"], err = indexJSON(shards); err != nil {
			return err
		}
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			return err
		}
	}
	g := newGenerator(p, w)
	for i := range shards {
		if err := writeShard(ctx, dir, &shards[i], g); err != nil {
			return err
		}
	}
	return nil
}

// layoutShards spreads the tensors over files of at most limit bytes of data
// each, but at least one tensor.
func layoutShards(p *doc.Profile, limit int64) []shard {
	shards := []shard{{}}
	for i := range p.Ops {
		op := &p.Ops[i]
		for j := range op.Tensors {
			t := &op.Tensors[j]
			n := weightFormat(p).DataBytes(t.Rows, t.Cols)
			last := &shards[len(shards)-1]
			if last.bytes > 0 && last.bytes+n > limit {
				shards = append(shards, shard{})
				last = &shards[len(shards)-1]
			}
			last.places = append(last.places, place{op, t, n})
			last.bytes += n
		}
	}
	for i := range shards {
		shards[i].file = "model.safetensors"
		if len(shards) > 1 {
			shards[i].file = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		}
	}
	return shards
}

func indexJSON(shards []shard) ([]byte, error) {
	index := struct {
		Metadata map[string]int64  `json:"metadata"`
		Files    map[string]string `json:"weight_map"`
	}{map[string]int64{}, map[string]string{}}
	for _, s := range shards {
		index.Metadata["total_size"] += s.bytes
		for _, at := range s.places {
			index.Files[at.tensor.Source.Name] = s.file
		}
	}
	return jsonio.Marshal(index)
}

// header is the safetensors header of a shard.
func (s *shard) header() ([]byte, error) {
	tensors := map[string]safetensors.Tensor{}
	var end int64
	for _, at := range s.places {
		t := at.tensor
		shape := []int64{int64(t.Rows), int64(t.Cols)}
		if vector(at.op, t) {
			shape = shape[1:]
		}
		tensors[t.Source.Name] = safetensors.Tensor{DType: safetensorsType(t.DType), Shape: shape, Offsets: [2]int64{end, end + at.bytes}}
		end += at.bytes
	}
	return safetensors.Header("pt", tensors)
}

// vector reports whether a tensor has one dimension: all that is kept in
// higher precision but the router.
func vector(op *doc.Op, t *doc.Tensor) bool {
	return t.Keep && op.Kind != doc.KindMoERouter || t.Role == doc.RoleNorm
}

func safetensorsType(dtype string) string {
	switch dtype {
	case "f16":
		return "F16"
	case "f32":
		return "F32"
	}
	return "BF16"
}

func writeShard(ctx context.Context, dir string, s *shard, g *generator) (err error) {
	f, err := os.Create(filepath.Join(dir, s.file))
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	header, err := s.header()
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	w.Write(header) // an error stays in w
	for _, at := range s.places {
		if err := g.write(ctx, w, at); err != nil {
			return err
		}
	}
	return w.Flush()
}

// codesWorth is the number of values from which on it pays to encode all
// values of a distribution first.
const codesWorth = 1 << 18

// write makes up a tensor and writes it, a row at a time.
func (g *generator) write(ctx context.Context, w io.Writer, at place) error {
	t := at.tensor
	recipe := g.recipe(at.op, t)
	coded := recipe.fill == nil && g.format.Bits == 16 && t.Rows*t.Cols >= codesWorth
	if coded {
		g.codes.encode(recipe.from, recipe.deviation, g.format.Scale)
	}
	row, raw := make([]float32, t.Cols), make([]byte, at.bytes/int64(t.Rows))
	for r := range t.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		if coded {
			g.codes.fill(recipe.rng, raw)
		} else {
			recipe.row(r, row)
			g.encode(raw, row)
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
		if g.weights.Progress != nil {
			g.weights.Progress(int64(len(raw)))
		}
	}
	return nil
}
