package plan

import (
	"slices"

	"substrate/pkg/footprint"
)

// prices turn resources into KL, so that items can be decided one by one:
// nats per byte and per ns.
type prices struct {
	ram, disk             float64
	compute, ring, demand float64
}

func (a prices) plus(b prices) prices {
	return prices{a.ram + b.ram, a.disk + b.disk, a.compute + b.compute, a.ring + b.ring, a.demand + b.demand}
}

func (a prices) minus(b prices) prices { return a.plus(b.times(-1)) }

func (a prices) times(f float64) prices {
	return prices{f * a.ram, f * a.disk, f * a.compute, f * a.ring, f * a.demand}
}

// choice is one way to hold a dense item.
type choice struct {
	pick
	amounts
	streamed int64
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
	work    int        // choices looked at so far
}

func newSearch(p *problem, m mode) *search {
	s := &search{p: p, mode: m, choices: make([][]choice, len(p.items))}
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
			c := choice{pick: pick{l, r}}
			c.streamed = it.streamed(c.pick)
			if c.streamed > 0 && (!it.streams || c.streamed > s.mode.ringMax) {
				continue
			}
			c.kl, c.computeNs = level.kl, it.share*level.computeNs
			c.ram, c.disk = level.bytes-c.streamed, level.disk()
			c.ringNs = s.p.speeds.read(float64(c.streamed), c.streamed)
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

// relax is what all items decided for themselves at the prices take. It costs
// the least at these prices that any solution of the mode does, the ring
// apart, and so, less the prices of what there is, bounds KL from below.
func (s *search) relax(pr prices) amounts {
	sum := amounts{computeNs: s.p.dispatchNs}
	for _, i := range s.p.dense {
		sum.add(&s.cheapest(i, &pr).amounts)
	}
	if len(s.p.layers) > 0 {
		experts := s.experts(pr)
		sum.add(&experts)
	}
	return sum
}

// cheapest is the choice of a dense item that costs least.
func (s *search) cheapest(i int, pr *prices) *choice {
	cs := s.choices[i]
	s.work += len(cs)
	best, least := &cs[0], cs[0].at(pr)
	for j := 1; j < len(cs); j++ {
		if v := cs[j].at(pr); v < least {
			best, least = &cs[j], v
		}
	}
	return best
}

// experts is what all layers of experts take at the prices. Other modes and
// limits ask for the same prices again.
func (s *search) experts(pr prices) amounts {
	key := expertsAt{pr, s.mode.slots}
	sum, ok := s.p.experts[key]
	if ok {
		return sum
	}
	for n := range s.p.layers {
		c := s.p.pricer.decide(n, &pr, s.mode.slots)
		sum.add(&c.amounts)
		s.work += 32 * len(s.p.layers[n].experts)
	}
	s.p.experts[key] = sum
	return sum
}

// expertsAt is what the experts' amounts depend on.
type expertsAt struct {
	prices
	slots bool
}

// solution writes down what the items decide at the prices.
func (s *search) solution(pr prices) *solution {
	sol := s.p.newSolution()
	for _, i := range s.p.dense {
		sol.picks[i] = s.cheapest(i, &pr).pick
	}
	for n := range s.p.layers {
		c := s.p.pricer.decide(n, &pr, s.mode.slots)
		s.p.pricer.write(n, &c, sol)
		s.work += 32 * len(s.p.layers[n].experts)
	}
	return sol
}
