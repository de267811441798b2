package run

import (
	"math"
	"runtime"
	"testing"

	"substrate/pkg/backend/cpu"
)

// The token loop allocates nothing, wherever records live. The runtime
// allocates now and then for goroutines that wait, on a busy machine more
// often; the loop's own allocations would show in every stretch of tokens, so
// the calmest one counts.
func TestNoAllocationPerToken(t *testing.T) {
	const from, stretch, stretches = 10, 100, 3
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
			tokens, before, least := 0, uint64(0), uint64(math.MaxUint64)
			var m runtime.MemStats
			if _, err := r.Generate(t.Context(), []int32{1, 2, 3}, from+stretch*stretches, func(int32) error {
				if tokens++; tokens >= from && (tokens-from)%stretch == 0 {
					runtime.ReadMemStats(&m)
					if tokens > from {
						least = min(least, m.Mallocs-before)
					}
					before = m.Mallocs
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if tokens != from+stretch*stretches {
				t.Fatalf("%s, %s: %d tokens", name, how, tokens)
			}
			if least > 10 {
				t.Errorf("%s, %s: %d allocations in %d tokens", name, how, least, stretch)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
