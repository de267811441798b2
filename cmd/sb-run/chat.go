package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"substrate/internal/cli"
	"substrate/internal/jsonio"
	"substrate/pkg/chat"
	"substrate/pkg/run"
	"substrate/pkg/store"
	"substrate/pkg/tokenizer"
)

// chatFlags are the flags of a conversation.
type chatFlags struct {
	on     bool
	system string
	date   string
}

func (f *chatFlags) define(fs *pflag.FlagSet) {
	fs.BoolVar(&f.on, "chat", false, "hold a conversation by the model's chat template: -p is a message, stdin is messages as JSONL or, on a terminal, one message a line")
	fs.StringVar(&f.system, "system", "", "begin the conversation with the system message `TEXT`")
	fs.StringVar(&f.date, "date", "", "what a template that asks for it is told is today's `DATE`, as 2026-03-07 (default: today)")
}

func (f *chatFlags) check() error {
	switch {
	case f.on:
	case f.system != "":
		return cli.Usage("--system is for --chat")
	case f.date != "":
		return cli.Usage("--date is for --chat")
	}
	if _, err := f.today(); err != nil {
		return cli.Usage("--date %s: want a date as 2026-03-07", f.date)
	}
	return nil
}

func (f *chatFlags) today() (time.Time, error) {
	if f.date == "" {
		return time.Now(), nil
	}
	return time.Parse(time.DateOnly, f.date)
}

// conversation is a chat with a model: the messages, and the prompt they make.
type conversation struct {
	flags     *runFlags
	env       *cli.Env
	tokenizer *tokenizer.Tokenizer
	limit     int            // bytes of a prompt
	template  *chat.Template // nil: with --raw, the contents of the messages
	options   chat.Options
	messages  []chat.Message

	text string  // the prompt and answer of the last turn
	ids  []int32 // their tokens
}

// newConversation reads the store's template.
func (f *runFlags) newConversation(env *cli.Env, s *store.Store, t *tokenizer.Tokenizer) (*conversation, error) {
	c := &conversation{flags: f, env: env, tokenizer: t, limit: f.promptBytes(s, t)}
	today, err := f.chat.today()
	if err != nil {
		return nil, err
	}
	c.options = chat.Options{AddGenerationPrompt: true, Date: today}
	if c.options.Tokens, err = specialTokens(s); err != nil {
		return nil, err
	}
	const file = "chat_template.jinja"
	source, err := s.Text(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && f.raw:
		return c, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, cli.WithHint(cli.No("%s: the model has no chat template", s.Path()), rawHint)
	case err != nil:
		return nil, err
	}
	if c.template, err = chat.Compile(s.Path()+"/"+file, string(source)); err != nil && !f.raw {
		return nil, cli.WithHint(err, rawHint)
	}
	return c, nil
}

const rawHint = "without --chat, -p continues a text; with --raw the messages' contents, one after the other, are the prompt"

