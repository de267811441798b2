// Package cpu is the default backend on Linux: kernels in C with run-time
// dispatch over the processor's instructions, a pool of threads, no allocation
// during ops.
//
// Two kinds of activations. With "int8", coded matrices see x rounded to 8
// bits by groups of 64 columns, or 32 where the matrix has groups of 32:
//
//	y = sum over g of scale_g*sx_g*dot(q_g, xq_g) + bias_g*sx_g*sum(xq_g)
//
// where the sum of the rounded values keeps the error proportional to w, not
// to the bias. With "f32", weights are decoded to float32 and so is all
// arithmetic; dense matrices always take this way.
//
// Results depend on the path (Path), the kind of activations and the inputs,
// and on nothing else: each output is computed by one thread in one order,
// whatever the number of threads and however many rows an op has. A row's
// output is the same bits alone, in a batch, in a prefill chunk.
package cpu

import "fmt"

// The kinds of activations.
const (
	Int8 = "int8"
	F32  = "f32"
)

// Options configure a backend. The zero value is the default.
type Options struct {
	Threads     int    // 0: one per processor
	Activations string // Int8 or F32; "" is Int8
	ForcePath   string // "avx512vnni", "scalar"; "" is the best of this machine
}

const maxThreads = 256

func (o *Options) fill(processors int) error {
	if o.Threads == 0 {
		o.Threads = min(processors, maxThreads)
	}
	if o.Threads < 1 || o.Threads > maxThreads {
		return fmt.Errorf("backend cpu: %d threads, want 1 to %d", o.Threads, maxThreads)
	}
	switch o.Activations {
	case "":
		o.Activations = Int8
	case Int8, F32:
	default:
		return fmt.Errorf("backend cpu: activations %q, want int8 or f32", o.Activations)
	}
	return nil
}
