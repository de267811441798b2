package main

import (
	"context"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/pkg/doc"
	"substrate/pkg/model"
)

func profileVerb() cli.Verb {
	return cli.Verb{
		Name:    "profile",
		Args:    "MODEL",
		Summary: "describes a model from its headers alone",
		Long:    "MODEL is a folder with config.json and safetensors files, or a GGUF file. No weights are read.",
		Example: "sb-calibrate profile models/tiny | jq .parameters",
		Setup: func(fs *pflag.FlagSet) cli.RunFunc {
			output := cli.OutputFlag(fs)
			configOnly := fs.Bool("config-only", false, "read config.json alone: for a model that is not downloaded yet")
			return func(ctx context.Context, env *cli.Env, args []string) error {
				p, err := readProfile(args[0], *configOnly)
				if err != nil {
					return err
				}
				b, err := doc.Write(p)
				if err != nil {
					return err
				}
				return env.WriteDocument(*output, b)
			}
		},
	}
}

func readProfile(path string, configOnly bool) (*doc.Profile, error) {
	if configOnly {
		return model.ProfileFromConfig(path)
	}
	m, err := model.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.Profile(), nil
}
