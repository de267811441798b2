// Command sb-feasible answers whether a model can run within a budget.
package main

import "substrate/internal/cli"

func main() {
	cli.Main(cli.Tool{
		Name:    "sb-feasible",
		Summary: "answers whether a model can run within a budget, and which smallest change would make it",
		Verbs:   []cli.Verb{verb()},
	})
}
