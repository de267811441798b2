package main

import (
	"context"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/synth"
)

func profileVerb() cli.Verb {
	return cli.Verb{
		Name:    "profile",
		Summary: "makes the profile of a model that does not exist",
		Example: "sb-synth profile --layers 48 --experts 128 | sb-feasible --max-ram 8G",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			shape := shapeFlags(fs)
			return func(_ context.Context, env *cli.Env, _ []string) error {
				p, err := synth.Profile(*shape)
				if err != nil {
					return err
				}
				return write(env, *output, p)
			}
		},
	}
}

func tableVerb() cli.Verb {
	return cli.Verb{
		Name:    "table",
		Args:    "[PROFILE]",
		Summary: "makes up what a calibration would measure, of a profile or of a shape given by flags",
		Long: "KL falls by 6 dB per bit, differs between layers and ops by a random factor and between experts by a " +
			"Zipf-like gate mass; the total is that of no real model. Without PROFILE, the model has the shape that the flags say.",
		Example: "sb-synth table --layers 27 --experts 64 --top-k 8 | sb-plan --max-ram 36G --quality 0.05 --objective cap --tps 4 | sb-plan show -",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			shape := shapeFlags(fs)
			losses := new(synth.Losses)
			fs.IntSliceVar(&losses.SensitiveLayers, "sensitive-layers", nil, "`LAYERS` that lose four times as much, as 0,1,25,26")
			fs.Float64Var(&losses.Spread, "spread", 0, "deviation of the logarithm of losses around their mean (default 0.5)")
			fs.Float64Var(&losses.Skew, "skew", 0, "exponent of the gate masses of a layer's experts; negative: all alike (default 0.7)")
			seed := cli.SeedFlag(fs)
			return func(_ context.Context, env *cli.Env, args []string) error {
				losses.Seed = *seed
				p, err := profileOf(env, fs, shape, args)
				if err != nil {
					return err
				}
				t, err := synth.Table(p, *losses)
				if err != nil {
					return err
				}
				return write(env, *output, t)
			}
		},
	}
}

// profileOf reads the profile that the argument names or makes one.
func profileOf(env *cli.Env, fs *pflag.FlagSet, shape *synth.Shape, args []string) (*doc.Profile, error) {
	if len(args) == 0 {
		return synth.Profile(*shape)
	}
	name, b, err := env.ReadDocument(args[0])
	if err != nil {
		return nil, err
	}
	return doc.Read[doc.Profile](name, b)
}

func shapeFlags(fs *pflag.FlagSet) *synth.Shape {
	s := new(synth.Shape)
	fs.StringVar(&s.ModelID, "id", "", "`NAME` of the model")
	fs.IntVar(&s.Layers, "layers", 0, "`N` blocks (default 27)")
	fs.IntVar(&s.Hidden, "hidden", 0, "`N` values of a hidden state (default 2048)")
	fs.IntVar(&s.Heads, "heads", 0, "`N` attention heads (default 16)")
	fs.IntVar(&s.KVHeads, "kv-heads", 0, "`N` heads of keys and values (default: as many)")
	fs.IntVar(&s.HeadDim, "head-dim", 0, "`N` values of a head (default: hidden / heads)")
	fs.IntVar(&s.Vocab, "vocab", 0, "`N` tokens in the vocabulary (default 32000)")
	fs.IntVar(&s.Context, "context", 0, "`N` tokens at most (default 32768)")
	fs.IntVar(&s.Experts, "experts", 0, "`N` experts per block; 0 for a dense model")
	fs.IntVar(&s.TopK, "top-k", 0, "`N` experts for each token (default 8)")
	fs.IntVar(&s.ExpertSize, "expert-size", 0, "`N` hidden values of an expert (default 1408)")
	fs.IntVar(&s.Shared, "shared", 0, "`N` shared experts per block")
	fs.IntVar(&s.Intermediate, "intermediate", 0, "`N` hidden values of a dense block (default: 4 * hidden)")
	fs.BoolVar(&s.Tied, "tied", false, "the head shares the embedding's matrix")
	return s
}

// write validates a document and writes it.
func write(env *cli.Env, output string, d doc.Document) error {
	b, err := doc.Write(d)
	if err != nil {
		return err
	}
	return env.WriteDocument(output, b)
}
