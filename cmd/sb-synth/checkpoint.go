package main

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/internal/vfs"
	"substrate/pkg/synth"
)

func checkpointVerb() cli.Verb {
	return cli.Verb{
		Name:    "checkpoint",
		Summary: "writes a Hugging Face folder of random weights",
		Long: "The folder has config.json, safetensors files of at most 2 GiB and a tokenizer of single bytes. Attention is peaked and " +
			"a few experts of each layer serve most tokens, as in trained models; the text that such a model writes is noise. " +
			"The same flags give the same bytes.",
		Example: "sb-synth checkpoint --family qwen3_moe --layers 16 --hidden 2048 --experts 64 --top-k 8 --expert-size 768 -o moe",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			c := checkpoint{shape: shapeFlags(fs), seed: cli.SeedFlag(fs)}
			fs.StringVar(&c.family, "family", "", "`FAMILY` of the model: llama, or qwen3_moe with experts (default: by --experts)")
			weightFlags(fs, c.shape, &c.weights)
			fs.StringVarP(&c.dir, "output", "o", "", "write the folder `DIR`, which must not exist")
			return c.run
		},
	}
}

// defaultExperts is the number of experts per layer of a model that is asked
// for by its family alone.
// weightFlags define how weights are made up.
func weightFlags(fs *pflag.FlagSet, s *synth.Shape, w *synth.Weights) {
	fs.StringVar(&s.Weights, "weights", "", "`TYPE` of the weights: bf16, f16, f32 (default bf16)")
	fs.Float64Var(&w.Peak, "peak", 0, "standard deviation of the attention's logits (default 3)")
	fs.Float64Var(&w.Skew, "skew", 0, "standard deviation of the experts' mean router logits; negative for none (default 1)")
}

const defaultExperts = 64

type checkpoint struct {
	shape   *synth.Shape
	seed    *uint64
	family  string
	weights synth.Weights
	dir     string
}

func (c *checkpoint) run(ctx context.Context, env *cli.Env, _ []string) error {
	switch c.family {
	case "":
	case "llama":
		if c.shape.Experts > 0 {
			return cli.Usage("--family llama has no experts: leave --experts out, or take qwen3_moe")
		}
	case "qwen3_moe":
		if c.shape.Experts == 0 {
			c.shape.Experts = defaultExperts
		}
	default:
		return cli.Usage("--family %q: want llama or qwen3_moe", c.family)
	}
	if c.dir == "" {
		return cli.Usage("-o DIR is missing")
	}
	size, err := synth.CheckpointBytes(*c.shape)
	if err != nil {
		return err
	}
	parent := filepath.Dir(filepath.Clean(c.dir))
	if free, err := (vfs.OS{}).Free(parent); err == nil && free < size {
		return cli.No("%s has %s free, the checkpoint needs %s", parent, cli.Size(free), cli.Size(size))
	}
	progress := env.Progress("writing "+c.dir, "bytes", size)
	defer progress.Close()
	c.weights.Seed, c.weights.Progress = *c.seed, progress.Add
	err = synth.Checkpoint(ctx, c.dir, *c.shape, c.weights)
	if errors.Is(err, fs.ErrExist) {
		return cli.Usage("%v: choose another name, or remove it", err)
	}
	if err == nil {
		progress.Close()
		env.Notef("synthetic: %s has random weights, its quality means nothing", c.dir)
	}
	return err
}
