//go:build captest && linux

package captest

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"substrate/pkg/doc"
	"substrate/pkg/trace"
)

// cases is the number of random runs, over all models.
var cases = flag.Int("cases", 16, "random combinations of model, cap, prompt, context, KV type and mode")

// checkpoint is a model of random weights, large enough that caps matter and
// small enough to be made in a moment.
type checkpoint struct {
	name    string
	flags   []string
	budgets []string // of its plans
}

var checkpoints = []checkpoint{
	{"dense", []string{"--layers", "6", "--hidden", "512", "--heads", "8", "--vocab", "8000"}, []string{"32M", "48M"}},
	{"moe", []string{"--family", "qwen3_moe", "--layers", "4", "--hidden", "384", "--heads", "6", "--experts", "32", "--top-k", "4", "--expert-size", "256", "--vocab", "4000"}, []string{"40M", "64M"}},
}

// tool runs one of the tools and returns what it prints.
func tool(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return out
}

// makeStore makes a checkpoint, and a store with a plan for each budget.
func makeStore(t *testing.T, c checkpoint) (store string) {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	tool(t, "sb-synth", append([]string{"checkpoint", "-q", "--seed", "1", "-o", path("model")}, c.flags...)...)
	tool(t, "sb-calibrate", "profile", "-q", path("model"), "-o", path("profile.json"))
	tool(t, "sb-synth", "table", "-q", path("profile.json"), "-o", path("table.json"))
	pack := []string{"-q", "--model", path("model"), "-o", path("model.sb")}
	for _, budget := range c.budgets {
		plan := path(budget + ".json")
		tool(t, "sb-plan", "-q", "--max-ram", budget, "--context", "256", path("table.json"), "-o", plan)
		pack = append(pack, plan)
	}
	tool(t, "sb-pack", pack...)
	return path("model.sb")
}

// variant is one way to run a model.
type variant struct {
	plan, mode, backend, kv string
	context                 int
	prompt                  string
}

func (v variant) String() string {
	return fmt.Sprintf("%s,%s,%s,%s,context=%d,prompt=%d", v.plan, v.mode, v.backend, v.kv, v.context, len(v.prompt))
}

func (v variant) args(store string, ram int64, trace string) []string {
	return []string{
		"sb-run", store, "-q", "-n", "6", "--max-ram", strconv.FormatInt(ram, 10), "--plan", v.plan, "--mode", v.mode,
		"--backend", v.backend, "--kv", v.kv, "--context", strconv.Itoa(v.context), "--trace", trace, "-p", v.prompt,
	}
}

// used is how much of the cap less the process base is memory that kernels
// read, and whether more would have helped: something was read after the first
// token.
func used(t *testing.T, file string) (share float64, wanting bool) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var kernels, base, ram int64
	for r := trace.NewReader(file, f); ; {
		line, _, err := r.Next()
		if err == io.EOF {
			return float64(kernels) / float64(ram-base), wanting
		}
		if err != nil {
			t.Fatal(err)
		}
		switch l := line.(type) {
		case *doc.RunStart:
			ram = l.CapBytes
			for _, line := range l.Ledger {
				switch line.Name {
				case doc.LedgerProcessBase, doc.LedgerTokenizer:
					base += line.Bytes
				case doc.LedgerStaging, doc.LedgerPool:
				default:
					kernels += line.Bytes
				}
			}
		case *doc.RunEnd:
			wanting = l.DecodeReadBytes > 0
		}
	}
}

// judge checks what holds for every run under a cap equal to its cgroup.
func judge(t *testing.T, g *cgroup, o *outcome, ram int64) {
	t.Helper()
	switch {
	case g.oomKills(t) > 0 || o.killed:
		t.Errorf("killed under a cap of %d: %s", ram, o.stderr)
	case o.code == 0:
		if o.peak > ram || o.anonymous > ram {
			t.Errorf("VmHWM %d, RssAnon %d, above the cap of %d", o.peak, o.anonymous, ram)
		}
	case o.code != 1:
		t.Errorf("exit code %d under a cap of %d: %s", o.code, ram, o.stderr)
	case o.stdout != "" || o.smallest() == 0:
		t.Errorf("refused without the smallest budget, or with output %q: %s", o.stdout, o.stderr)
	}
}

