package main

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"substrate/internal/cli"
	"substrate/internal/jsonio"
	"substrate/pkg/doc"
	"substrate/pkg/run"
	"substrate/pkg/store"
	"substrate/pkg/tokenizer"
)

// batch answers requests, one a line, each from a clean start: an answer does
// not depend on the requests around it. Prefixes that a request shares with the
// one before are not computed again. An answer that is refused is a line with
// an error; what would go wrong for every other one ends the batch.
type batch struct {
	flags     *runFlags
	env       *cli.Env
	run       *run.Run
	tokenizer *tokenizer.Tokenizer
	name      string // of the input
	limit     int    // bytes of a prompt
	sum       run.Result
	failed    int
	answered  int
}

// answerAll runs --batch.
func (f *runFlags) answerAll(ctx context.Context, env *cli.Env, s *store.Store, planName string, t *tokenizer.Tokenizer) error {
	in := env.Stdin()
	name := "stdin"
	if *f.batch != "-" {
		file, err := os.Open(*f.batch)
		if err != nil {
			return cli.IO("--batch %w", err)
		}
		defer file.Close()
		in, name = file, *f.batch
	}
	r, _, err := f.start(ctx, env, s, planName, t, 0, nil)
	if err != nil {
		return err
	}
	b := &batch{flags: f, env: env, run: r, tokenizer: t, name: name, limit: f.promptBytes(s, t)}
	err = b.all(ctx, jsonio.NewDecoder(name, in, requestBytes(b.limit)))
	if b.sum.CapBytes == 0 { // nobody asked anything
		b.sum.CapBytes = r.CapBytes()
	}
	if err == nil && !b.sum.Within() {
		err = aboveCap(&b.sum)
	}
	if err == nil && b.failed > 0 {
		err = cli.No("%d of %d requests have no answer, their lines say why", b.failed, b.failed+b.answered)
	}
	env.Notef("%d answers; peak %.2f MiB of a cap of %.2f MiB", b.answered, mib(b.sum.PeakBytes), mib(b.sum.CapBytes))
	return errors.Join(err, r.Close())
}

// terminated is the exit code of SIGTERM.
const terminated = 128 + int(syscall.SIGTERM)

// requestBytes bounds a line: a prompt, every byte of it escaped, and the rest.
func requestBytes(prompt int) int { return 6*prompt + 4<<10 }

// all answers until the input or the context ends.
func (b *batch) all(ctx context.Context, in *jsonio.Decoder) error {
	for {
		_, err := cli.Await(ctx, in.Next)
		if errors.Is(err, io.EOF) {
			return nil
		}
		request := new(doc.Request)
		if err == nil {
			err = b.read(in, request)
		}
		if err != nil {
			return err
		}
		if err := b.answer(ctx, request); err != nil {
			return err
		}
		tidy()
		if err := ctx.Err(); err != nil { // drained
			return err
		}
	}
}

// read reads the request of the current line.
func (b *batch) read(in *jsonio.Decoder, q *doc.Request) error {
	err := in.Unmarshal(q)
	if err == nil {
		if err = doc.CheckFormat(q.Format, doc.FormatRequest); err == nil {
			err = q.Validate()
		}
		if err = jsonio.Name(b.name, err); err != nil {
			if e, ok := errors.AsType[*jsonio.Error](err); ok {
				e.Line = in.Line()
			}
		}
	}
	return err
}

// answer answers one request. SIGTERM lets it come to its end.
func (b *batch) answer(ctx context.Context, q *doc.Request) error {
	drained, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if stop, ok := context.Cause(ctx).(interface{ ExitCode() int }); !ok || stop.ExitCode() != terminated {
			cancel()
		}
	})()
	p := b.flags.newPrinter(b.env, b.tokenizer)
	p.silent = true
	res, err := b.generate(drained, q, p)
	err = refusal(err)
	var refused bool
	if err != nil {
		code := cli.ExitCode(err)
		refused = code == cli.ExitNo || code == cli.ExitUsage
		if !refused && res.Tokens == 0 && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	a := newAnswer(&res, p.text.String())
	a.ID = q.ID
	switch {
	case refused:
		b.failed++
		a.Error, a.ExitCode, a.Reason = err.Error(), cli.ExitCode(err), run.Failed
		err = nil
	case err != nil:
		b.failed++
		a.Error, a.ExitCode = err.Error(), cli.ExitCode(err)
	default:
		b.answered++
	}
	b.sum.PeakBytes, b.sum.CapBytes = max(b.sum.PeakBytes, res.PeakBytes), max(b.sum.CapBytes, res.CapBytes)
	return errors.Join(err, printLine(b.env, a))
}

// generate runs the model on a request.
func (b *batch) generate(ctx context.Context, q *doc.Request, p *printer) (run.Result, error) {
	if len(q.Prompt) > b.limit {
		return run.Result{}, cli.No("the prompt has more than %d bytes, which the context has no room for", b.limit)
	}
	raw := q.Raw || b.flags.raw
	ids, err := b.tokenizer.Encode(q.Prompt, tokenizer.EncodeOptions{AddSpecial: !raw, ParseSpecial: raw})
	if err != nil {
		return run.Result{}, err
	}
	sampling, seed, most := b.flags.sampling.Sampling, int64(*b.flags.sampling.seed), b.flags.maxTokens
	if q.Temperature != nil {
		sampling.Temperature = *q.Temperature
	}
	if q.Seed != nil {
		seed = *q.Seed
	}
	if q.MaxTokens != nil {
		most = *q.MaxTokens
	}
	if err := b.run.SetSampling(sampling, seed); err != nil {
		return run.Result{}, cli.Usage("%w", err)
	}
	res, err := b.run.Generate(ctx, ids, most, p.token)
	return res, errors.Join(err, p.end(err == nil))
}
