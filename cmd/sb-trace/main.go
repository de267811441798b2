// Command sb-trace reads the traces of sb-run.
package main

import "substrate/internal/cli"

func main() { cli.Main(tool()) }

func tool() cli.Tool {
	return cli.Tool{
		Name:    "sb-trace",
		Summary: "reads the traces of runs",
		Verbs:   []cli.Verb{summaryVerb(), validateVerb()},
	}
}
