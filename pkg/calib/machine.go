package calib

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"substrate/internal/mem"
	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/plane"
	"substrate/pkg/stream"
)

// Sizes and depths at which the disk is measured: those of records of small
// and large experts, one reader up to more than any disk gains from.
var (
	readSizes  = [...]int64{64 << 10, 256 << 10, 1 << 20, 4 << 20}
	readDepths = [...]int{1, 2, 4, 8}
)

const (
	// readFileBytes is the size of the file that is read: beyond the caches
	// of small disks, and short to write.
	readFileBytes = 512 << 20
	// readTime is how long each (size, depth) is measured.
	readTime = 250 * time.Millisecond
)

// MeasureReads measures the disk under dir with direct reads of a temporary
// file, at random offsets. direct is false where the file system can only
// read through its cache; the rates then are the cache's where it keeps up
// with dropping.
func MeasureReads(ctx context.Context, dir string, progress func(done, total int)) (points []doc.ReadPoint, err error) {
	f, err := os.CreateTemp(dir, "sb-machine-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	if err := fillRandom(ctx, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	r, err := stream.Open(f.Name(), 4096)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for _, size := range readSizes {
		for _, depth := range readDepths {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			rate, err := readRate(r, size, depth)
			if err != nil {
				return nil, err
			}
			points = append(points, doc.ReadPoint{Bytes: size, Depth: depth, BytesPerSec: rate, Direct: r.Direct()})
			progress(len(points), len(readSizes)*len(readDepths))
		}
	}
	return points, nil
}

