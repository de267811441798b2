package plan

import (
	"math"
	"slices"

	"substrate/pkg/footprint"
)

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

// mode says which ways of streaming a search may use. What the ring takes
// depends on the largest ops that stream, so each mode has a largest one.
type mode struct {
	ringMax   int64 // largest bytes that a dense op may stream; 0: none
	ringLeast int64 // at least what the ring takes if an op streams more than the mode below allows
	slots     bool  // of layers: experts that are not resident, upgrades of those that are
}

// search decides all items for given prices within one mode.
type search struct {
	p       *problem
	mode    mode
	ring    int64      // bytes set aside for the ring: at most what it takes
	choices [][]choice // per item, of dense ones
	options [][]layerOption
	compute float64 // price that the options are for
	work    int     // choices looked at so far
}

func newSearch(p *problem, m mode) *search {
	s := &search{p: p, mode: m, choices: make([][]choice, len(p.items)), compute: -1}
	for _, i := range p.dense {
		s.choices[i] = s.denseChoices(&p.items[i])
	}
	s.ring = s.ringReserve()
	return s
}

// ringReserve is the ring if every op streams the most that it may.
func (s *search) ringReserve() int64 {
	var most []int64
	for _, i := range s.p.dense {
		n := int64(0)
		for _, c := range s.choices[i] {
			n = max(n, c.streamed)
		}
		if n > 0 {
			most = append(most, n)
		}
	}
	return footprint.RingBytes(most)
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
	return slices.DeleteFunc(slices.Clone(cs), func(c choice) bool {
		return slices.ContainsFunc(cs, func(d choice) bool { return d.beats(&c) })
	})
}

// beats reports whether d is as good as c in everything and better in
// something.
func (d *choice) beats(c *choice) bool {
	return d.kl <= c.kl && d.ram <= c.ram && d.disk <= c.disk && d.computeNs <= c.computeNs && d.streamed <= c.streamed &&
		(d.kl < c.kl || d.ram < c.ram || d.disk < c.disk || d.computeNs < c.computeNs || d.streamed < c.streamed)
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
	for _, i := range s.p.dense {
		cs := s.choices[i]
		s.work += len(cs)
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
		if out != nil {
			out.picks[i] = best.pick
		}
	}
	r.usage.ring = s.ring
	for n := range s.options {
		c := s.relaxLayer(n, &pr)
		r.cost += c.bound
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
	for n := range s.p.layers {
		s.work += 100 * len(s.p.layers[n].experts)
	}
	s.options = make([][]layerOption, len(s.p.layers))
	for n := range s.p.layers {
		s.options[n] = s.layerOptions(n, compute)
	}
}

// relaxLayer takes the cheapest option of a layer, with the least bound of
// all.
func (s *search) relaxLayer(n int, pr *prices) chosen {
	s.work += len(s.options[n]) * 64
	var best chosen
	bound := math.Inf(1)
	for i := range s.options[n] {
		c := s.decide(n, &s.options[n][i], pr)
		bound = min(bound, c.bound)
		if i == 0 || c.cost < best.cost {
			best = c
		}
	}
	best.bound = bound
	return best
}
