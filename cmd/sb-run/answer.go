package main

import (
	"substrate/internal/cli"
	"substrate/internal/jsonio"
	"substrate/pkg/doc"
	"substrate/pkg/run"
)

// newAnswer is what --json and --batch print of a result.
func newAnswer(res *run.Result, text string) *doc.Answer {
	return &doc.Answer{
		Format: doc.FormatAnswer, Text: text, Reason: res.Reason, PromptTokens: res.PromptTokens, ReusedTokens: res.ReusedTokens,
		Tokens: res.Tokens, PrefillNs: res.PrefillNs, DecodeNs: res.DecodeNs, TokensPerSec: res.TokensPerSec(),
		PeakBytes: res.PeakBytes, CapBytes: res.CapBytes, ReadBytes: res.ReadBytes, DecodeReadBytes: res.DecodeReadBytes,
		NeededBytesPerTok: res.NeededBytes, BitsServed: res.BitsServed, Digest: res.Digest,
	}
}

func printJSON(env *cli.Env, res *run.Result, text string) error {
	return printLine(env, newAnswer(res, text))
}

func printLine(env *cli.Env, a *doc.Answer) error {
	line, err := jsonio.MarshalLine(a)
	if err == nil {
		_, err = env.Stdout.Write(line)
	}
	return err
}