// fillRandom writes the file and waits for the disk. The bytes are random so
// that no disk compresses them.
func fillRandom(ctx context.Context, f *os.File) error {
	block := make([]byte, 4<<20)
	if _, err := rand.Read(block); err != nil {
		return err
	}
	for n := 0; n < readFileBytes; n += len(block) {
		if err := ctx.Err(); err != nil {
			return err
		}
		block[0]++ // no two blocks are equal
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Sync()
}

// readRate reads blocks of size with depth readers at once for readTime.
func readRate(r *stream.StoreFile, size int64, depth int) (bytesPerSec int64, err error) {
	start := time.Now()
	var g sync.WaitGroup
	counts, errs := make([]int64, depth), make([]error, depth)
	for d := range depth {
		buf, err := mem.Map(size)
		if err != nil {
			return 0, err
		}
		g.Go(func() {
			defer mem.Unmap(buf)
			// Each reader walks the file in its own order of blocks, coprime
			// to their number, so that no two read the same block at once.
			blocks := readFileBytes / size
			at, step := int64(d)*blocks/int64(depth), blocks/2+1|1
			for time.Since(start) < readTime {
				n, err := r.ReadAt(buf, at%blocks*size)
				if err != nil {
					errs[d] = err
					return
				}
				counts[d] += int64(n)
				at += step
			}
		})
	}
	g.Wait()
	var sum int64
	for _, n := range counts {
		sum += n
	}
	return int64(float64(sum) / time.Since(start).Seconds()), errors.Join(errs...)
}

// kernelShapes are [rows, cols] of small and large experts' matrices.
var kernelShapes = [...][2]int{{512, 512}, {768, 2048}, {2048, 2048}, {6144, 2048}}

// kernelBits are the widths measured, in groups of 64; 16 is dense.
var kernelBits = [...]int{2, 3, 4, 5, 6, 8, 16}

// kernelTokens are batches: decoding, and a prefill chunk.
var kernelTokens = [...]int{1, 64}

// rotateBytes is how much weight memory a measurement walks through, so that
// decoding's products come from memory and not from a cache that one matrix
// fits.
const rotateBytes = 96 << 20

// MeasureKernels times matrix products of a backend that open makes afresh.
func MeasureKernels(ctx context.Context, open func() (backend.Backend, error), activations string, progress func(done, total int)) (rates []doc.KernelRate, dispatchNs int64, err error) {
	b, err := open()
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	total := len(kernelShapes) * len(kernelBits) * len(kernelTokens)
	for _, shape := range kernelShapes {
		for _, bits := range kernelBits {
			format := plane.Format{Bits: bits, Group: 64, Scale: plane.BF16}
			if bits == 16 {
				format.Group = 0
			}
			k, err := newKernel(b, shape[0], shape[1], format)
			if err != nil {
				return nil, 0, err
			}
			for _, tokens := range kernelTokens {
				if err := ctx.Err(); err != nil {
					k.slab.Free()
					return nil, 0, err
				}
				ns, err := k.time(tokens)
				if err != nil {
					k.slab.Free()
					return nil, 0, err
				}
				rates = append(rates, doc.KernelRate{
					Backend: b.Name(), Activations: activations, Bits: bits, Group: format.Group,
					Rows: shape[0], Cols: shape[1], Tokens: tokens, TimeNs: ns,
				})
				progress(len(rates), total)
			}
			k.slab.Free()
		}
	}
	dispatchNs, err = dispatchTime(b)
	return rates, dispatchNs, err
}

// kernel is a set of equal matrices to walk through.
type kernel struct {
	b       backend.Backend
	slab    backend.Slab
	weights []backend.Linear
	x, y    backend.Tensor
	next    int
}

func newKernel(b backend.Backend, rows, cols int, f plane.Format) (*kernel, error) {
	data, scales := f.DataBytes(rows, cols), f.ScaleBytes(rows, cols)
	one := (data+2*scales+4095)&^4095 + 4096
	copies := max(1, int(rotateBytes/one))
	k := &kernel{b: b}
	var err error
	if k.slab, err = b.Alloc(int64(copies) * one); err != nil {
		return nil, err
	}
	// Any bytes will do for codes. Scales and dense values of zero keep the
	// products finite.
	if f.Coded() {
		if _, err := rand.Read(k.slab.Bytes()[:data]); err != nil {
			return nil, err
		}
	}
	for i := range copies {
		base := int64(i) * one
		m, err := b.Matrix(k.slab, backend.MatrixSpec{Rows: rows, Cols: cols, Format: f,
			Data: base, Scales: base + (data+255)&^255, Biases: base + (data+255)&^255 + (scales+255)&^255})
		if err != nil {
			k.slab.Free()
			return nil, err
		}
		k.weights = append(k.weights, backend.Linear{Parts: [backend.MaxParts]backend.Matrix{m}, N: 1})
	}
	most := slices.Max(kernelTokens[:])
	if k.x, err = b.Tensor(most, cols); err == nil {
		k.y, err = b.Tensor(most, rows)
	}
	if err == nil {
		b.Load(k.x, make([]float32, most*cols))
		err = b.Sync()
	}
	return k, err
}

// time returns the median time of one product.
func (k *kernel) time(tokens int) (int64, error) {
	const budget = 60 * time.Millisecond
	var times []int64
	start := time.Now()
	for len(times) < 3 || time.Since(start) < budget {
		// Several products per reading of the clock, so that its cost and a
		// lazy backend's synchronisation do not count.
		const batch = 4
		t := time.Now()
		for range batch {
			k.b.Linear(k.y.Head(tokens), k.x.Head(tokens), &k.weights[k.next%len(k.weights)])
			k.next++
		}
		if err := k.b.Sync(); err != nil {
			return 0, fmt.Errorf("matrix product of %d tokens: %w", tokens, err)
		}
		times = append(times, int64(time.Since(t))/batch)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// dispatchTime is the cost of an op that computes next to nothing.
func dispatchTime(b backend.Backend) (int64, error) {
	x, err := b.Tensor(1, 64)
	if err != nil {
		return 0, err
	}
	y, err := b.Tensor(1, 64)
	if err != nil {
		return 0, err
	}
	const n = 2000
	start := time.Now()
	for range n {
		b.Add(y, x)
	}
	err = b.Sync()
	return int64(time.Since(start)) / n, err
}

// Memory describes the computer's memory as a run may count on it.
// root is the file system's root.
func Memory(root fs.FS, dispatchNs int64) (doc.MemoryLimits, error) {
	env, err := mem.ReadEnvironment(root)
	if err != nil {
		return doc.MemoryLimits{}, err
	}
	room, _ := env.Room()
	return doc.MemoryLimits{
		TotalBytes: env.Total, AvailableBytes: room,
		ProcessBaseBytes: footprint.DefaultProcessBase, DispatchNs: dispatchNs,
	}, nil
}
