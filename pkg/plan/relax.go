package plan

import "substrate/pkg/footprint"

// prices turn resources into KL, so that items can be decided one by one:
// nats per byte and per ns.
type prices struct {
	ram, disk             float64
	compute, ring, demand float64
}

// choice is one way to hold a dense item.
type choice struct {
	pick
	kl         float64
	ram, disk  int64
	computeNs  float64
	streamed   int64
	streamedNs float64
}

func (c *choice) cost(pr *prices) float64 {
	return c.kl + pr.ram*float64(c.ram) + pr.disk*float64(c.disk) + pr.compute*c.computeNs + pr.ring*c.streamedNs
}

// mode says which ways of streaming a search may use.
type mode struct {
	ringMax   int64 // largest bytes that a dense op may stream; 0: none
	ringLeast int64 // at least what the ring takes then, for the bound
	slots     bool  // of layers: experts that are not resident, upgrades of those that are
}

// search decides all items for given prices within one mode.
type search struct {
	p       *problem
	mode    mode
	dense   []int      // items
	choices [][]choice // per item, of dense ones
	options [][]layerOption
	compute float64 // price that the options are for
	ring    []int64 // scratch
}

func newSearch(p *problem, m mode) *search {
	s := &search{p: p, mode: m, choices: make([][]choice, len(p.items)), compute: -1}
	for i := range p.items {
		if p.layerOf[i] < 0 {
			s.dense = append(s.dense, i)
			s.choices[i] = s.denseChoices(&p.items[i])
		}
	}
	return s
}

func (s *search) denseChoices(it *item) []choice {
	var cs []choice
	for l := range it.levels {
		level := &it.levels[l]
		for r := len(level.records); r >= 0; r-- {
			c := choice{pick: pick{l, r}, kl: level.kl, disk: level.bytes, computeNs: it.share * level.computeNs}
			c.streamed = it.streamed(c.pick)
			if c.streamed > 0 && (!it.streams || c.streamed > s.mode.ringMax) {
				continue
			}
			c.ram = level.bytes - c.streamed
			c.streamedNs = s.p.speeds.read(float64(c.streamed), c.streamed)
			cs = append(cs, c)
		}
	}
	return cs
}

// relaxed is what all items decided for themselves add up to.
type relaxed struct {
	usage
	cost float64 // at the prices; less the prices of what there is, it bounds KL from below
}

// relax decides every item for itself at the given prices. With a solution it
// writes the decisions there.
func (s *search) relax(pr prices, out *solution) relaxed {
	if pr.compute != s.compute {
		s.price(pr.compute)
	}
	r := relaxed{usage: usage{computeNs: s.p.dispatchNs}, cost: pr.compute * s.p.dispatchNs}
	s.ring = s.ring[:0]
	for _, i := range s.dense {
		cs := s.choices[i]
		best, least := &cs[0], cs[0].cost(&pr)
		for j := 1; j < len(cs); j++ {
			if c := cs[j].cost(&pr); c < least {
				best, least = &cs[j], c
			}
		}
		r.cost += least
		r.kl += best.kl
		r.weights += best.ram
		r.disk += best.disk
		r.computeNs += best.computeNs
		r.ringNs += best.streamedNs
		if best.streamed > 0 {
			s.ring = append(s.ring, best.streamed)
		}
		if out != nil {
			out.picks[i] = best.pick
		}
	}
	r.usage.ring = footprint.RingBytes(s.ring)
	for n := range s.options {
		c := s.relaxLayer(n, &pr)
		r.cost += c.cost
		r.kl += c.kl
		r.weights += c.weights
		r.usage.slots += int64(c.slots) * c.option.bank.bytes
		r.disk += c.disk
		r.computeNs += c.computeNs
		r.ringNs += c.ringNs
		r.demandNs += c.demandNs
		if out != nil {
			s.apply(n, &c, out)
		}
	}
	return r
}

// price builds the layers' options at a price of compute.
func (s *search) price(compute float64) {
	s.compute = compute
	s.options = make([][]layerOption, len(s.p.layers))
	for n := range s.p.layers {
		s.options[n] = s.layerOptions(n, compute)
	}
}

// relaxLayer takes the cheapest option of a layer.
func (s *search) relaxLayer(n int, pr *prices) chosen {
	var best chosen
	for i := range s.options[n] {
		if c := s.decide(n, &s.options[n][i], pr); i == 0 || c.cost < best.cost {
			best = c
		}
	}
	return best
}
