package tokenizer

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"

	"substrate/internal/jsonio"
)

// WriteJSON writes a tokenizer.json that [Load] reads as an equal tokenizer, apart from roles that its template does not
// show. Equal tokenizers give equal bytes.
func (t *Tokenizer) WriteJSON(out io.Writer) error {
	w := &writer{out: bufio.NewWriterSize(out, 1<<14)}
	w.raw("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [")
	for i, a := range t.added {
		w.separate(i, "\n    ")
		w.raw(`{"id": ` + strconv.Itoa(int(a.ID)) + `, "content": `)
		w.text([]byte(a.Content))
		w.flag("single_word", a.SingleWord)
		w.flag("lstrip", a.LeftStrip)
		w.flag("rstrip", a.RightStrip)
		w.flag("normalized", a.Normalized)
		w.flag("special", a.Special)
		w.raw("}")
	}
	w.raw("\n  ]")
	w.component("normalizer", t.source.normalizer)
	w.component("pre_tokenizer", t.source.preTokenizer)
	w.component("post_processor", t.source.postProcessor)
	w.component("decoder", t.source.decoder)
	w.raw(",\n  \"model\": ")
	t.model.writeJSON(w)
	w.raw("\n}\n")
	if w.err != nil {
		return fmt.Errorf("writing tokenizer.json: %w", w.err)
	}
	return w.out.Flush()
}

// Digest is the SHA-256, in hex, of what [Tokenizer.WriteJSON] writes: equal for equal tokenizers, whatever the files they
// came from.
func (t *Tokenizer) Digest() string {
	h := sha256.New()
	if err := t.WriteJSON(h); err != nil {
		panic("internal error: " + err.Error()) // a hash takes all, and loading has seen that all text is UTF-8
	}
	return hex.EncodeToString(h.Sum(nil))
}

// writer writes JSON text and keeps the first error.
type writer struct {
	out *bufio.Writer
	buf []byte
	err error
}

func (w *writer) raw(s string) {
	if w.err == nil {
		_, w.err = w.out.WriteString(s)
	}
}

// text writes a string.
func (w *writer) text(s []byte) {
	if w.err != nil {
		return
	}
	if w.buf, w.err = jsonio.AppendString(w.buf[:0], s); w.err == nil {
		_, w.err = w.out.Write(w.buf)
	}
}

// separate writes what goes before the i-th of several.
func (w *writer) separate(i int, indent string) {
	if i > 0 {
		w.raw(",")
	}
	w.raw(indent)
}

func (w *writer) flag(name string, on bool) {
	w.raw(`, "` + name + `": ` + strconv.FormatBool(on))
}

func (w *writer) component(name string, raw jsonio.RawValue) {
	w.raw(",\n  \"" + name + `": `)
	if isNull(raw) {
		raw = jsonio.RawValue("null")
	}
	w.raw(string(raw))
}

// optional writes a string member, null if it is empty.
func (w *writer) optional(name, s string) {
	w.raw(`"` + name + `": `)
	if s == "" {
		w.raw("null, ")
		return
	}
	w.text([]byte(s))
	w.raw(", ")
}

func (b *bpe) writeJSON(w *writer) {
	w.raw(`{"type": "BPE", "dropout": null, `)
	w.optional("unk_token", b.config.unkToken)
	w.optional("continuing_subword_prefix", b.config.prefix)
	w.optional("end_of_word_suffix", b.config.suffix)
	w.raw(`"fuse_unk": ` + strconv.FormatBool(b.config.fuseUnk))
	w.flag("byte_fallback", b.config.byteFallback)
	w.flag("ignore_merges", b.config.ignoreMerges)
	w.raw(",\n    \"vocab\": {")
	n := 0
	for id := range int32(b.vocab.size()) {
		if text := b.vocab.token(id); len(text) > 0 {
			w.separate(n, "\n      ")
			w.text(text)
			w.raw(": " + strconv.Itoa(int(id)))
			n++
		}
	}
	w.raw("\n    },\n    \"merges\": [")
	for i, m := range b.merges.list {
		w.separate(i, "\n      [")
		w.text(b.vocab.token(m.left))
		w.raw(", ")
		w.text(b.vocab.token(m.right))
		w.raw("]")
	}
	w.raw("\n    ]}")
}
