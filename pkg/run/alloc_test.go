package run

import (
	"runtime"
	"testing"

	"substrate/pkg/backend/cpu"
)

// The token loop allocates nothing, wherever records live.
func TestNoAllocationPerToken(t *testing.T) {
	const from, to = 20, 120
	for _, name := range []string{"llama-gqa", "qwen3moe"} {
		for how, spec := range residencies() {
			b, err := cpu.Open(cpu.Options{Threads: 2})
			if err != nil {
				t.Skip(err)
			}
			spec.ladder = mixed
			r, err := Open(t.Context(), pack(t, name, false, spec), "", b, Options{asPlanned: true})
			if err != nil {
				t.Fatal(err)
			}
			r.program.arch.EOS = nil
			tokens := 0
			var before, after runtime.MemStats
			if _, err := r.Generate(t.Context(), []int32{1, 2, 3}, to, func(int32) error {
				switch tokens++; tokens {
				case from:
					runtime.ReadMemStats(&before)
				case to:
					runtime.ReadMemStats(&after)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			// An allocation of the loop's would come once a token or more often.
			// The runtime's own, of goroutines that wait, come now and then, on
			// a busy machine more often.
			if n := after.Mallocs - before.Mallocs; n >= (to-from)/2 {
				t.Errorf("%s, %s: %d allocations in %d tokens", name, how, n, to-from)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
