package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
)

// level is one precision of an item.
type level struct {
	id        string
	encodings []string // skeleton first
	records   []int64  // bytes of each, in RAM and on disk
	bytes     int64    // sum of records
	kl        float64  // nats per token, cleaned: finite, not negative
	klError   float64
	computeNs float64 // one token through the op
	source    string
}

// extends reports whether l is other with further residuals on top, so that
// going there costs only those.
func (l *level) extends(other *level) bool {
	return len(l.encodings) > len(other.encodings) && slices.Equal(l.encodings[:len(other.encodings)], other.encodings)
}

// disk is what the level takes in the store: nothing for a type of KV cache.
func (l *level) disk() int64 {
	if len(l.records) == 0 {
		return 0
	}
	return l.bytes
}

// delta is the RAM that moving from one level to another takes while both are
// live: the residuals on top, or the whole of a replacement.
func delta(from, to *level) int64 {
	if to.extends(from) {
		return to.bytes - from.bytes
	}
	return to.bytes
}

// item is what the planner decides on: an op that owns a record, or the type
// of the KV cache.
type item struct {
	op     *doc.Op // nil: the KV cache
	levels []level // ascending by bytes, then KL
	share  float64 // expected runs per token: 1, or an expert's hit share
	mass   float64 // gate mass of an expert
	// streams says that the op's records may pass through the ring. An
	// embedding is read by row or, tied, at both ends of a token: it stays.
	streams bool
	pinned  bool // by a policy: levels were taken away
}

// moeLayer is a block's experts.
type moeLayer struct {
	layer   int
	experts []int     // items
	share   []float64 // expected runs of each expert per token
	topK    int       // experts of one token
	hit     []float64 // hit rate of an LRU of 0..len(experts) slots; not falling
	popular []float64 // share of requests to the 0..len(experts) most used experts
	upgrade []float64 // share of squared gate that 0..len(experts) slots for upgrades serve; nil where it was not measured

	classes  classes
	limit    int       // classes that the experts may take together
	resident bool      // all of them, whatever the mode is
	upgrades []upgrade // banks for upgrades
	ids      int       // different levels of the experts
	idOf     [][]int   // per expert and level: number of the level among those
}

// buildItems turns the table into items, and counts the levels whose KL made
// no sense: negative, or above that of a cheaper dedicated level.
func buildItems(t *doc.Table, sp *speeds) (items []item, cleaned int, err error) {
	rows := make(map[string]*doc.Item, len(t.Items))
	for i := range t.Items {
		rows[t.Items[i].Op] = &t.Items[i]
	}
	b := itemBuilder{
		speeds:    sp,
		encodings: make(map[string]*doc.Encoding, len(t.Encodings)),
		named:     make(map[string]*doc.Level, len(t.Levels)),
	}
	for i := range t.Encodings {
		b.encodings[t.Encodings[i].ID] = &t.Encodings[i]
	}
	for i := range t.Levels {
		b.named[t.Levels[i].ID] = &t.Levels[i]
	}
	shared := map[string]bool{}
	for i := range t.Profile.Ops {
		if s := t.Profile.Ops[i].Shares; s != "" {
			shared[s] = true
		}
	}
	for i := range t.Profile.Ops {
		op := &t.Profile.Ops[i]
		if len(op.Tensors) == 0 {
			continue
		}
		row := rows[op.ID]
		if row == nil {
			return nil, 0, &TableError{Op: op.ID, Reason: "has no item in the table: measure it"}
		}
		it := item{op: op, share: 1, mass: row.GateMass, streams: op.Kind != doc.KindEmbedding}
		if op.Kind == doc.KindMoEExpert {
			it.share = row.HitShare
		}
		n, err := b.fill(&it, row, shared[op.ID])
		if err != nil {
			return nil, 0, err
		}
		cleaned += n
		items = append(items, it)
	}
	if len(items) == 0 {
		return nil, 0, &TableError{Reason: "the table has no items"}
	}
	return items, cleaned, nil
}

