package calib

import (
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/quant"
)

// gramSum gathers what gptq needs of one input: rows of x, or their Gram matrix
// where that is smaller.
type gramSum struct {
	cols   int
	limit  int       // rows that may be kept; above cols: a Gram matrix in place of more
	seen   int       // rows
	stride int       // every so manieth row is kept
	rows   []float32 // kept, or not yet in gram
	gram   []float32 // sum of x x^T; nil: rows are all
}

func (g *gramSum) add(gemm backend.GEMM, x []float32) {
	for ; len(x) >= g.cols; x = x[g.cols:] {
		if g.limit <= 0 {
			return
		}
		if g.seen%g.stride == 0 {
			g.rows = append(g.rows, x[:g.cols]...)
		}
		g.seen++
		switch n := len(g.rows) / g.cols; {
		case g.limit > g.cols && n > g.cols:
			g.sum(gemm)
		case g.limit <= g.cols && n > g.limit:
			g.thin()
		}
	}
}

// sum adds the rows at hand to the Gram matrix.
func (g *gramSum) sum(gemm backend.GEMM) {
	if g.gram == nil {
		g.gram = make([]float32, g.cols*g.cols)
	}
	quant.AddGram(gemm, g.gram, g.rows, g.cols)
	g.rows = g.rows[:0]
}

// thin keeps every other row.
func (g *gramSum) thin() {
	kept := g.rows[:0]
	for i := 0; i < len(g.rows); i += 2 * g.cols {
		kept = append(kept, g.rows[i:i+g.cols]...)
	}
	g.rows, g.stride = kept, 2*g.stride
}

// set hands what was gathered to the statistics.
func (g *gramSum) set(gemm backend.GEMM, s *quant.Stats, op, role string) error {
	if g.gram == nil {
		if len(g.rows) == 0 {
			return nil
		}
		return s.SetRows(op, role, g.rows, g.cols)
	}
	if len(g.rows) > 0 {
		g.sum(gemm)
	}
	mean := 1 / float32(g.seen)
	for i := range g.gram {
		g.gram[i] *= mean
	}
	return s.SetGram(op, role, g.gram, g.cols)
}

// gramInputs are the inputs of a model's coded matrices that text of so many
// tokens shows.
func gramInputs(p *doc.Profile, tokens int) (inputs []quant.GramInput) {
	a := &p.Architecture
	for i := range p.Ops {
		op := &p.Ops[i]
		seen := map[string]bool{}
		for j := range op.Tensors {
			t := &op.Tensors[j]
			name := quant.InputName(op.ID, t.Role)
			if t.Keep || t.Rows == 1 || seen[name] {
				continue
			}
			seen[name] = true
			in := quant.GramInput{Cols: t.Cols, Count: 1, Tokens: int64(tokens)}
			if op.Kind == doc.KindMoEExpert {
				if op.Expert > 0 {
					continue
				}
				in.Count, in.Tokens = a.Experts, int64(tokens)*int64(a.ExpertsPerToken)
			}
			inputs = append(inputs, in)
		}
	}
	return inputs
}
