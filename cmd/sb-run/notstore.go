package main

import (
	"os"
	"path/filepath"
	"strings"

	"substrate/internal/cli"
)

// notStore says what to do with what is no store but a model, or a plan.
func notStore(arg string, err error) error {
	_, noFolder := os.Stat(filepath.Join(arg, "config.json"))
	switch {
	case err == nil:
		return nil
	case noFolder == nil, strings.HasSuffix(arg, ".gguf"):
		return cli.WithHint(err, "a model is packed first: sb-calibrate measure --model %s | sb-plan --max-ram 8G | sb-pack --model %s -o m.sb", arg, arg)
	case strings.HasSuffix(arg, ".json"):
		return cli.WithHint(err, "a plan is packed first: sb-pack --model MODEL -o m.sb %s", arg)
	}
	return err
}