// specialTokens are the texts that a template knows special tokens by.
func specialTokens(s *store.Store) (map[string]string, error) {
	const file = "special_tokens_map.json"
	text, err := s.Text(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var tokens map[string]string
	if err == nil {
		err = jsonio.Unmarshal(s.Path()+"/"+file, text, &tokens)
	}
	return tokens, err
}

// add takes a message. The text of a special token in it is refused: it would
// end a turn, or begin one of somebody else.
func (c *conversation) add(m chat.Message) error {
	if !c.flags.raw {
		ids, err := c.tokenizer.Encode(m.Content(), tokenizer.EncodeOptions{ParseSpecial: true})
		if err != nil {
			return err
		}
		for _, id := range ids {
			if c.tokenizer.Special(id) {
				return cli.WithHint(cli.No("the message of %s has the text %q, which is a special token of the model", m.Role(), c.tokenizer.TokenText(id)),
					"--raw takes such texts for the tokens")
			}
		}
	}
	c.messages = append(c.messages, m)
	return nil
}

// render makes the prompt of some messages.
func (c *conversation) render(messages []chat.Message, o chat.Options) (string, error) {
	if c.template == nil {
		var b strings.Builder
		for _, m := range messages {
			b.WriteString(m.Content())
		}
		return b.String(), nil
	}
	text, err := c.template.Render(messages, o)
	if _, ok := errors.AsType[*chat.UnsupportedError](err); ok {
		err = cli.WithHint(err, rawHint)
	}
	return text, err
}

// prompt is the tokens of the conversation. Where its text only went on since
// the last turn, so do its tokens: what the model said stays what it said.
func (c *conversation) prompt() ([]int32, error) {
	text, err := c.render(c.messages, c.options)
	if err != nil {
		return nil, err
	}
	if len(text) > c.limit {
		return nil, cli.No("the prompt has more than %d bytes, which the context has no room for", c.limit)
	}
	rest, goesOn := strings.CutPrefix(text, c.text)
	if !goesOn {
		c.ids, rest = nil, text
	}
	ids, err := c.tokenizer.Encode(rest, tokenizer.EncodeOptions{ParseSpecial: true})
	if err != nil {
		return nil, err
	}
	c.text, c.ids = text, append(c.ids, ids...)
	if len(c.ids) == 0 {
		return nil, cli.Usage("the prompt is empty")
	}
	return c.ids, nil
}

// endOfTurn is the special tokens that the template puts after what the
// assistant says: they end an answer, whatever config.json says.
func (c *conversation) endOfTurn() []int32 {
	const said = "x"
	turn := []chat.Message{chat.NewMessage("user", said), chat.NewMessage("assistant", said)}
	text, err := c.render(turn, chat.Options{Tokens: c.options.Tokens, Date: c.options.Date})
	if err != nil || c.template == nil {
		return nil
	}
	ids, err := c.tokenizer.Encode(text[strings.LastIndex(text, said)+1:], tokenizer.EncodeOptions{ParseSpecial: true})
	if err != nil || len(ids) == 0 || !c.tokenizer.Special(ids[0]) {
		return nil
	}
	return ids[:1]
}

// said notes the answer to the last prompt.
func (c *conversation) said(text string, ids []int32, reason string) {
	c.messages = append(c.messages, chat.NewMessage("assistant", text))
	if reason == run.StopString { // its tokens say more than the answer
		c.text, c.ids = "", nil
		return
	}
	c.text += text
	c.ids = append(c.ids, ids...)
}

// converse holds a whole conversation.
func (f *runFlags) converse(ctx context.Context, env *cli.Env, s *store.Store, planName string, t *tokenizer.Tokenizer) error {
	c, err := f.newConversation(env, s, t)
	if err != nil {
		return err
	}
	if f.chat.system != "" {
		if err := c.add(chat.NewMessage("system", f.chat.system)); err != nil {
			return err
		}
	}
	next := c.typed()
	var first []int32
	if f.prompt != "" || !env.StdinIsTerminal() {
		messages, err := f.readMessages(ctx, env, c.limit)
		if err != nil {
			return err
		}
		next = c.given(messages)
		if first, err = next(ctx); err != nil {
			return err
		}
	}
	r, out, err := f.start(ctx, env, s, planName, t, len(first), c.endOfTurn())
	if err != nil {
		return err
	}
	err = c.talk(ctx, r, first, next)
	return errors.Join(err, r.Close(), out.Close())
}

// talk answers turn after turn: the first prompt, if there is one already, and
// those that next gives until it gives none.
func (c *conversation) talk(ctx context.Context, r *run.Run, prompt []int32, next prompts) (err error) {
	var sum run.Result // of the conversation
	turns := r.NewChat()
	for {
		if prompt == nil {
			if prompt, err = next(ctx); err != nil || prompt == nil {
				break
			}
		}
		before := sum
		var text string
		if sum, text, err = c.answer(ctx, turns, prompt); err != nil {
			break
		}
		if *c.flags.json {
			if err = printJSON(c.env, turn(&before, &sum), text); err != nil {
				break
			}
		}
		prompt = nil
		tidy()
	}
	if sum.CapBytes == 0 { // nobody asked anything
		sum = run.Result{Reason: run.MaxTokens, CapBytes: r.CapBytes()}
	}
	_, err = c.flags.finish(ctx, c.env, r, &sum, err)
	return err
}

// answer generates one answer and prints it, if not as JSON.
func (c *conversation) answer(ctx context.Context, turns *run.Chat, prompt []int32) (run.Result, string, error) {
	c.env.Debugf("%d tokens of the prompt are in the KV cache, %d are new", turns.Cached(prompt), len(prompt)-turns.Cached(prompt))
	p := c.flags.newPrinter(c.env, c.tokenizer)
	var ids []int32
	res, err := turns.Answer(ctx, prompt, c.flags.maxTokens, func(id int32) error {
		ids = append(ids, id)
		return p.token(id)
	})
	err = errors.Join(refusal(err), p.end(err == nil))
	if err == nil {
		c.said(p.text.String(), ids, res.Reason)
	}
	return res, p.text.String(), err
}

// turn is what one turn added to the sums of a conversation.
func turn(before, sum *run.Result) *run.Result {
	t := *sum
	t.Tokens -= before.Tokens
	t.PrefillNs -= before.PrefillNs
	t.DecodeNs -= before.DecodeNs
	t.ReadBytes -= before.ReadBytes
	t.DecodeReadBytes -= before.DecodeReadBytes
	return &t
}

// prompts gives the next prompt of a conversation, nil when it is over.
type prompts func(ctx context.Context) ([]int32, error)

// readMessages reads the messages of -p or stdin.
func (f *runFlags) readMessages(ctx context.Context, env *cli.Env, limit int) ([]chat.Message, error) {
	if f.prompt != "" {
		return []chat.Message{chat.NewMessage("user", f.prompt)}, nil
	}
	text, err := readPrompt(ctx, env, limit)
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		return nil, cli.No("the messages have more than %d bytes, which the context has no room for", limit)
	}
	if text == "" {
		return nil, cli.BadDocument("stdin: empty, messages are expected")
	}
	messages, err := chat.ReadMessages("stdin", strings.NewReader(text+"\n"), limit+1)
	if err != nil {
		return nil, cli.WithHint(err, `with --chat stdin is messages, one a line: {"role":"user","content":"..."}; a plain text goes by -p`)
	}
	if last := messages[len(messages)-1]; last.Role() == "assistant" {
		return nil, cli.Usage("stdin: the last message is the assistant's: there is nothing to answer")
	}
	return messages, nil
}

