package run

import (
	"slices"
	"testing"
)

// A chat gives the answers that its prompts get each on its own, and computes
// of each turn what the turns before do not have.
func TestChat(t *testing.T) {
	for _, name := range models {
		ids := readGolden(t, name).Prompts[0].IDs
		for how, spec := range residencies() {
			spec.ladder = source
			st := pack(t, name, false, spec)
			alone, r := open(t, st, Options{}), open(t, st, Options{})
			alone.program.arch.EOS, r.program.arch.EOS = nil, nil
			chat := r.NewChat()
			var prompt []int32
			for turn, cached := range []int{0, len(ids) + 4, 2*len(ids) + 9, 3} {
				if turn == 3 {
					prompt = append(slices.Clone(prompt[:3]), 1, 2, 3) // the history was written anew
				} else {
					prompt = append(prompt, ids...)
				}
				if got := chat.Cached(prompt); got != cached {
					t.Fatalf("%s, %s, turn %d: %d tokens are cached, want %d", name, how, turn, got, cached)
				}
				want, _ := generate(t, alone, prompt, 5)
				var got []int32
				before := r.tokens
				res, err := chat.Answer(t.Context(), prompt, 5, func(id int32) error { got = append(got, id); return nil })
				if err != nil || !slices.Equal(got, want) || res.Tokens-before != 5 || res.Reason != MaxTokens {
					t.Fatalf("%s, %s, turn %d: got %v, %+v, %v, want %v", name, how, turn, got, res, err, want)
				}
				prompt = append(prompt, got...)
			}
		}
	}
}

// A stop string ends an answer in good order, and the chat goes on.
func TestChatStops(t *testing.T) {
	r := open(t, pack(t, models[0], false, planSpec{ladder: source}), Options{})
	r.program.arch.EOS = nil
	chat := r.NewChat()
	n := 0
	res, err := chat.Answer(t.Context(), []int32{1, 2, 3}, 9, func(int32) error {
		if n++; n == 2 {
			return ErrStopString
		}
		return nil
	})
	if err != nil || res.Reason != StopString || res.Tokens != 2 || len(chat.cached) != 4 {
		t.Errorf("got %+v, %v, %d tokens cached", res, err, len(chat.cached))
	}
	if _, err := chat.Answer(t.Context(), make([]int32, r.Context()+1), 1, nil); err == nil {
		t.Error("a prompt that does not fit passed")
	}
}
