package main

import (
	"substrate/internal/cli"
	"substrate/internal/jsonio"
	"substrate/pkg/run"
)

// answer is what --json prints.
type answer struct {
	Format            string  `json:"format"`
	Text              string  `json:"text"`
	Reason            string  `json:"reason"`
	PromptTokens      int     `json:"prompt_tokens"`
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

func printJSON(env *cli.Env, res *run.Result, text string) error {
	line, err := jsonio.MarshalLine(&answer{
		Format: "sb.answer/1", Text: text, Reason: res.Reason, PromptTokens: res.PromptTokens, Tokens: res.Tokens,
		PrefillNs: res.PrefillNs, DecodeNs: res.DecodeNs, TokensPerSec: res.TokensPerSec(),
		PeakBytes: res.PeakBytes, CapBytes: res.CapBytes, ReadBytes: res.ReadBytes, DecodeReadBytes: res.DecodeReadBytes,
		NeededBytesPerTok: res.NeededBytes, BitsServed: res.BitsServed, Digest: res.Digest,
	})
	if err == nil {
		_, err = env.Stdout.Write(line)
	}
	return err
}
