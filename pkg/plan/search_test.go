package plan

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"substrate/pkg/doc"
)

// drawProblem makes a small problem of dense ops and, perhaps, a layer of
// experts. Levels have one record, or two of which the first may be resident
// alone.
func drawProblem(t *rapid.T, experts int) *problem {
	p := &problem{speeds: newSpeeds(nil, 0), opt: &Options{SlotPeriod: 16}, table: &doc.Table{}, experts: map[expertsAt]amounts{}}
	add := func(kind doc.Kind, layer int, levels []level) {
		i := len(p.items)
		p.items = append(p.items, item{
			op:     &doc.Op{ID: fmt.Sprintf("block_0.op_%d", i), Kind: kind},
			levels: levels, share: 1, streams: kind != doc.KindEmbedding,
		})
		p.layerOf = append(p.layerOf, layer)
		p.place = append(p.place, 0)
		if layer < 0 {
			p.dense = append(p.dense, i)
		}
	}
	kinds := []doc.Kind{doc.KindEmbedding, doc.KindAttention, doc.KindMLPDense}
	for range rapid.IntRange(1, 5).Draw(t, "ops") {
		add(rapid.SampledFrom(kinds).Draw(t, "kind"), -1, drawLevels(t, true))
	}
	if experts == 0 {
		p.worstKL = worstOf(p.items)
		return p
	}
	l := moeLayer{topK: 1, hit: make([]float64, experts+1), popular: make([]float64, experts+1)}
	shape := drawLevels(t, false) // experts are alike but for their losses
	for e := range experts {
		factor := rapid.Float64Range(0.1, 3).Draw(t, "factor")
		levels := append([]level(nil), shape...)
		for j := range levels {
			levels[j].kl *= factor
		}
		add(doc.KindMoEExpert, 0, levels)
		p.items[len(p.items)-1].share = float64(l.topK) / float64(experts)
		l.experts = append(l.experts, len(p.items)-1)
		p.place[len(p.items)-1] = e
		l.hit[e+1] = min(1, l.hit[e]+rapid.Float64Range(0, 0.5).Draw(t, "hit"))
		l.popular[e+1] = float64(e+1) / float64(experts)
	}
	l.hit[experts] = 1
	l.classify(p.items, rapid.IntRange(1, 3).Draw(t, "classes"))
	l.upgrades = p.buildUpgrades(&l)
	p.layers = []moeLayer{l}
	p.pricer = newLayerPricer(p)
	p.worstKL = worstOf(p.items)
	return p
}

func drawLevels(t *rapid.T, stacked bool) []level {
	var levels []level
	bytes, kl := int64(0), rapid.Float64Range(0.01, 1).Draw(t, "kl")
	for j := range rapid.IntRange(1, 4).Draw(t, "levels") {
		bytes += int64(rapid.IntRange(1, 40).Draw(t, "bytes")) * 4096
		l := level{id: fmt.Sprint("q", j), encodings: []string{fmt.Sprint("q", j)}, records: []int64{bytes}, bytes: bytes, kl: kl, computeNs: float64(bytes) / 8}
		kl *= rapid.Float64Range(0, 0.9).Draw(t, "fall")
		if stacked && j > 0 && rapid.Bool().Draw(t, "stacked") {
			below := levels[j-1].records[0]
			l.encodings, l.records = []string{levels[j-1].encodings[0], fmt.Sprint("r", j)}, []int64{below, bytes - below}
		}
		levels = append(levels, l)
	}
	return levels
}

// exhaust tries every solution of a mode and returns the least KL within the
// limits, +Inf if none is.
func exhaust(p *problem, m mode, lim limits) float64 {
	s := newSearch(p, m)
	best := math.Inf(1)
	sol := p.newSolution()
	var visit func(i int)
	leaf := func() {
		if u := p.use(sol); lim.hold(&u) && fewClasses(p, sol) {
			best = min(best, u.kl)
		}
	}
	// Experts of the layer: resident at any level, or streamed at one common
	// level through any number of slots.
	layer := func(streamed int) {
		l := &p.layers[0]
		var expert func(j, residents int)
		expert = func(j, residents int) {
			if j < len(l.experts) {
				e := l.experts[j]
				for lv := range p.items[e].levels {
					sol.picks[e] = p.items[e].whole(lv)
					expert(j+1, residents+1)
				}
				if streamed >= 0 {
					sol.picks[e] = pick{streamed, 0}
					expert(j+1, residents)
				}
				return
			}
			sol.banks[0] = bank{}
			if residents == len(l.experts) {
				leaf()
				if m.slots {
					for _, up := range l.upgrades {
						sol.banks[0] = up.bank
						leaf()
					}
				}
				return
			}
			for slots := l.topK; slots+residents <= len(l.experts); slots++ {
				sol.banks[0] = bank{slots: slots, tier: 0, bytes: p.items[l.experts[0]].levels[streamed].bytes}
				leaf()
			}
		}
		expert(0, 0)
	}
	visit = func(i int) {
		if i < len(p.dense) {
			for _, c := range s.denseChoices(&p.items[p.dense[i]]) {
				sol.picks[p.dense[i]] = c.pick
				visit(i + 1)
			}
			return
		}
		if len(p.layers) == 0 {
			leaf()
			return
		}
		layer(-1)
		if m.slots {
			for lv := range p.items[p.layers[0].experts[0]].levels {
				layer(lv)
			}
		}
	}
	visit(0)
	return best
}

