package main

import (
	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/run"
)

// samplingFlags say how tokens are picked, and what ends an answer.
type samplingFlags struct {
	run.Sampling
	seed  *uint64
	stops []string
}

func (f *samplingFlags) define(fs *pflag.FlagSet) {
	fs.Float64Var(&f.Temperature, "temperature", 0, "sample at temperature `T`; 0 takes the likeliest token")
	fs.IntVar(&f.TopK, "top-k", 0, "sample among the `K` likeliest tokens; 0: all")
	fs.Float64Var(&f.TopP, "top-p", 1, "sample among the likeliest tokens that have probability `P` together")
	fs.Float64Var(&f.MinP, "min-p", 0, "sample among tokens of at least `P` times the likeliest one's probability")
	fs.Float64Var(&f.RepetitionPenalty, "repetition-penalty", 1, "divide the positive logits of tokens that were there before by `R`, multiply the negative ones")
	f.seed = cli.SeedFlag(fs)
	fs.StringArrayVar(&f.stops, "stop", nil, "end the answer before `TEXT`; may be given several times")
}

func (f *samplingFlags) check() error {
	if err := f.Check(); err != nil {
		return cli.Usage("--%w", err)
	}
	for _, s := range f.stops {
		if s == "" {
			return cli.Usage("--stop: the text is empty")
		}
	}
	return nil
}
