package run

import (
	"context"
	"fmt"
)

// Chat is one prompt that grows: what was said stays in the KV cache, and a
// turn computes what is new. Every answer is a function of store, plan, seed
// and all prompts of the chat so far.
type Chat struct {
	run    *Run
	digest *digest
	cached []int32 // the tokens whose keys and values the cache holds
}

// NewChat begins a chat. The run must do nothing else until it is over.
func (r *Run) NewChat() *Chat {
	r.begin()
	return &Chat{run: r, digest: newDigest(), cached: make([]int32, 0, r.opt.Context)}
}

// Cached is the number of tokens at the start of a prompt that a turn would
// not compute again.
func (c *Chat) Cached(prompt []int32) int {
	n := 0
	for n < len(c.cached) && n < len(prompt)-1 && c.cached[n] == prompt[n] {
		n++
	}
	return n
}

// Answer continues a prompt, the whole conversation, as [Run.Generate] does.
// Where it begins as the turns before it do, their part of the KV cache is
// used. The result's sums are of the whole chat.
func (c *Chat) Answer(ctx context.Context, prompt []int32, most int, emit func(id int32) error) (Result, error) {
	r := c.run
	switch {
	case len(prompt) == 0:
		return Result{}, fmt.Errorf("the prompt has no tokens")
	case len(prompt) > r.opt.Context:
		return Result{}, &PromptError{Tokens: len(prompt), Context: r.opt.Context, Limit: r.program.arch.ContextTokens}
	case most < 1:
		most = r.opt.Context
	}
	g := &generation{Run: r, prompt: prompt, cached: c.Cached(prompt), most: most, before: r.tokens, digest: c.digest}
	picked := make([]int32, 0, min(most, r.opt.Context-len(prompt)+1))
	res, err := g.generate(ctx, func(id int32) error {
		picked = append(picked, id)
		return emit(id)
	})
	if err != nil {
		c.cached = c.cached[:0] // an error may come between the layers
		return res, err
	}
	// The last token was not computed any more, unless a stop token follows it.
	c.cached = append(append(c.cached[:0], prompt...), picked...)
	c.cached = c.cached[:g.pos()]
	return res, nil
}
