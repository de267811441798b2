package tokenizer

import (
	"fmt"

	"substrate/internal/jsonio"
)

// postProcessor adds the special tokens that a model wants around a text: "post_processor" of a tokenizer.json.
type postProcessor interface {
	// around returns the tokens before and after the text.
	around() (before, after []int32)
}

func newPostProcessor(raw jsonio.RawValue, depth int) (postProcessor, error) {
	typ, err := componentType(raw)
	if err != nil {
		return nil, err
	}
	switch typ {
	case "Sequence":
		return newPostProcessorSequence(raw, depth)
	case "ByteLevel": // it only moves offsets, which we do not give
		var c byteLevelConfig
		return template{}, jsonio.UnmarshalKnown("", raw, &c)
	case "TemplateProcessing":
		return newTemplate(raw)
	case "BertProcessing", "RobertaProcessing":
		return newSepProcessing(raw)
	}
	return nil, unsupported("post-processor", typ)
}

type postProcessorSequence []postProcessor

func newPostProcessorSequence(raw jsonio.RawValue, depth int) (postProcessor, error) {
	var c struct {
		typed
		Processors []jsonio.RawValue `json:"processors"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	if depth >= maxNesting {
		return nil, jsonio.Errorf("", "", "more than %d components in each other", maxNesting)
	}
	list, err := makeEach("processors", c.Processors, func(raw jsonio.RawValue) (postProcessor, error) {
		return newPostProcessor(raw, depth+1)
	})
	return postProcessorSequence(list), err
}

func (s postProcessorSequence) around() (before, after []int32) {
	for _, p := range s {
		b, a := p.around()
		before = append(b[:len(b):len(b)], before...)
		after = append(after, a...)
	}
	return before, after
}

// template is TemplateProcessing for one text; that for two is not used here.
type template struct{ before, after []int32 }

// templatePiece is a text or a special token of a template.
type templatePiece struct {
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence,omitempty"`
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken,omitempty"`
}

func newTemplate(raw jsonio.RawValue) (postProcessor, error) {
	var c struct {
		Single        []templatePiece `json:"single"`
		SpecialTokens map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := jsonio.UnmarshalLoose("", raw, &c); err != nil {
		return nil, err
	}
	var t template
	texts := 0
	for i, p := range c.Single {
		at := jsonio.Pointer(fmt.Sprintf("/single/%d", i))
		switch {
		case p.Sequence != nil && p.SpecialToken == nil:
			if p.Sequence.ID != "A" || texts > 0 {
				return nil, jsonio.Errorf("", at, "a template for one text has the sequence A once, not %q again", p.Sequence.ID)
			}
			texts++
		case p.SpecialToken != nil && p.Sequence == nil:
			token, ok := c.SpecialTokens[p.SpecialToken.ID]
			if !ok {
				return nil, jsonio.Errorf("", at, "%q is not in special_tokens", p.SpecialToken.ID)
			}
			if texts == 0 {
				t.before = append(t.before, token.IDs...)
			} else {
				t.after = append(t.after, token.IDs...)
			}
		default:
			return nil, jsonio.Errorf("", at, `a template piece has one member, "Sequence" or "SpecialToken"`)
		}
	}
	if texts == 0 {
		return nil, jsonio.Errorf("", "/single", "the template has no sequence A")
	}
	return t, nil
}

func (t template) around() (before, after []int32) { return t.before, t.after }

// newSepProcessing sets one token before a text and one after it.
func newSepProcessing(raw jsonio.RawValue) (postProcessor, error) {
	type token struct {
		text string
		id   int32
	}
	var c struct {
		typed
		Sep            []jsonio.RawValue `json:"sep"` // text and id
		Cls            []jsonio.RawValue `json:"cls"`
		TrimOffsets    *bool             `json:"trim_offsets"` // about offsets, which we do not give
		AddPrefixSpace *bool             `json:"add_prefix_space"`
	}
	if err := jsonio.UnmarshalKnown("", raw, &c); err != nil {
		return nil, err
	}
	read := func(member string, pair []jsonio.RawValue) (t token, err error) {
		if len(pair) != 2 {
			return t, jsonio.Errorf("", jsonio.Pointer("/"+member), "%d parts; there should be the text of a token and its id", len(pair))
		}
		if err = jsonio.UnmarshalLoose("", pair[0], &t.text); err == nil {
			err = jsonio.UnmarshalLoose("", pair[1], &t.id)
		}
		return t, jsonio.Within("", jsonio.Pointer("/"+member), err)
	}
	cls, err := read("cls", c.Cls)
	if err != nil {
		return nil, err
	}
	sep, err := read("sep", c.Sep)
	return template{[]int32{cls.id}, []int32{sep.id}}, err
}
