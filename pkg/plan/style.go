package plan

import (
	"errors"
	"slices"

	"substrate/pkg/doc"
)

// styles lists the best plan of each way to hold the model within the budget,
// and at its speed if one was asked for: everything resident, the experts
// resident with slots for upgrades of them, or what does not fit streamed.
func (s *solver) styles() []doc.Style {
	list := []doc.Style{s.style(doc.StyleStatic)}
	if len(s.problem.layers) > 0 {
		list = append(list, s.style(doc.StyleSkeletons))
	}
	return append(list, s.style(doc.StyleStreamed))
}

func (s *solver) style(style string) doc.Style {
	d := doc.Style{Style: style}
	r, err := s.styled(style).leastAtAnySpeed()
	if err != nil {
		d.Reason = lacking(err)
		return d
	}
	d.OK = true
	q := s.predict(&r.use, nil)
	d.KL, d.ReadBytesPerToken = q.KL, q.ReadBytesPerToken
	d.TokensPerSec, d.TokensPerSecLow, d.TokensPerSecHigh = q.TokensPerSec, q.TokensPerSecLow, q.TokensPerSecHigh
	if u := &r.use; style != doc.StyleStatic && u.slots == 0 && u.ring == 0 {
		d.Reason = "everything is resident: nothing is gained by streaming"
	}
	return d
}

// lacking says why there is no plan of a style.
func lacking(err error) string {
	switch {
	case errors.Is(err, errMemory):
		return "does not fit the memory"
	case errors.Is(err, errTime):
		return "is too slow"
	case errors.Is(err, errDisk):
		return "does not fit the disk"
	}
	return err.Error()
}

// styled is the same solver for plans of one style. It looks for the least KL
// at the speed that was asked for, or at any.
func (s *solver) styled(style string) *solver {
	again, p := *s, *s.problem
	again.opt.Strategy, again.opt.Objective = StrategyOptimal, doc.ObjectiveKL
	again.budget.QualityLossCap = 0
	if style == doc.StyleStatic {
		again.opt.Strategy = StrategyStatic
	}
	p.layers = slices.Clone(p.layers)
	for n := range p.layers {
		switch style {
		case doc.StyleSkeletons:
			p.layers[n].resident = true
		case doc.StyleStreamed:
			p.layers[n].upgrades = nil
		}
	}
	p.pricer, p.experts, p.opt = newLayerPricer(&p), map[expertsAt]amounts{}, &again.opt
	again.problem = &p
	return &again
}
