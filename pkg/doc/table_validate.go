package doc

import (
	"math"
	"slices"
)

// Validate checks that the table is well formed. It does not ask that KL fall
// with bits or that every op is measured: the planner cleans and fills.
func (t *Table) Validate() error {
	var c checker
	if err := t.Profile.Validate(); err != nil {
		return within("profile", err)
	}
	for _, h := range []struct{ name, value string }{{"weights_sha256", t.WeightsSHA}, {"statistics_sha256", t.Statistics}} {
		if h.value != "" && !validHash(h.value) {
			c.fail(at(h.name), "%q is not a sha256 in lower-case hex", h.value)
		}
	}
	for i := range t.Data {
		if !validInteger(t.Data[i].Tokens, 0) {
			c.fail(at("data", i, "tokens"), "%d: want 0 to 2^53", t.Data[i].Tokens)
		}
	}
	if !validNumber(t.Int8KL, 0) {
		c.fail(at("int8_activations_kl"), "%v: want a finite number of nats, not negative", t.Int8KL)
	}
	if !validNumber(t.Floor, 0) {
		c.fail(at("kl_floor"), "%v: want a finite number of nats, not negative", t.Floor)
	}
	encodings, err := indexEncodings(t.Encodings)
	if err != nil {
		return err
	}
	levels := t.validateLevels(&c, encodings)
	if c.err == nil {
		t.validateItems(&c, levels)
	}
	if c.err == nil {
		t.validateReuse(&c)
	}
	t.validateKVCaches(&c)
	t.Link.validate(&c)
	return c.err
}

func (t *Table) validateLevels(c *checker, encodings map[string]bool) map[string]bool {
	byID := make(map[string]*Encoding, len(t.Encodings))
	for i := range t.Encodings {
		byID[t.Encodings[i].ID] = &t.Encodings[i]
	}
	levels := make(map[string]bool, len(t.Levels))
	for i := range t.Levels {
		l := &t.Levels[i]
		if levels[l.ID] {
			c.fail(at("levels", i, "id"), "level %q occurs twice", l.ID)
		}
		levels[l.ID] = true
		if len(l.Encodings) < 1 || len(l.Encodings) > MaxParts {
			c.fail(at("levels", i, "encodings"), "level %q adds up %d records: want 1 to %d", l.ID, len(l.Encodings), MaxParts)
		}
		for j, e := range l.Encodings {
			if !encodings[e] {
				c.fail(at("levels", i, "encodings", j), "level %q names encoding %q, which is not in the table", l.ID, e)
			} else if byID[e].Residual != (j > 0) {
				c.fail(at("levels", i, "encodings", j), "level %q: encoding %q at place %d: want a skeleton first, then residuals", l.ID, e, j)
			}
		}
		if want := LevelID(l.Encodings); l.ID != want {
			c.fail(at("levels", i, "id"), "level %q: id does not match its encodings, want %q", l.ID, want)
		}
	}
	return levels
}

func (t *Table) validateItems(c *checker, levels map[string]bool) {
	ops := make(map[string]int, len(t.Profile.Ops))
	for i := range t.Profile.Ops {
		ops[t.Profile.Ops[i].ID] = i
	}
	last := -1
	for i := range t.Items {
		it := &t.Items[i]
		op, ok := ops[it.Op]
		switch {
		case !ok:
			c.fail(at("items", i, "op"), "op %q is not in the profile", it.Op)
		case op <= last:
			c.fail(at("items", i, "op"), "op %q is out of the profile's order or occurs twice", it.Op)
		case len(t.Profile.Ops[op].Tensors) == 0:
			c.fail(at("items", i, "op"), "op %q owns no record", it.Op)
		}
		last = op
		if !validNumber(it.GateMass, 0) || it.GateMass > 1+1e-6 || !validNumber(it.HitShare, 0) || it.HitShare > 1+1e-6 {
			c.fail(at("items", i), "op %q: gate mass %v, hit share %v: want 0 to 1", it.Op, it.GateMass, it.HitShare)
		}
		if len(it.Levels) == 0 {
			c.fail(at("items", i, "levels"), "op %q has no level", it.Op)
		}
		seen := make(map[string]bool, len(it.Levels))
		for j := range it.Levels {
			l := &it.Levels[j]
			if !levels[l.Level] || seen[l.Level] {
				c.fail(at("items", i, "levels", j, "level"), "op %q: level %q is not in the table or occurs twice", it.Op, l.Level)
			}
			seen[l.Level] = true
			if !validInteger(l.RAMBytes, 1) || !validInteger(l.DiskBytes, 1) {
				c.fail(at("items", i, "levels", j), "op %q level %q: %d RAM and %d disk bytes: want 1 to 2^53", it.Op, l.Level, l.RAMBytes, l.DiskBytes)
			}
			// A measured KL may be below zero by its error; the planner cleans it.
			if !finite(l.KL) || !validNumber(l.KLError, 0) {
				c.fail(at("items", i, "levels", j, "kl"), "op %q level %q: kl %v, error %v: want finite numbers", it.Op, l.Level, l.KL, l.KLError)
			}
			if !validSource(l.Source) {
				c.fail(at("items", i, "levels", j, "source"), "op %q level %q: source %q is not known here", it.Op, l.Level, l.Source)
			}
		}
		if c.err != nil {
			return
		}
	}
}

