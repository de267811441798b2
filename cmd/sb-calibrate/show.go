package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/doc"
)

func showVerb() cli.Verb {
	return cli.Verb{
		Name:    "show",
		Args:    "[VERIFY]",
		Summary: "prints what verify measured, to read",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			return func(ctx context.Context, env *cli.Env, args []string) error {
				name, b, err := env.ReadDocument(cli.Arg(args, 0))
				if err != nil {
					return err
				}
				v, err := doc.Read[doc.Verify](name, b)
				if err != nil {
					return err
				}
				return env.WriteDocument("", []byte(showVerify(v)))
			}
		},
	}
}

func showVerify(v *doc.Verify) string {
	var b strings.Builder
	q := &v.Quality
	if v.Synthetic {
		fmt.Fprintf(&b, "synthetic: %s has random weights, no quality is claimed\n", v.ModelID)
	}
	how := "at its " + v.Tier + " tiers"
	if v.Run != nil {
		how = "run in mode " + v.Mode
	}
	fmt.Fprintf(&b, "%s: %s %s against %s\n", v.ModelID, v.Target, how, v.Reference)
	fmt.Fprintf(&b, "text       %d tokens of %d documents (%s, part %s), backend %s, activations %s, KV cache %s\n",
		v.Data.Tokens, v.Documents, v.Data.Name, v.Data.Part, v.Backend, v.Activations, v.KVCacheType)
	fmt.Fprintf(&b, "KL         %.4f +- %.4f nats per token, median %.4f, 99.9th percentile %.3f\n", q.KL, q.KLError, q.KLMedian, q.KL999)
	if p := v.Predicted; p != nil {
		word := "inside"
		if !v.InBand {
			word = "OUTSIDE"
		}
		fmt.Fprintf(&b, "predicted  %.4f, band %.4f to %.4f (%s): measured is %s\n", p.KL, p.KLLow, p.KLHigh, p.KLSource, word)
	}
	fmt.Fprintf(&b, "perplexity %.3f, %+.3f beside the reference; same first choice %.1f %%, confident flips %.2f %%\n",
		q.Perplexity, q.PerplexityDelta, 100*q.SameTop, 100*q.ConfidentFlips)
	fmt.Fprintf(&b, "size       %d bytes, %.2f bits per weight\n", q.Bytes, q.BitsPerWeight)
	if r := v.Run; r != nil {
		fmt.Fprintf(&b, "run        %d bytes resident, %d read per token, %.2f bits served per weight\n", r.ResidentBytes, r.ReadBytesPerToken, r.BitsServed)
	}
	for _, c := range v.Controls {
		fmt.Fprintf(&b, "uniform    %-18s KL %.4f +- %.4f at %d bytes, %.2f bits per weight\n",
			c.Encoding, c.Quality.KL, c.Quality.KLError, c.Quality.Bytes, c.Quality.BitsPerWeight)
	}
	if v.UniformKL != nil {
		fmt.Fprintf(&b, "uniform    at equal bytes: KL %.4f, so the plan has %.2f of it\n", *v.UniformKL, q.KL / *v.UniformKL)
	}
	return b.String()
}
