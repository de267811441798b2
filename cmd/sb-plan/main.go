// Command sb-plan decides, offline, which op of a model gets which precision
// and where its records live, within a budget.
package main

import "substrate/internal/cli"

func main() {
	cli.Main(cli.Tool{
		Name:    "sb-plan",
		Summary: "decides offline which op gets which precision and residency within a budget",
		Verbs:   []cli.Verb{planVerb(), showVerb(), checkVerb(), cutVerb(), curveVerb()},
	})
}
