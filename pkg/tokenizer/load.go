package tokenizer

import (
	"bytes"
	"io"

	"substrate/internal/jsonio"
)

// Load reads a tokenizer.json of the given size. The name, usually the file's, starts every error; what is wrong with the
// document is a *jsonio.Error, what is wrong with reading it is not. The file is read as a stream, once, or twice if merges
// come before the vocabulary in it. Loading SmolLM2's allocates 8.5 MiB, garbage included.
func Load(r io.ReaderAt, size int64, name string) (*Tokenizer, error) {
	l := loader{open: func() *jsonio.Reader {
		return jsonio.NewReader(name, io.NewSectionReader(r, 0, size))
	}}
	t, err := l.load()
	if err != nil {
		return nil, jsonio.Name(name, err)
	}
	return t, nil
}

// LoadBytes is [Load] of a file in memory.
func LoadBytes(b []byte, name string) (*Tokenizer, error) {
	return Load(bytes.NewReader(b), int64(len(b)), name)
}

// loader reads one tokenizer.json.
type loader struct {
	open  func() *jsonio.Reader
	parts parts

	typ         string // of the model; "" in files of before 2020, which had BPE only
	config      bpeConfig
	vocab       *vocab
	merges      []merge
	mergesEarly bool      // merges came before the vocabulary
	scores      []float64 // of a Unigram model, by id
	unkID       int64     // of a Unigram model, -1 for none
}

func (l *loader) load() (*Tokenizer, error) {
	l.parts.roles, l.unkID = NoRoles(), -1
	r := l.open()
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "version":
			return l.readVersion(r)
		case "added_tokens":
			return l.readAdded(r)
		case "normalizer":
			return readRaw(r, &l.parts.source.normalizer)
		case "pre_tokenizer":
			return readRaw(r, &l.parts.source.preTokenizer)
		case "post_processor":
			return readRaw(r, &l.parts.source.postProcessor)
		case "decoder":
			return readRaw(r, &l.parts.source.decoder)
		case "model":
			return l.readModel(r)
		}
		return r.Skip() // truncation, padding and what a newer version may add beside the components
	})
	if err != nil {
		return nil, err
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	if err := l.makeModel(); err != nil {
		return nil, err
	}
	return assemble(l.parts)
}

func (l *loader) readVersion(r *jsonio.Reader) error {
	var version string
	if err := r.Unmarshal(&version); err != nil {
		return err
	}
	if version != "1.0" {
		return r.Errorf("version %q of tokenizer.json is not known; this tool reads 1.0", version)
	}
	return nil
}

// readRaw keeps a component in canonical form, so that equal tokenizers have equal digests.
func readRaw(r *jsonio.Reader, to *jsonio.RawValue) error {
	raw, err := r.Value()
	if err != nil {
		return err
	}
	*to, err = jsonio.Compact(raw)
	return err
}

func (l *loader) readAdded(r *jsonio.Reader) error {
	if r.Kind() == 'n' {
		return r.Skip()
	}
	return r.Array(func() error {
		var a addedToken
		if err := r.Unmarshal(&a); err != nil {
			return err
		}
		if len(l.parts.added) >= maxAddedTokens {
			return r.Errorf("more than %d added tokens", maxAddedTokens)
		}
		l.parts.added = append(l.parts.added, a)
		return nil
	})
}

