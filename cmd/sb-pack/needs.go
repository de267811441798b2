package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"substrate/internal/cli"
	"substrate/internal/mem"
	"substrate/internal/vfs"
	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/model"
	"substrate/pkg/quant"
	"substrate/pkg/store"
)

// programBytes is what sb-pack holds beside the records: code, runtime,
// profile and plans, measured on models of 12,000 records.
const programBytes = 96 << 20

// needs is what packing takes.
type needs struct {
	build   *store.Build
	output  string
	threads int
	disk    int64 // bytes that are still to be written
	reused  int64 // bytes that an older store may have
	free    int64 // where the store goes; -1 if nobody knows
	memory  int64
}

func takes(b *store.Build, output string, threads int, old *store.Store) *needs {
	t := &needs{build: b, output: output, threads: threads, disk: b.Bytes(), free: -1, memory: b.MemoryBytes(threads) + programBytes}
	if old != nil {
		t.reused = b.Reusable(old)
	}
	t.disk = max(0, t.disk-t.reused-storeBytes(output)-folderBytes(output+".partial"))
	folder := output
	for { // the deepest folder that is there
		free, err := vfs.OS{}.Free(folder)
		if err == nil {
			t.free = free
			return t
		}
		parent := filepath.Dir(folder)
		if !errors.Is(err, fs.ErrNotExist) || parent == folder {
			return t
		}
		folder = parent
	}
}

// storeBytes is the size of a store, 0 if the folder is none: it may be any, and as large as "/".
func storeBytes(path string) int64 {
	if _, err := os.Stat(filepath.Join(path, "manifest.json")); err != nil {
		return 0
	}
	return folderBytes(path)
}

// folderBytes is the size of the files below a folder, 0 if there is none.
func folderBytes(path string) int64 {
	var sum int64
	filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}

// checkDisk refuses to begin what cannot end.
func (t *needs) checkDisk() error {
	if t.free >= 0 && t.disk > t.free {
		return cli.No("%s: %s are to be written, %s are free", t.output, cli.Size(t.disk), cli.Size(t.free))
	}
	return nil
}

// workRAM is the memory that --work-ram allows.
func workRAM(flag *cli.RAMSize) (int64, error) {
	e, err := mem.ReadEnvironment(os.DirFS("/"))
	if err != nil {
		return 0, err
	}
	return flag.Bytes(e.Total, e.Auto(0)), nil
}

// report prints what packing would take, and what a run of the first plan
// will.
func (t *needs) report(ctx context.Context, env *cli.Env, m *model.Model, stats *quant.Stats, plans []store.NamedPlan) error {
	duration, err := t.time(ctx, m, stats, plans)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "store\t%s in %s\n", plural(t.build.Records(), "record"), t.output)
	fmt.Fprintf(w, "disk\t%s\n", cli.Size(t.build.Bytes()))
	fmt.Fprintf(w, "to write\t%s\n", cli.Size(t.disk))
	if t.free >= 0 {
		fmt.Fprintf(w, "free\t%s\n", cli.Size(t.free))
	}
	if t.reused > 0 {
		fmt.Fprintf(w, "re-used\tup to %s\n", cli.Size(t.reused))
	}
	fmt.Fprintf(w, "memory\t%s\n", cli.Size(t.memory))
	fmt.Fprintf(w, "time\tabout %s on %s\n", duration.Round(time.Second), plural(t.threads, "thread"))
	for _, p := range plans {
		fmt.Fprintf(w, "plan\t%s: a run takes %s\n", p.Name, cli.Size(p.Plan.PeakBytes))
		for _, l := range p.Plan.Memory {
			fmt.Fprintf(w, "\t%s\t%s\n", l.Name, cli.Size(l.Bytes))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return t.checkDisk()
}

// sampleTime is how long fitting is tried to say how long all will take.
const sampleTime = time.Second

// time estimates the duration of packing: records of the plans are fitted,
// spread over the model, until the time for that is over.
func (t *needs) time(ctx context.Context, m *model.Model, stats *quant.Stats, plans []store.NamedPlan) (time.Duration, error) {
	p := plans[0].Plan
	ops := map[string]*doc.Op{}
	for i := range m.Profile().Ops {
		ops[m.Profile().Ops[i].ID] = &m.Profile().Ops[i]
	}
	encodings := map[string]*doc.Encoding{}
	for i := range p.Encodings {
		encodings[p.Encodings[i].ID] = &p.Encodings[i]
	}
	encoder := quant.Encoder{Source: m, Stats: stats, Threads: t.threads}
	var spent time.Duration
	var bytes int64
	for n := range p.Catalog {
		r := &p.Catalog[(n*7919+len(p.Catalog)/2)%len(p.Catalog)] // a prime: no two alike next to each other
		if r.Below != "" || r.RAMBytes > 64<<20 {
			continue // residuals take as long; large ones longer than an estimate may
		}
		layout, err := footprint.Layout(ops[r.Op], encodings[r.Encoding])
		if err != nil {
			return 0, err
		}
		begin := time.Now()
		if err := encoder.Encode(ctx, make([]byte, layout.Bytes), ops[r.Op], encodings[r.Encoding], &layout); err != nil {
			return 0, err
		}
		spent += time.Since(begin)
		bytes += layout.Bytes
		if spent > sampleTime {
			break
		}
	}
	if bytes == 0 {
		return 0, nil
	}
	return time.Duration(float64(spent) * float64(t.build.Bytes()-t.reused) / float64(bytes)), nil
}
