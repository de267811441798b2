package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/store"
	"substrate/pkg/store/mlxlm"
)

func exportVerb() cli.Verb {
	return cli.Verb{
		Name:    "export",
		Args:    "STORE",
		Summary: "writes a store's static level as a folder for another program",
		Long: "With --mlx the folder is one that mlx-lm loads: what each op computes with when nothing is escalated, in MLX's packed layout, " +
			"with config.json, a precision for each layer, and the tokenizer. No value changes, so the logits are the same. mlx-lm has one tensor " +
			"for all experts of a layer: codes of experts that the plan gave fewer bits than others are stored in as many bits, with the same values.",
		Example: "sb-pack export --mlx m.sb -o m-mlx",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			mlx := fs.Bool("mlx", false, "write a folder for mlx-lm")
			output := fs.StringP("output", "o", "", "make the folder `DIR`, which must not exist")
			plan := fs.String("plan", "", "export the `PLAN` of this name (default: the store's first)")
			return func(ctx context.Context, env *cli.Env, args []string) error {
				const usage = "sb-pack export --mlx STORE -o DIR"
				switch {
				case !*mlx:
					return cli.WithHint(cli.Usage("no form is given, and --mlx is the only one"), usage)
				case *output == "":
					return cli.WithHint(cli.Usage("-o DIR is missing"), usage)
				}
				return export(ctx, env, args[0], *output, *plan)
			}
		},
	}
}

func export(ctx context.Context, env *cli.Env, path, output, plan string) error {
	s, err := store.Open(path)
	if err != nil {
		return err
	}
	progress := env.Progress("exporting", "bytes", 0)
	defer progress.Close()
	summary, err := mlxlm.Export(ctx, s, output, mlxlm.Options{Plan: plan, Progress: progress.Add})
	progress.Close()
	if err != nil {
		return err
	}
	for _, module := range summary.Widened {
		env.Debugf("%s: some experts have wider codes than in the store", module)
	}
	if n := len(summary.Widened); n > 0 {
		env.Notef("experts of different precision share %s: the narrower codes were widened, without a change of values", plural(n, "tensor"))
	}
	if s.Manifest().Synthetic {
		env.Notef("synthetic: the plan or the model is made up, its quality means nothing")
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: %s, %s\n", output, plural(summary.Tensors, "tensor"), cli.Size(summary.Bytes))
	return err
}