// kvItem is the type of the KV cache as an item, of the types that the table
// knows the losses of; ok is false if there is nothing to decide. Its levels
// take what a type takes above the smallest.
func kvItem(t *doc.Table, context int) (it item, cleaned int, ok bool) {
	if len(t.KVCaches) < 2 {
		return item{}, 0, false
	}
	it.share = 1
	for _, kv := range t.KVCaches {
		bytes, err := footprint.KVBytes(&t.Profile, kv.Type, context)
		if err != nil {
			continue // validated
		}
		l := level{id: kv.Type, bytes: bytes, kl: kv.KL, klError: kv.KLError, source: kv.Source}
		if l.kl < 0 {
			l.kl = 0
			cleaned++
		}
		it.levels = append(it.levels, l)
	}
	slices.SortStableFunc(it.levels, func(a, b level) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.kl, b.kl), strings.Compare(a.id, b.id))
	})
	cleaned += clean(it.levels)
	least := it.levels[0].bytes
	for i := range it.levels {
		it.levels[i].bytes -= least
	}
	return it, cleaned, true
}

type itemBuilder struct {
	speeds    *speeds
	encodings map[string]*doc.Encoding
	named     map[string]*doc.Level
	like      *doc.Op // the op that levels are of
	levels    map[string]level
}

// level is one of op, without what it loses. Neighbouring ops of equal
// shapes, such as the experts of a layer, share the arithmetic.
func (b *itemBuilder) level(op *doc.Op, id string, tied bool) (level, error) {
	if b.like == nil || !sameShape(b.like, op) {
		b.like, b.levels = op, make(map[string]level, len(b.named))
	}
	if l, ok := b.levels[id]; ok {
		return l, nil
	}
	var l level
	for _, name := range b.named[id].Encodings {
		e := b.encodings[name]
		n, err := footprint.RecordBytes(op, e)
		if err != nil {
			return l, &TableError{Op: op.ID, Reason: err.Error()}
		}
		if n == 0 {
			continue // a residual of an op that is dense at every level
		}
		l.encodings = append(l.encodings, name)
		l.records = append(l.records, n)
		l.bytes += n
		l.computeNs += b.speeds.record(op, e, tied)
	}
	l.id = doc.LevelID(l.encodings)
	b.levels[id] = l
	return l, nil
}

func sameShape(a, b *doc.Op) bool {
	return a.Kind == b.Kind && slices.EqualFunc(a.Tensors, b.Tensors, func(s, t doc.Tensor) bool {
		return s.Role == t.Role && s.Rows == t.Rows && s.Cols == t.Cols && s.Keep == t.Keep && s.DType == t.DType
	})
}

// fill adds the levels of a table row, cleaned, and returns how many had to be.
func (b *itemBuilder) fill(it *item, row *doc.Item, tied bool) (cleaned int, err error) {
	it.levels = make([]level, 0, len(row.Levels))
	for i := range row.Levels {
		r := &row.Levels[i]
		l, err := b.level(it.op, r.Level, tied)
		if err != nil {
			return 0, err
		}
		l.kl, l.klError, l.source = r.KL, r.KLError, r.Source
		if l.kl < 0 {
			l.kl = 0
			cleaned++
		}
		if l.bytes != r.RAMBytes {
			return 0, &TableError{Op: it.op.ID, Reason: fmt.Sprintf("level %q takes %d bytes in the table and %d by the formulas of this version: measure again", r.Level, r.RAMBytes, l.bytes)}
		}
		it.levels = append(it.levels, l)
	}
	slices.SortStableFunc(it.levels, func(a, b level) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.kl, b.kl), strings.Compare(a.id, b.id))
	})
	it.levels = slices.CompactFunc(it.levels, func(a, b level) bool { return a.id == b.id })
	return cleaned + clean(it.levels), nil
}

// clean lowers the KL of a dedicated level to that of the best cheaper
// dedicated one: more bits do not lose more, measurements err. It returns how
// many it lowered. Stacked levels stay as they are: a residual may well be
// worse than a dedicated code of the same bytes.
func clean(levels []level) (lowered int) {
	best := math.Inf(1)
	for i := range levels {
		l := &levels[i]
		if len(l.encodings) > 1 {
			continue
		}
		if l.kl > best {
			l.kl = best
			lowered++
		}
		best = l.kl
	}
	return lowered
}

