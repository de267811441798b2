package doc

import "unicode/utf8"

// Request is one line of the input of sb-run --batch.
type Request struct {
	Format string `json:"format"`
	ID     string `json:"id"` // any text; the answer carries it
	Prompt string `json:"prompt"`
	// Raw takes the texts of special tokens in the prompt for those tokens,
	// and adds none.
	Raw bool `json:"raw,omitzero"`
	// MaxTokens, Temperature and Seed replace the flags' values.
	MaxTokens   *int     `json:"max_tokens,omitempty"` // 0: until the context is full
	Temperature *float64 `json:"temperature,omitempty"`
	Seed        *int64   `json:"seed,omitempty"`
}

// Answer is what sb-run --json prints, and --batch for every request.
type Answer struct {
	Format string `json:"format"`
	ID     string `json:"id,omitempty"` // of the request
	// Error says why there is no answer, or not all of one: ExitCode is that
	// of its class.
	Error             string  `json:"error,omitempty"`
	ExitCode          int     `json:"exit_code,omitzero"`
	Text              string  `json:"text"`
	Reason            string  `json:"reason"` // as in RunEnd
	PromptTokens      int     `json:"prompt_tokens"`
	ReusedTokens      int     `json:"reused_tokens"` // of the prompt: their keys and values were there already
	Tokens            int64   `json:"tokens"`
	PrefillNs         int64   `json:"prefill_ns"`
	DecodeNs          int64   `json:"decode_ns"`
	TokensPerSec      float64 `json:"tokens_per_second"`
	PeakBytes         int64   `json:"peak_bytes"`
	CapBytes          int64   `json:"cap_bytes"`
	ReadBytes         int64   `json:"read_bytes"`
	DecodeReadBytes   int64   `json:"decode_read_bytes"`
	NeededBytesPerTok int64   `json:"needed_bytes_per_token"`
	BitsServed        float64 `json:"bits_served"`
	Digest            string  `json:"digest"`
}

func (r *Request) formats() (string, string) { return r.Format, FormatRequest }

// Validate checks the numbers.
func (r *Request) Validate() error {
	var c checker
	switch {
	case r.Prompt == "" || !utf8.ValidString(r.Prompt):
		c.fail(at("prompt"), "is empty or not UTF-8")
	case r.MaxTokens != nil && (*r.MaxTokens < 0 || *r.MaxTokens > MaxContextTokens):
		c.fail(at("max_tokens"), "%d: want 0 to %d", *r.MaxTokens, MaxContextTokens)
	case r.Temperature != nil && !validNumber(*r.Temperature, 0):
		c.fail(at("temperature"), "%v: want a finite number, not negative", *r.Temperature)
	case r.Seed != nil && !validInteger(*r.Seed, 0):
		c.fail(at("seed"), "%d: want 0 to 2^53", *r.Seed)
	}
	return c.err
}
