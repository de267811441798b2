// Command sb-synth makes profiles, tables, checkpoints and stores out of
// nothing, for tests, planning and benchmarks.
package main

import "substrate/internal/cli"

func main() {
	cli.Main(cli.Tool{
		Name:    "sb-synth",
		Summary: "makes profiles, tables, checkpoints and stores out of nothing",
		Verbs:   []cli.Verb{profileVerb(), tableVerb(), checkpointVerb(), storeVerb()},
	})
}
