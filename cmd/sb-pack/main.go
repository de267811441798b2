// Command sb-pack writes the packed store of a model: for every op and expert
// the records that the tiers of a plan need.
package main

import "substrate/internal/cli"

func main() { cli.Main(tool()) }

func tool() cli.Tool {
	return cli.Tool{
		Name:    "sb-pack",
		Summary: "writes the packed store that a plan needs",
		Verbs:   []cli.Verb{packVerb(), verifyVerb(), listVerb(), diffVerb(), exportVerb()},
	}
}