// given gives the prompts of messages that are there: an answer is due at the
// end, and where a message of the user follows one of the user.
func (c *conversation) given(messages []chat.Message) prompts {
	return func(context.Context) ([]int32, error) {
		if len(messages) == 0 {
			return nil, nil
		}
		for len(messages) > 0 {
			m := messages[0]
			messages = messages[1:]
			if err := c.add(m); err != nil {
				return nil, err
			}
			if m.Role() == "user" && len(messages) > 0 && messages[0].Role() == "user" {
				break
			}
		}
		return c.prompt()
	}
}

// typed gives the prompts of what somebody types, a message a line.
func (c *conversation) typed() prompts {
	lines := bufio.NewReader(c.env.Stdin())
	return func(ctx context.Context) ([]int32, error) {
		for {
			c.env.Prompt("> ")
			line, err := cli.Await(ctx, func() (string, error) { return lines.ReadString('\n') })
			text := strings.TrimSpace(line)
			switch {
			case text == "" && errors.Is(err, io.EOF):
				return nil, nil
			case err != nil && !errors.Is(err, io.EOF):
				return nil, err
			case text == "":
				continue
			}
			if err := c.add(chat.NewMessage("user", text)); err != nil {
				c.env.Warnf("%v", err)
				continue
			}
			return c.prompt()
		}
	}
}
