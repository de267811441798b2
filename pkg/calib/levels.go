package calib

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"substrate/pkg/doc"
	"substrate/pkg/quant"
)

// LevelSpec says which levels are measured.
type LevelSpec struct {
	// Levels are widths in bits, joined by + for a skeleton with residuals:
	// "2", "4", "16", "2+2", "3+2"; a width may have a group of its own, as in
	// "3+2g128".
	Levels []string
	Group  int
	Scale  string // "bf16", "f16"
	Fit    string // "minmax", "lsq", "gptq"
}

// Expand returns the levels with the encodings they need, sorted by id so
// that equal specifications give equal tables.
func (s LevelSpec) Expand() ([]doc.Encoding, []doc.Level, error) {
	encodings := map[string]doc.Encoding{}
	levels := map[string]doc.Level{}
	for _, text := range s.Levels {
		var l doc.Level
		for i, part := range strings.Split(text, "+") {
			width, group, ok := strings.Cut(part, "g")
			bits, err := strconv.Atoi(width)
			own := s
			if ok && err == nil {
				own.Group, err = strconv.Atoi(group)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("level %q: want widths in bits such as 4, 3+2 or 4g32", text)
			}
			e, err := own.encoding(bits, i > 0)
			if err != nil {
				return nil, nil, fmt.Errorf("level %q: %w", text, err)
			}
			encodings[e.ID] = e
			l.Encodings = append(l.Encodings, e.ID)
		}
		l.ID = doc.LevelID(l.Encodings)
		levels[l.ID] = l
	}
	var es []doc.Encoding
	for _, id := range slices.Sorted(maps.Keys(encodings)) {
		es = append(es, encodings[id])
	}
	var ls []doc.Level
	for _, id := range slices.Sorted(maps.Keys(levels)) {
		ls = append(ls, levels[id])
	}
	return es, ls, nil
}

func (s LevelSpec) encoding(bits int, residual bool) (doc.Encoding, error) {
	e := doc.Encoding{Bits: bits, Group: s.Group, Scale: s.Scale, Fit: s.Fit, Residual: residual}
	version, ok := quant.FitVersion(s.Fit)
	if !ok {
		return e, fmt.Errorf("fit %q: want gptq, lsq or minmax", s.Fit)
	}
	e.FitVersion = version
	if bits >= 16 {
		if residual {
			return e, fmt.Errorf("a residual has 8 bits at most")
		}
		e.Group, e.Fit, e.FitVersion = 0, "none", 0
	}
	e.ID = doc.EncodingID(&e)
	return e, e.Validate()
}