// For models, modes, backends and prompts: a run under a cap is done below it,
// or refused with the smallest budget S; S suffices and is used; 0.98 S is
// refused; and where more memory would help, what there is is used.
//
//	go test -tags captest ./internal/captest -run TestCap -args -cases 100
func TestCap(t *testing.T) {
	const words = "a memory cap is a promise that somebody keeps "
	for m, c := range checkpoints {
		store := makeStore(t, c)
		file := filepath.Join(t.TempDir(), "t.jsonl")
		rng := rand.New(rand.NewPCG(1, uint64(2+m)))
		pick := func(from ...string) string { return from[rng.IntN(len(from))] }
		for i := range *cases / len(checkpoints) {
			v := variant{
				plan: pick(c.budgets...), mode: pick("scheduled", "exact", "fastest"), backend: pick("cpu", "cpu", "cpu", "cpu", "ref"), kv: pick("f16", "f32"),
				context: 160 + rng.IntN(97), prompt: strings.Repeat(words, 1+rng.IntN(3))[:1+rng.IntN(len(words))],
			}
			if v.backend == "ref" { // slow
				v.prompt = "Hello"
			}
			t.Run(fmt.Sprintf("%s/%d:%s", c.name, i, v), func(t *testing.T) {
				inGroup := func(ram int64) *outcome {
					g := newCgroup(t, fmt.Sprintf("sb-captest-%d", os.Getpid()), ram)
					defer g.remove(t)
					o := runIn(t, g, v.args(store, ram, file)...)
					judge(t, g, o, ram)
					if o.code == 0 {
						if share, wanting := used(t, file); wanting && share < 0.6 {
							t.Errorf("under a cap of %d kernels read %.2f of what the process base leaves, and more would have helped", ram, share)
						}
					}
					return o
				}
				// A cap that nothing can run under tells S.
				s := inGroup(16 << 20).smallest()
				if s == 0 {
					t.Fatal("16 MiB were not refused")
				}
				least := inGroup(s)
				if least.code != 0 {
					t.Errorf("S = %d was refused: %s", s, least.stderr)
				} else if v.backend == "cpu" && float64(least.peak) < 0.9*float64(s) {
					// The ledger has the scratch of cpu; ref takes less.
					t.Errorf("S = %d, but VmHWM is only %d", s, least.peak)
				}
				if below := inGroup(s * 98 / 100); below.code != 1 {
					t.Errorf("0.98 S was not refused")
				}
				// Another budget somewhere between S and plenty gives the same
				// answer, sooner.
				more := inGroup(s + rng.Int64N(s))
				if v.mode != "fastest" && more.code == 0 && least.code == 0 && more.stdout != least.stdout {
					t.Errorf("%q under one cap, %q under another", least.stdout, more.stdout)
				}
				t.Logf("S %.2f MiB, VmHWM %.3f of it", float64(s)/(1<<20), float64(least.peak)/float64(s))
			})
		}
	}
}

// The read lines of a trace add up to what the kernel says the process read
// from the first token to the end, but for what was read ahead before the first
// token was written, at most the ring, and for samples of its own memory.
func TestReadsAddUp(t *testing.T) {
	for _, c := range checkpoints {
		t.Run(c.name, func(t *testing.T) {
			store := makeStore(t, c)
			file := filepath.Join(t.TempDir(), "t.jsonl")
			const ram = 1 << 30
			g := newCgroup(t, fmt.Sprintf("sb-captest-%d", os.Getpid()), ram)
			defer g.remove(t)
			plan := c.budgets[0]
			o := runIn(t, g, "sb-run", store, "-q", "-n", "60", "--plan", plan, "--mode", "exact", "--max-ram", strings.ToLower(plan), "--trace", file, "-p", "Hello")
			if o.code != 0 {
				t.Fatal(o.stderr)
			}
			reads, ahead := readsFromToken(t, file)
			if reads[1] == 0 {
				t.Fatal("nothing was read after the first token: the test tests nothing")
			}
			// A token may be part of a character, and the first output come
			// later.
			const samples = 64 << 10 // of /proc/self/status
			got, from := o.lastRead-o.firstRead, 1
			for from < 4 && got < reads[from]-ahead {
				from++
			}
			if got < reads[from]-ahead || got > reads[from]+samples {
				t.Errorf("the kernel says %d bytes after the first output, the trace %d, of which %d may have been ahead", got, reads[1], ahead)
			}
			t.Logf("read from token %d on: kernel %d, trace %d, at most %d ahead", from, got, reads[from], ahead)
		})
	}
}

// readsFromToken adds up a trace's reads from each token on; ahead is the most
// that can be read ahead.
func readsFromToken(t *testing.T, file string) (bytes [5]int64, ahead int64) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := trace.NewReader(file, f); ; {
		line, _, err := r.Next()
		if err == io.EOF {
			return bytes, ahead
		}
		if err != nil {
			t.Fatal(err)
		}
		switch l := line.(type) {
		case *doc.RunStart:
			for _, line := range l.Ledger {
				if line.Name == doc.LedgerRing {
					ahead = line.Bytes
				}
			}
		case *doc.ReadLine:
			for from := range bytes {
				if l.Token >= int64(from) {
					bytes[from] += l.Bytes
				}
			}
		}
	}
}
