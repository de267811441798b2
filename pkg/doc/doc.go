// Package doc holds the documents that the seven tools exchange as JSON and
// JSONL: profile, table, machine, plan, manifest, packed line and trace lines.
//
// Every document names its format and version ("sb.plan/1"). Bytes and
// nanoseconds are integers, KL divergences are float64 nats per token, hashes
// are lower-case hex. No integer exceeds 2^53, so that jq reads each exactly.
// Documents carry no times and no host names: the same input gives the same
// bytes. Unknown members are errors except under "annotations", which every
// tool carries through.
//
// [Read] and [Write] are the only ways in and out: both validate. How JSON is
// read and written is the business of internal/jsonio.
package doc

import (
	"strings"

	"substrate/internal/jsonio"
)

// Formats of the documents, each with its version.
const (
	FormatProfile     = "sb.profile/1"
	FormatTable       = "sb.table/1"
	FormatMachine     = "sb.machine/1"
	FormatPlan        = "sb.plan/1"
	FormatPolicy      = "sb.policy/1"
	FormatFeasibility = "sb.feasibility/1"
	FormatCurve       = "sb.curve/1" // a line of sb-plan curve
	FormatStore       = "sb.store/1"
	FormatPacked      = "sb.packed/1"
	FormatVerify      = "sb.verify/1"
	FormatTrace       = "sb.trace/1"
	FormatVerifier    = "sb.verifier/1"
	FormatRequest     = "sb.request/1"
	FormatAnswer      = "sb.answer/1"
)

// MaxInteger is the largest integer a document may hold: 2^53.
const MaxInteger = 1 << 53

// Annotations is free text for people and scripts; every tool that derives a
// document from another carries it through unchanged.
type Annotations map[string]string

// CheckFormat returns an error unless got is the wanted format and version.
func CheckFormat(got, want string) error {
	if got == want {
		return nil
	}
	name, _, _ := strings.Cut(want, "/")
	if gotName, version, ok := strings.Cut(got, "/"); ok && gotName == name {
		return jsonio.Errorf("", "/format", "version %q of %s is not known here; this tool reads %q", version, name, want)
	}
	return jsonio.Errorf("", "/format", "got %q, want %q", got, want)
}
