package synth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
	"substrate/pkg/plane"
)

// Model is the model that [Checkpoint] would write, without the checkpoint:
// its weights come into being when they are read. Methods may be called by
// several goroutines at once.
type Model struct {
	profile *doc.Profile
	gen     *generator
	places  map[string]place // by the tensor's name

	mu     sync.Mutex
	recent []*made // the tensor made last is at the end
}

// made is a tensor that somebody read rows of.
type made struct {
	name   string
	once   sync.Once
	values []float32
}

// heldTensors is how many tensors a Model keeps: rows are made in their
// order, so that a tensor is made whole, and its readers come together.
const heldTensors = 16

// NewModel makes a model of a shape.
func NewModel(s Shape, w Weights) (*Model, error) {
	p, err := checkpointProfile(s)
	if err != nil {
		return nil, err
	}
	m := &Model{profile: p, gen: newGenerator(p, w.withDefaults()), places: map[string]place{}}
	for i := range p.Ops {
		op := &p.Ops[i]
		for j := range op.Tensors {
			m.places[op.Tensors[j].Source.Name] = place{op: op, tensor: &op.Tensors[j]}
		}
	}
	return m, nil
}

// Profile describes the model.
func (m *Model) Profile() *doc.Profile { return m.profile }

// Texts are the model's config.json and tokenizer.json.
func (m *Model) Texts() (config, tokenizer []byte, err error) {
	if config, err = configJSON(m.profile); err != nil {
		return nil, nil, err
	}
	tokenizer, err = tokenizerJSON()
	return config, tokenizer, err
}

// WeightsSHA256 names the weights: a digest of all that they are made from.
func (m *Model) WeightsSHA256(context.Context) (string, error) {
	shape, err := jsonio.MarshalLine(m.profile)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, "synth 1", m.gen.weights.Seed, m.gen.weights.Peak, m.gen.weights.Skew)
	h.Write(shape)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// ReadRows fills dst, row-major [rows, t.Cols], with rows row to row+rows of
// t, as the checkpoint has them.
func (m *Model) ReadRows(dst []float32, t *doc.Tensor, row, rows int) error {
	at, ok := m.places[t.Source.Name]
	if !ok || row < 0 || rows < 0 || row+rows > at.tensor.Rows || len(dst) != rows*at.tensor.Cols {
		return fmt.Errorf("made-up tensor %q: no rows %d to %d of %d values in all", t.Source.Name, row, row+rows, len(dst))
	}
	held := m.hold(t.Source.Name)
	held.once.Do(func() { held.values = m.make(at) })
	copy(dst, held.values[row*at.tensor.Cols:])
	return nil
}

// hold returns the place of a tensor among those kept.
func (m *Model) hold(name string) *made {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, held := range m.recent {
		if held.name == name {
			return held
		}
	}
	if len(m.recent) == heldTensors {
		m.recent = append(m.recent[:0], m.recent[1:]...)
	}
	held := &made{name: name}
	m.recent = append(m.recent, held)
	return held
}

// make makes a whole tensor, rounded as the checkpoint rounds.
func (m *Model) make(at place) []float32 {
	t, g := at.tensor, m.gen
	r := g.recipe(at.op, t)
	values := make([]float32, t.Rows*t.Cols)
	stored := make([]byte, g.format.DataBytes(1, t.Cols))
	for row := range t.Rows {
		dst := values[row*t.Cols : (row+1)*t.Cols]
		r.row(row, dst)
		g.encode(stored, dst)
		if g.format.Bits == 32 {
			plane.DecodeFloat32(dst, stored)
		} else {
			g.format.Scale.Decode(dst, stored)
		}
	}
	return values
}
