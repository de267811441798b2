// Command sb-calibrate measures a model, a plan or store, and a machine.
package main

import "substrate/internal/cli"

func main() {
	cli.Main(cli.Tool{
		Name:    "sb-calibrate",
		Summary: "measures a model (which op loses how much quality at which precision), a plan, and a machine",
		Verbs:   []cli.Verb{profileVerb(), measureVerb(), compareVerb(), verifyVerb(), machineVerb(), showVerb()},
	})
}