// fewClasses reports whether the experts take no more levels than they may.
func fewClasses(p *problem, sol *solution) bool {
	for n := range p.layers {
		taken := map[string]bool{}
		for _, e := range p.layers[n].experts {
			taken[p.items[e].levels[sol.picks[e].level].id] = true
		}
		if len(taken) > p.layers[n].limit {
			return false
		}
	}
	return true
}

func drawLimits(t *rapid.T, p *problem) limits {
	var most int64
	var slow float64
	for i := range p.items {
		top := p.items[i].levels[len(p.items[i].levels)-1]
		most += top.bytes
		slow += top.computeNs
	}
	lim := limits{ram: int64(rapid.Float64Range(0.1, 1.1).Draw(t, "ram") * float64(most))}
	if rapid.Bool().Draw(t, "timed") {
		lim.timeNs = rapid.Float64Range(0.5, 50).Draw(t, "time") * slow
	}
	if rapid.Bool().Draw(t, "disk") {
		lim.disk = int64(rapid.Float64Range(0.3, 1.1).Draw(t, "disk bytes") * float64(most))
	}
	return lim
}

// Without streaming and with RAM alone, branch and bound finds the best of
// all solutions.
func TestSolveIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, 0)
		lim := drawLimits(t, p)
		lim.timeNs, lim.disk = 0, 0
		want := exhaust(p, mode{}, lim)
		r := newSearch(p, mode{}).minimise(lim, 20_000_000)
		if (r == nil) != math.IsInf(want, 1) {
			t.Fatalf("solution %v, exhaustive search finds %v", r, want)
		}
		if r != nil && (r.use.kl < want*(1-1e-9) || r.use.kl > want*(1+1e-5)+1e-15) {
			t.Fatalf("KL %v, exhaustive search finds %v", r.use.kl, want)
		}
	})
}

// In every mode and with every limit, what is found holds the limits, and the
// bound is below the best of all solutions.
func TestBoundsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, rapid.IntRange(0, 3).Draw(t, "experts"))
		lim := drawLimits(t, p)
		m := mode{slots: true}
		if rapid.Bool().Draw(t, "ring") {
			m.ringMax = int64(rapid.IntRange(1, 100).Draw(t, "ringMax")) * 4096
		}
		want := exhaust(p, m, lim)
		s := newSearch(p, m)
		if r := s.price(lim, prices{}, nil, math.Inf(1)); r.bound > want*(1+1e-9)+1e-15 {
			t.Fatalf("bound %v of the relaxation is above the best, %v", r.bound, want)
		}
		r := newSearch(p, m).minimise(lim, 1_000_000)
		if r == nil {
			return
		}
		if !lim.hold(&r.use) {
			t.Fatalf("%+v exceeds %+v", r.use, lim)
		}
		if r.use.kl < want*(1-1e-9)-1e-15 {
			t.Fatalf("KL %v is below the best, %v", r.use.kl, want)
		}
		if r.bound > want*(1+1e-9)+1e-15 {
			t.Fatalf("bound %v is above the best, %v", r.bound, want)
		}
	})
}

// The sums that a search keeps are those of adding up from scratch.
func TestRelaxAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, rapid.IntRange(0, 5).Draw(t, "experts"))
		s := newSearch(p, mode{slots: true, ringMax: 1 << 20})
		price := func(name string, most float64) float64 {
			return math.Exp(rapid.Float64Range(-40, math.Log(most)).Draw(t, name))
		}
		pr := prices{ram: price("ram", 1e-3), compute: price("compute", 1e-3), ring: price("ring", 1e-3), demand: price("demand", 1e-3)}
		sol := s.solution(pr)
		got := s.relax(pr)
		want := p.use(sol)
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(1+math.Abs(b)) }
		if got.disk != want.disk || !near(got.kl, want.kl) || !near(got.computeNs, want.computeNs) || !near(got.ringNs, want.ringNs) {
			t.Fatalf("relax says %+v, adding up %+v", got, want)
		}
		total := want.minus(&usage{ring: want.ring})
		if a, b := got.at(&pr), total.at(&pr); a > b*(1+1e-9) {
			t.Fatalf("relax says a cost of %v, adding up %v", a, b)
		}
		if s.ring < want.ring {
			t.Fatalf("%d bytes are set aside for a ring of %d", s.ring, want.ring)
		}
		// Moves of the filler leave what adding up gives, too.
		f := newFiller(s, sol, limits{ram: math.MaxInt64})
		for range 5 {
			i := rapid.IntRange(0, len(p.items)-1).Draw(t, "item")
			to := p.items[i].whole(rapid.IntRange(0, len(p.items[i].levels)-1).Draw(t, "level"))
			if u, ok := f.fits(i, to); ok {
				f.make(move{item: i, to: to}, u)
			}
		}
		want = p.use(sol)
		if f.use.ram() != want.ram() || f.use.disk != want.disk || !near(f.use.kl, want.kl) || !near(f.use.timeNs(), want.timeNs()) {
			t.Fatalf("the filler says %+v, adding up %+v", f.use, want)
		}
	})
}
