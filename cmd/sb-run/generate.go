package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"substrate/internal/cli"
	"substrate/pkg/chat"
	"substrate/pkg/run"
	"substrate/pkg/tokenizer"
)

// generate answers one prompt and tells about it.
func (f *runFlags) generate(ctx context.Context, env *cli.Env, r *run.Run, t *tokenizer.Tokenizer, prompt []int32) error {
	p := f.newPrinter(env, t)
	res, err := r.Generate(ctx, prompt, f.maxTokens, p.token)
	err = errors.Join(err, p.end(err == nil))
	code, err := f.finish(ctx, env, r, &res, err)
	if *f.json && (code == cli.ExitOK || code == cli.ExitAboveCap) {
		err = errors.Join(err, printJSON(env, &res, p.text.String()))
	}
	return err
}

// finish ends a run that gave a result or an error: it judges the peak, writes
// the end of the trace and says on stderr what the run did.
func (f *runFlags) finish(ctx context.Context, env *cli.Env, r *run.Run, res *run.Result, err error) (code int, _ error) {
	if err == nil && !res.Within() {
		err = aboveCap(res)
	}
	code = cli.ExitOK
	if err != nil {
		code = cli.ExitCode(err)
	}
	if stop, ok := context.Cause(ctx).(interface{ ExitCode() int }); ok && err != nil {
		code = stop.ExitCode()
	}
	err = errors.Join(err, r.End(res, code))
	summarize(env, res)
	return code, err
}

// tidy gives back what an answer left on the heap. One leaves little, a thousand
// would grow by what the collector waits for, which no ledger has.
func tidy() { debug.FreeOSMemory() }

// aboveCap is the error of a broken promise.
func aboveCap(res *run.Result) error {
	return cli.AboveCap("the measured peak of %d bytes is above the cap of %d: this must never happen, please report it with a trace", res.PeakBytes, res.CapBytes)
}

// summarize tells on stderr what the run did.
func summarize(env *cli.Env, res *run.Result) {
	share := 0.0
	if decoded := res.Tokens - 1; decoded > 0 && res.NeededBytes > 0 {
		share = 100 * float64(res.DecodeReadBytes) / float64(decoded) / float64(res.NeededBytes)
	}
	env.Notef("%s after %d tokens; %.2f tok/s", res.Reason, res.Tokens, res.TokensPerSec())
	env.Notef("peak %.2f MiB of a cap of %.2f MiB", mib(res.PeakBytes), mib(res.CapBytes))
	env.Notef("read %.2f MiB per token after the first, %.1f %% of the %.2f MiB that it needs; %.3f bits per weight served",
		mib(res.DecodeReadBytes)/max(1, float64(res.Tokens-1)), share, mib(res.NeededBytes), res.BitsServed)
	env.Notef("digest %s", res.Digest)
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// printer writes an answer as it comes, whole characters at a time, up to a
// stop string.
type printer struct {
	env       *cli.Env
	tokenizer *tokenizer.Tokenizer
	stream    *tokenizer.Stream
	stop      *chat.Stop
	silent    bool            // the text is for JSON
	text      strings.Builder // so far
	err       error           // of printing
}

func (f *runFlags) newPrinter(env *cli.Env, t *tokenizer.Tokenizer) *printer {
	return &printer{env: env, tokenizer: t, stream: t.NewStream(), stop: chat.NewStop(f.sampling.stops), silent: *f.json}
}

// token takes a token of the answer.
func (p *printer) token(id int32) error {
	if p.tokenizer.Special(id) {
		return nil
	}
	text, stopped := p.stop.Push(p.stream.Push(id))
	if err := p.print(text); err != nil {
		return err
	}
	if stopped {
		return run.ErrStopString
	}
	return nil
}

func (p *printer) print(s string) error {
	p.text.WriteString(s)
	if s == "" || p.silent {
		return nil
	}
	_, p.err = fmt.Fprint(p.env.Stdout, s)
	return p.err
}

// end writes the rest, and a line feed if the text does not end with one. After
// an error there is no rest, and what was printed until then ends its line.
func (p *printer) end(whole bool) error {
	if p.err != nil {
		return nil
	}
	if whole {
		rest, stopped := p.stop.Push(p.stream.Flush())
		if !stopped {
			rest += p.stop.Flush()
		}
		if err := p.print(rest); err != nil {
			return err
		}
	}
	text := p.text.String()
	if p.silent || strings.HasSuffix(text, "\n") || text == "" && !whole {
		return nil
	}
	_, err := fmt.Fprintln(p.env.Stdout)
	return err
}
