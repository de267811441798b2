package main

import (
	"fmt"
	"strings"

	"substrate/internal/cli"
	"substrate/pkg/doc"
)

// summarize says on stderr what to expect of a plan.
func summarize(env *cli.Env, p *doc.Plan) {
	for line := range strings.Lines(expectations(p)) {
		env.Notef("%s", line)
	}
}

// expectations are the plan's predictions in a few lines.
func expectations(p *doc.Plan) string {
	var b strings.Builder
	q := &p.Predicted
	synthetic := ""
	if p.Synthetic {
		synthetic = " (synthetic: no quality is claimed)"
	}
	fmt.Fprintf(&b, "%s%s: KL %.3g nats per token (%.3g to %.3g; %s) at %.2f bits per weight\n",
		p.ModelID, synthetic, q.KL, q.KLLow, q.KLHigh, q.KLSource, q.BitsPerWeight)
	switch u := p.Uniform; {
	case u == nil:
		fmt.Fprintf(&b, "no single encoding of all ops fits these bytes\n")
	case u.KL > 0:
		fmt.Fprintf(&b, "uniform at equal bytes: KL %.3g (%s and the next), the plan has %.2f of it\n", u.KL, u.Encoding, q.KL/u.KL)
	default:
		fmt.Fprintf(&b, "uniform at equal bytes: KL 0 (%s)\n", u.Encoding)
	}
	fmt.Fprintf(&b, "%.3g tokens per second (%.3g to %.3g; machine: %s), %s read per token\n",
		q.TokensPerSec, q.TokensPerSecLow, q.TokensPerSecHigh, q.SpeedSource, size(q.ReadBytesPerToken))
	fmt.Fprintf(&b, "memory %s of %s: %s\n", size(p.PeakBytes), size(p.Budget.MaxRAMBytes), ledger(p.Memory))
	fmt.Fprintf(&b, "context %d tokens, %s KV cache; %d ops may be escalated at once\n", p.Budget.ContextTokens, p.KVCacheType, p.Escalation.MaxConcurrent)
	if c := p.Certificate; c != nil {
		fmt.Fprintf(&b, "no plan has less than %.3g of summed KL, this one has %.3g: gap %.2g %%\n", float64(c.LowerBound)*1e-12, float64(c.Value)*1e-12, 100*c.RelativeGap)
	}
	return b.String()
}

func ledger(lines []doc.LedgerLine) string {
	var parts []string
	for _, l := range lines {
		if l.Bytes > 0 {
			parts = append(parts, strings.ReplaceAll(l.Name, "_", " ")+" "+size(l.Bytes))
		}
	}
	return strings.Join(parts, ", ")
}

// size writes bytes for people: three digits and a unit.
func size(n int64) string {
	f, unit := float64(n), "bytes"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1000 {
			break
		}
		f, unit = f/1024, next
	}
	if unit == "bytes" {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.3g %s", f, unit)
}
