// Command sb-run runs a packed model under a hard memory cap.
package main

import "substrate/internal/cli"

func main() { cli.Main(tool()) }

func tool() cli.Tool {
	return cli.Tool{
		Name:    "sb-run",
		Summary: "runs a packed model, never above its memory cap",
		Verbs:   []cli.Verb{runVerb()},
	}
}