// readModel reads the model but for merges that come before the vocabulary.
func (l *loader) readModel(r *jsonio.Reader) error {
	return r.Object(func(name []byte) error {
		if r.Kind() == 'n' {
			return r.Skip()
		}
		switch string(name) {
		case "type":
			if err := r.Unmarshal(&l.typ); err != nil {
				return err
			}
			if l.typ != "BPE" && l.typ != "Unigram" {
				return r.Errorf("model %q is not supported", l.typ)
			}
			return nil
		case "vocab":
			if r.Kind() == '[' {
				return l.readPieces(r)
			}
			return l.readVocab(r)
		case "unk_id":
			var err error
			l.unkID, err = r.Integer()
			return err
		case "merges":
			if l.vocab == nil {
				l.mergesEarly = true
				return r.Skip()
			}
			return l.readMerges(r)
		case "unk_token":
			return r.Unmarshal(&l.config.unkToken)
		case "continuing_subword_prefix":
			if err := r.Unmarshal(&l.config.prefix); err != nil {
				return err
			}
			if l.config.prefix != "" && l.merges != nil {
				return r.Errorf("the prefix should come before the merges, which it changes")
			}
			return nil
		case "end_of_word_suffix":
			return r.Unmarshal(&l.config.suffix)
		case "fuse_unk":
			return r.Unmarshal(&l.config.fuseUnk)
		case "byte_fallback":
			return r.Unmarshal(&l.config.byteFallback)
		case "ignore_merges":
			return r.Unmarshal(&l.config.ignoreMerges)
		case "dropout":
			var dropout float64
			if err := r.Unmarshal(&dropout); err != nil {
				return err
			}
			if dropout != 0 {
				return r.Errorf("dropout %v makes tokens a matter of chance; it is for training only", dropout)
			}
			return nil
		}
		member := string(name)
		if err := r.Skip(); err != nil {
			return err
		}
		return r.Errorf("member %q of a model is not known", member)
	})
}

func (l *loader) readVocab(r *jsonio.Reader) error {
	if l.vocab != nil {
		return r.Errorf("a second vocabulary")
	}
	var b vocabBuilder
	err := r.Object(func(text []byte) error {
		b.text = append(b.text, text...)
		id, err := r.Integer()
		if err != nil {
			return err
		}
		if err := b.add(id); err != nil {
			return r.Errorf("%w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if l.vocab, err = b.build(); err != nil {
		return r.Errorf("%w", err)
	}
	return nil
}

// readMerges reads merges as pairs, or as strings with a space between the parts.
func (l *loader) readMerges(r *jsonio.Reader) error {
	if l.merges != nil {
		return r.Errorf("a second list of merges")
	}
	b := mergeBuilder{vocab: l.vocab, prefix: l.config.prefix, list: []merge{}}
	var buf []byte
	err := r.Array(func() error {
		buf = buf[:0]
		var left, right []byte
		if r.Kind() == '[' {
			ends := [2]int{}
			n := 0
			err := r.Array(func() (err error) {
				buf, err = r.AppendString(buf)
				if n < len(ends) {
					ends[n] = len(buf)
				}
				n++
				return err
			})
			if err != nil {
				return err
			}
			if n != len(ends) {
				return r.Errorf("a merge of %d parts; there should be 2", n)
			}
			left, right = buf[:ends[0]], buf[ends[0]:]
		} else {
			var err error
			if buf, err = r.AppendString(buf); err != nil {
				return err
			}
			var ok bool
			if left, right, ok = bytes.Cut(buf, []byte{' '}); !ok || bytes.IndexByte(right, ' ') >= 0 {
				return r.Errorf("merge %q is not two tokens with a space between them", buf)
			}
		}
		if err := b.add(left, right); err != nil {
			return r.Errorf("%w", err)
		}
		return nil
	})
	l.merges = b.list
	return err
}

// makeModel reads what the first pass left out.
func (l *loader) makeModel() error {
	if l.vocab == nil {
		return jsonio.Errorf("", "/model", "the vocabulary is missing")
	}
	if unigram := l.typ == "Unigram"; unigram != (l.scores != nil) {
		return jsonio.Errorf("", "/model/vocab", "the vocabulary is not that of a model %q", l.typ)
	} else if unigram {
		model, err := newUnigram(l.vocab, l.scores, l.unkID, l.config.byteFallback)
		if err != nil {
			return jsonio.Errorf("", "/model", "%w", err)
		}
		l.parts.model = model
		return nil
	}
	if l.mergesEarly {
		r := l.open()
		err := r.Object(func(name []byte) error {
			if string(name) != "model" {
				return r.Skip()
			}
			return r.Object(func(name []byte) error {
				if string(name) != "merges" {
					return r.Skip()
				}
				return l.readMerges(r)
			})
		})
		if err != nil {
			return err
		}
	}
	if l.merges == nil {
		return jsonio.Errorf("", "/model", "the merges are missing")
	}
	model, err := newBPE(l.vocab, newMerges(l.merges), l.config)
	if err != nil {
		return jsonio.Errorf("", "/model", "%w", err)
	}
	l.parts.model = model
	return nil
}
