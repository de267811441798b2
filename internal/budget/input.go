package budget

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"substrate/internal/cli"
	"substrate/internal/jsonio"
	"substrate/pkg/doc"
	"substrate/pkg/model"
	"substrate/pkg/plan"
)

// Input is all that a plan is made of.
type Input struct {
	Name    string // of the model's document, for messages
	Policy  string // of the policy's, "" without
	Kind    string // a doc.Input…: what the document is
	Table   *doc.Table
	Machine *doc.Machine // nil: not measured
	Budget  doc.Budget
	Options plan.Options
}

// Open reads what the flags and the argument name: a table, or a profile or
// the config.json of a model, whose losses are then priors.
func (f *Flags) Open(env *cli.Env, arg string) (*Input, error) {
	in := &Input{Options: f.options, Policy: *f.policy}
	var err error
	if in.Machine, err = f.readMachine(env); err != nil {
		return nil, err
	}
	if in.Options.Policy, err = f.readPolicy(env); err != nil {
		return nil, err
	}
	if in.Budget, err = f.Budget(in.Machine); err != nil {
		return nil, err
	}
	return in, in.read(env, arg)
}

func (f *Flags) readMachine(env *cli.Env) (*doc.Machine, error) {
	if *f.machine == "" {
		return nil, nil
	}
	name, b, err := env.ReadDocument(*f.machine)
	if err != nil {
		return nil, err
	}
	return doc.Read[doc.Machine](name, b)
}

func (f *Flags) readPolicy(env *cli.Env) (*doc.Policy, error) {
	if *f.policy == "" {
		return nil, nil
	}
	name, b, err := env.ReadDocument(*f.policy)
	if err != nil {
		return nil, err
	}
	return doc.Read[doc.Policy](name, b)
}

// read reads the document of the model.
func (in *Input) read(env *cli.Env, arg string) error {
	name, text, err := env.ReadDocument(arg)
	if err != nil {
		return err
	}
	in.Name = name
	format, err := doc.Format(name, text)
	if err != nil {
		return err
	}
	var p *doc.Profile
	switch {
	case format == doc.FormatProfile:
		in.Kind = doc.InputProfile
		p, err = doc.Read[doc.Profile](name, text)
	case format == "" && isConfig(name, text):
		in.Kind = doc.InputConfig
		if arg == "" || arg == "-" {
			return cli.WithHint(cli.BadDocument("%s: a config.json is read by its name", name), "name the file, or pipe it through sb-calibrate profile --config-only")
		}
		p, err = model.ProfileFromConfig(arg)
	default:
		in.Kind = doc.InputTable
		sum := sha256.Sum256(text)
		in.Options.TableSHA256 = hex.EncodeToString(sum[:])
		in.Table, err = doc.Read[doc.Table](name, text)
		return err
	}
	if err == nil {
		in.Table, err = plan.PriorTable(p)
	}
	return in.explain(err)
}

// isConfig reports whether a document is the config.json of a model.
func isConfig(name string, text []byte) bool {
	var head struct {
		ModelType string `json:"model_type"`
	}
	return jsonio.UnmarshalLoose(name, text, &head) == nil && head.ModelType != ""
}

// Explain turns an error of the planner into one that names the document that
// is wrong, and the flag that helps.
func (in *Input) Explain(err error) error {
	return Explain(in.explain(err))
}

func (in *Input) explain(err error) error {
	if bad := (*plan.TableError)(nil); errors.As(err, &bad) {
		return cli.BadDocument("%s: %w", in.Name, err)
	}
	if bad := (*plan.PolicyError)(nil); errors.As(err, &bad) && in.Policy != "" {
		return cli.BadDocument("%s: %s: %s", in.Policy, bad.Place, bad.Reason)
	}
	return err
}
