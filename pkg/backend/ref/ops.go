package ref

import (
	"math"

	"substrate/pkg/backend"
	"substrate/pkg/backend/internal/contract"
)

func (b *Backend) RMSNorm(dst, x backend.Tensor, w backend.Vector, eps float32) {
	if !b.ok("rms_norm", b.table.RMSNorm(dst, x, w)) {
		return
	}
	weight, xs, ys := b.vectors[w.ID-1], b.tensor(x), b.tensor(dst)
	for at := 0; at < len(xs); at += w.Len {
		chunk, out := xs[at:at+w.Len], ys[at:at+w.Len]
		var sum float64
		for _, v := range chunk {
			sum += float64(v) * float64(v)
		}
		inv := 1 / math.Sqrt(sum/float64(w.Len)+float64(eps))
		for i, v := range chunk {
			out[i] = float32(float64(v) * inv * float64(weight[i]))
		}
	}
}

// RoPE computes angles in float32, as the models were trained with: at large
// positions its rounding is part of the model.
func (b *Backend) RoPE(x backend.Tensor, headDim, pos int, freqs []float32) {
	if !b.ok("rope", b.table.RoPE(x, headDim, pos, freqs)) {
		return
	}
	xs, half := b.tensor(x), headDim/2
	for r := range x.Rows {
		row := xs[r*x.Cols:][:x.Cols]
		for i, f := range freqs {
			sin, cos := math.Sincos(float64(float32(pos+r) * f))
			for at := i; at < x.Cols; at += headDim {
				a, c := float64(row[at]), float64(row[at+half])
				row[at] = float32(a*cos - c*sin)
				row[at+half] = float32(c*cos + a*sin)
			}
		}
	}
}

func (b *Backend) SwiGLU(dst, gate, up backend.Tensor) {
	if b.ok("swiglu", b.table.SwiGLU(dst, gate, up)) {
		activate(backend.Activation{}, b.tensor(dst), b.tensor(gate), b.tensor(up))
	}
}

// activate joins gates and ups.
func activate(act backend.Activation, dst, gate, up []float32) {
	for i, u := range up {
		dst[i] = act.Apply(gate[i], u)
	}
}

func (b *Backend) Concat(dst, x, y backend.Tensor, heads int) {
	if b.ok("concat", b.table.Concat(dst, x, y, heads)) {
		contract.Concat(b.tensor(dst), b.tensor(x), b.tensor(y), x.Rows*heads)
	}
}

func (b *Backend) Add(dst, x backend.Tensor) {
	if !b.ok("add", b.table.Add(dst, x)) {
		return
	}
	ys := b.tensor(dst)
	for i, v := range b.tensor(x) {
		ys[i] += v
	}
}

func (b *Backend) Take(dst, x backend.Tensor, from int) {
	if b.ok("take", b.table.Take(dst, x, from)) {
		copy(b.tensor(dst), b.tensor(x)[from*x.Cols:])
	}
}

func (b *Backend) Combine(dst, y backend.Tensor, weights []float32, k int) {
	if !b.ok("combine", b.table.Combine(dst, y, weights, k)) {
		return
	}
	ds, ys, cols := b.tensor(dst), b.tensor(y), dst.Cols
	for t := range dst.Rows {
		for c := range cols {
			sum := float64(ds[t*cols+c])
			for j := range k {
				sum += float64(weights[t*k+j]) * float64(ys[(t*k+j)*cols+c])
			}
			ds[t*cols+c] = float32(sum)
		}
	}
}

func (b *Backend) Logits(dst []float32, x backend.Tensor, row int) error {
	if b.ok("logits", b.table.Logits(dst, x, row)) {
		copy(dst, b.tensor(x)[row*x.Cols:])
	}
	return b.err
}

func (b *Backend) Load(dst backend.Tensor, values []float32) {
	if b.ok("load", b.table.Load(dst, values)) {
		copy(b.tensor(dst), values)
	}
}