// buildLayers groups the experts by block, each of which may take at most
// limit classes.
func buildLayers(t *doc.Table, items []item, limit int) []moeLayer {
	index := map[int]int{}
	var layers []moeLayer
	for i := range items {
		if items[i].op.Kind != doc.KindMoEExpert {
			continue
		}
		n, ok := index[items[i].op.Layer]
		if !ok {
			n = len(layers)
			index[items[i].op.Layer] = n
			layers = append(layers, moeLayer{layer: items[i].op.Layer})
		}
		layers[n].experts = append(layers[n].experts, i)
	}
	for n := range layers {
		l := &layers[n]
		l.topK = min(max(1, t.Profile.Architecture.ExpertsPerToken), len(l.experts))
		l.popular = popularity(items, l)
		l.hit = reuse(t, l)
		if i := slices.IndexFunc(t.Reuse, func(r doc.ReuseCurve) bool { return r.Layer == l.layer }); i >= 0 {
			l.upgrade = t.Reuse[i].UpgradeRate
		}
		l.classify(items, limit)
	}
	return layers
}

// classify finds the classes of the layer's experts.
func (l *moeLayer) classify(items []item, limit int) {
	for _, e := range l.experts {
		l.share = append(l.share, items[e].share)
	}
	l.classes = buildClasses(items, l.experts)
	l.number(items)
	l.limit = min(limit, len(l.classes.bytes))
	if !l.classes.cover(l.limit) {
		l.limit = len(l.classes.bytes)
	}
}

// number gives every different level of the layer's experts a number.
func (l *moeLayer) number(items []item) {
	numbers := map[string]int{}
	for _, e := range l.experts {
		row := make([]int, len(items[e].levels))
		for m := range row {
			id := items[e].levels[m].id
			n, ok := numbers[id]
			if !ok {
				n = len(numbers)
				numbers[id] = n
			}
			row[m] = n
		}
		l.idOf = append(l.idOf, row)
	}
	l.ids = len(numbers)
}

// popularity is the share of a layer's requests that go to its n most used
// experts.
func popularity(items []item, l *moeLayer) []float64 {
	shares := make([]float64, len(l.experts))
	var sum float64
	for i, e := range l.experts {
		shares[i] = items[e].share
		sum += shares[i]
	}
	slices.SortFunc(shares, func(a, b float64) int { return cmp.Compare(b, a) })
	popular := make([]float64, len(shares)+1)
	for i, s := range shares {
		if sum > 0 {
			s /= sum
		} else {
			s = 1 / float64(len(shares))
		}
		popular[i+1] = min(1, popular[i]+s)
	}
	return popular
}

// reuse is the layer's curve of hit rates, made not to fall with slots. A
// layer without a measured curve gets the hit rate of slots that hold random
// experts, which an LRU does not fall below by much.
func reuse(t *doc.Table, l *moeLayer) []float64 {
	hit := make([]float64, len(l.experts)+1)
	i := slices.IndexFunc(t.Reuse, func(r doc.ReuseCurve) bool { return r.Layer == l.layer })
	for s := range hit {
		if i >= 0 {
			hit[s] = t.Reuse[i].HitRate[min(s, len(t.Reuse[i].HitRate)-1)]
		} else {
			hit[s] = float64(s) / float64(len(l.experts))
		}
		if s > 0 {
			hit[s] = max(hit[s], hit[s-1])
		}
	}
	hit[len(l.experts)] = 1 // once everything is there
	return hit
}

// TableError says what is wrong with a table that is well formed.
type TableError struct {
	Op     string // "" where it is the whole table
	Reason string
}

func (e *TableError) Error() string {
	if e.Op == "" {
		return "table: " + e.Reason
	}
	return fmt.Sprintf("table: op %s %s", e.Op, e.Reason)
}

// ExitCode is that of a bad document.
func (e *TableError) ExitCode() int { return 3 }
