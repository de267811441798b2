package doc

import "slices"

// Bounds of what documents may say, generous for any model of today, so that
// a hostile document cannot ask for absurd work.
const (
	MaxTiers         = 3
	MaxLayers        = 1 << 12
	MaxExperts       = 1 << 14
	MaxContextTokens = 1 << 24
	MaxDimension     = 1 << 24 // rows or columns of a tensor
	MaxRouteGroups   = 64      // of a router's experts
	MaxParts         = 3       // records that add up to one level
)

// Objectives of a plan.
const (
	ObjectiveKL  = "kl"  // least KL within the budget
	ObjectiveCap = "cap" // stop spending once the quality cap is met
)

func validKind(k Kind) bool {
	return slices.Contains([]Kind{
		KindEmbedding, KindNorm, KindAttention, KindMLPDense, KindMoERouter,
		KindMoEExpert, KindMoEShared, KindMoEDispatch, KindLMHead,
	}, k)
}

func validSource(s string) bool {
	return slices.Contains([]string{SourceMeasured, SourceSplit, SourcePrior, SourceSynthetic}, s)
}

// indexEncodings validates the encodings of a document and returns their ids.
func indexEncodings(encodings []Encoding) (map[string]bool, error) {
	var c checker
	ids := make(map[string]bool, len(encodings))
	for i := range encodings {
		e := &encodings[i]
		if err := e.Validate(); err != nil {
			c.fail(at("encodings", i), "%w", err)
		} else if ids[e.ID] {
			c.fail(at("encodings", i, "id"), "encoding %q occurs twice", e.ID)
		}
		if c.err != nil {
			return nil, c.err
		}
		ids[e.ID] = true
	}
	return ids, nil
}