func (t *Table) validateKVCaches(c *checker) {
	seen := map[string]bool{}
	for i := range t.KVCaches {
		kv := &t.KVCaches[i]
		known := slices.ContainsFunc(t.Profile.KVCaches, func(k KVCache) bool { return k.Type == kv.Type })
		switch {
		case !known || seen[kv.Type]:
			c.fail(at("kv_caches", i, "type"), "type %q is not in the profile or occurs twice", kv.Type)
		case !finite(kv.KL) || !validNumber(kv.KLError, 0):
			c.fail(at("kv_caches", i, "kl"), "type %q: kl %v, error %v: want finite numbers", kv.Type, kv.KL, kv.KLError)
		case !validSource(kv.Source):
			c.fail(at("kv_caches", i, "source"), "type %q: source %q is not known here", kv.Type, kv.Source)
		}
		seen[kv.Type] = true
	}
}

func (t *Table) validateReuse(c *checker) {
	seen := make(map[int]bool, len(t.Reuse))
	experts := t.Profile.Architecture.Experts
	for i := range t.Reuse {
		r := &t.Reuse[i]
		if seen[r.Layer] || !t.Profile.Architecture.MoE(r.Layer) {
			c.fail(at("reuse_curves", i, "layer"), "layer %d occurs twice or has no experts", r.Layer)
		}
		seen[r.Layer] = true
		if len(r.HitRate) != experts+1 {
			c.fail(at("reuse_curves", i, "hit_rate"), "layer %d has %d rates: want one for each of 0 to %d slots", r.Layer, len(r.HitRate), experts)
		}
		for j, h := range r.HitRate {
			if !validNumber(h, 0) || h > 1 {
				c.fail(at("reuse_curves", i, "hit_rate", j), "layer %d, %d slots: %v: want 0 to 1", r.Layer, j, h)
			}
		}
		if n := len(r.UpgradeRate); n != 0 && n != experts+1 {
			c.fail(at("reuse_curves", i, "upgrade_rate"), "layer %d has %d rates: want none, or one for each of 0 to %d slots", r.Layer, n, experts)
		}
		for j, h := range r.UpgradeRate {
			if !validNumber(h, 0) || h > 1 {
				c.fail(at("reuse_curves", i, "upgrade_rate", j), "layer %d, %d slots: %v: want 0 to 1", r.Layer, j, h)
			}
		}
	}
}

func (l *Link) validate(c *checker) {
	if !validNumber(l.Scale, math.SmallestNonzeroFloat64) || !validNumber(l.Exponent, math.SmallestNonzeroFloat64) {
		c.fail(at("link"), "scale %v, exponent %v: want finite numbers above 0, so that KL rises with the sum", l.Scale, l.Exponent)
	}
	if !validNumber(l.Error, 0) || l.Plans < 0 {
		c.fail(at("link"), "relative_error %v, plans %d: none may be negative", l.Error, l.Plans)
	}
}

// KL maps a sum of item KLs to that of the whole plan.
func (l *Link) KL(sum float64) float64 {
	if sum <= 0 {
		return 0
	}
	return l.Scale * math.Pow(sum, l.Exponent)
}
