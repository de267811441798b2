package quant

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"substrate/pkg/backend"
	"substrate/pkg/doc"
)

// Stats are the second moments E[x^2] of the inputs of a model's matrices, and
// their Gram matrices E[x x^T] where those are known, as calibration saw them:
// in memory or in an open statistics file.
//
// An input is named by the op that owns the record and the role of the first
// matrix that reads it: q stands for k and v, gate for up, latent for k_rope
// and q_a, q_nope for q_rope. The moments of a tied embedding are those of the head's input, which uses its record.
type Stats struct {
	mu     sync.Mutex
	inputs map[string]input
	layers map[string][]float32 // means over the experts of a layer, made when first asked for

	// GEMM is what heavy loops use; nil: backend.PlainGEMM. The codes do not
	// depend on it.
	GEMM       backend.GEMM
	grams      map[string]grams // by input
	layerGram  layerGram
	curvatures []keptCurvature // of the inputs last used, the last one first

	name   string // of the file
	file   io.ReaderAt
	close  func() error
	sha256 string // of the file
}

// StatsError is something wrong with statistics, or with their use for a model.
type StatsError struct {
	File   string // "" for statistics in memory
	Reason string
}

func (e *StatsError) Error() string {
	if e.File == "" {
		return "statistics: " + e.Reason
	}
	return e.File + ": " + e.Reason
}

// ExitCode is that of a bad document.
func (e *StatsError) ExitCode() int { return 3 }

func statsErrorf(file, format string, args ...any) error {
	return &StatsError{file, fmt.Sprintf(format, args...)}
}

// input is one vector of moments.
type input struct {
	tokens int64     // rows of x that were averaged
	cols   int       // length
	mean   []float32 // nil: at offset in the file
	offset int64
}

// NewStats returns statistics that know nothing yet.
func NewStats() *Stats {
	return &Stats{inputs: map[string]input{}, layers: map[string][]float32{}, grams: map[string]grams{}}
}

// Set gives the mean of x^2 over tokens rows of the input of a matrix.
func (s *Stats) Set(op, role string, tokens int64, mean []float32) error {
	name := InputName(op, role)
	if !strings.Contains(name, ".") || tokens < 0 || tokens > doc.MaxInteger || len(mean) == 0 {
		return statsErrorf("", "op %q, role %q: %d values from %d tokens", op, role, len(mean), tokens)
	}
	if err := checkMoments("", name, mean); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inputs[name] = input{tokens: tokens, cols: len(mean), mean: slices.Clone(mean)}
	delete(s.grams, name)
	clear(s.layers)
	return nil
}

func checkMoments(file, name string, mean []float32) error {
	for i, m := range mean {
		if !finite(m) || m < 0 {
			return statsErrorf(file, "input %q: second moment %g of column %d is not a finite number from 0 up", name, m, i)
		}
	}
	return nil
}

// InputName names the input that a matrix reads.
func InputName(op, role string) string {
	switch role {
	case doc.RoleK, doc.RoleV:
		role = doc.RoleQ
	case doc.RoleUp:
		role = doc.RoleGate
	case doc.RoleKRoPE, doc.RoleQA:
		role = doc.RoleLatent
	case doc.RoleQRoPE:
		role = doc.RoleQNope
	}
	return op + "." + role
}

// expertTokens is how many tokens an expert must have seen for its own
// moments to weigh as much as its layer's: a second moment from 32 tokens is
// off by about a quarter.
const expertTokens = 32

// Moments returns the second moments of the inputs of a matrix with cols
// columns, nil if there are none (or s is nil). An expert's are shrunk to the
// mean of its layer's experts, the more the fewer tokens it saw.
func (s *Stats) Moments(op, role string, cols int) ([]float32, error) {
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := InputName(op, role)
	own, ok := s.inputs[name]
	if ok && own.cols != cols {
		return nil, statsErrorf(s.name, "input %q has %d values, the matrix %d columns: the statistics are of another model", name, own.cols, cols)
	}
	var mean []float32
	if ok && own.tokens > 0 {
		var err error
		if mean, err = s.read(name, own); err != nil {
			return nil, err
		}
	}
	pattern, isExpert := layerPattern(name)
	if !isExpert {
		return mean, nil
	}
	layer, err := s.layer(pattern, cols)
	if err != nil || mean == nil {
		return layer, err
	}
	n := float64(own.tokens)
	shrunk := make([]float32, cols)
	for i := range shrunk {
		shrunk[i] = float32((float64(n*float64(mean[i])) + float64(expertTokens*float64(layer[i]))) / (n + expertTokens))
	}
	return shrunk, nil
}

// layerPattern splits "block_5.expert_17.gate" into what all experts of the
// layer have in common: "block_5.expert_" and ".gate".
func layerPattern(name string) (pattern [2]string, isExpert bool) {
	const mark = ".expert_"
	at := strings.Index(name, mark)
	if at < 0 {
		return pattern, false
	}
	at += len(mark)
	dot := strings.IndexByte(name[at:], '.')
	if dot < 0 {
		return pattern, false
	}
	return [2]string{name[:at], name[at+dot:]}, true
}

// expertInputs are the names of the inputs of a layer's experts that saw
// tokens, in order.
func (s *Stats) expertInputs(pattern [2]string) (names []string) {
	for name, in := range s.inputs {
		if p, ok := layerPattern(name); ok && p == pattern && in.tokens > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// layer returns the mean over a layer's experts, weighted by tokens; nil if
// none saw any.
func (s *Stats) layer(pattern [2]string, cols int) ([]float32, error) {
	key := pattern[0] + pattern[1]
	if mean, ok := s.layers[key]; ok {
		return mean, nil
	}
	sum := make([]float64, cols)
	var tokens int64
	for _, name := range s.expertInputs(pattern) {
		in := s.inputs[name]
		if in.cols != cols {
			return nil, statsErrorf(s.name, "input %q has %d values, others of its layer %d", name, in.cols, cols)
		}
		mean, err := s.read(name, in)
		if err != nil {
			return nil, err
		}
		for i, m := range mean {
			sum[i] += float64(float64(in.tokens) * float64(m))
		}
		tokens += in.tokens
	}
	var layer []float32
	if tokens > 0 {
		layer = make([]float32, cols)
		for i := range layer {
			layer[i] = float32(sum[i] / float64(tokens))
		}
	}
	s.layers[key] = layer
	return layer, nil
}

// read brings the values of an input.
func (s *Stats) read(name string, in input) ([]float32, error) {
	if in.mean != nil {
		return in.mean, nil
	}
	b := make([]byte, 4*in.cols)
	if _, err := s.file.ReadAt(b, in.offset); err != nil {
		return nil, fmt.Errorf("%s: input %q: %w", s.name, name, err)
	}
	mean := make([]float32, in.cols)
	for i := range mean {
		mean[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return mean, checkMoments(s.name, name, mean)
}

// Use makes heavy loops run on gemm.
func (s *Stats) Use(gemm backend.GEMM) {
	if s != nil {
		s.GEMM = gemm
	}
}

// SHA256 is the digest of the file that s was read from, "" for statistics in
// memory and for nil.
func (s *Stats) SHA256() string {
	if s == nil {
		return ""
	}
	return s.sha256
}

// Close closes the file that s reads.
func (s *Stats) Close() error {
	if s == nil || s.close == nil {
		return nil
	}
	return s.close()
}
