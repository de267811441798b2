package doc

import "slices"

// certificate checks that the numbers of a certificate are sound and fit the
// plan. Whether its bounds hold is checked against the table, by sb-plan check.
func (v *planValidator) certificate() {
	c := v.plan.Certificate
	if c == nil {
		return
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"lower_bound", c.LowerBound}, {"value", c.Value}, {"ram_bytes", c.RAMBytes}, {"disk_bytes", c.DiskBytes},
		{"token_ns", c.TokenNs}, {"streaming_charge", c.Charge}, {"cleaned_levels", int64(c.Cleaned)}, {"classes", int64(c.Classes)},
	} {
		if !validInteger(n.value, 0) {
			v.fail(at("certificate", n.name), "%d: want 0 to 2^53", n.value)
		}
	}
	if c.LowerBound > c.Value {
		v.fail(at("certificate", "lower_bound"), "%d picoNats, but the plan has %d: a bound is not above what was found", c.LowerBound, c.Value)
	}
	if !validNumber(c.RelativeGap, 0) {
		v.fail(at("certificate", "relative_gap"), "%v: want a finite number, not negative", c.RelativeGap)
	}
	for i := range c.Modes {
		m := &c.Modes[i]
		if !validInteger(m.RingMax, 0) || !validInteger(m.RingLeast, 0) {
			v.fail(at("certificate", "modes", i), "ring of %d to %d bytes: want 0 to 2^53", m.RingLeast, m.RingMax)
		}
		for j, b := range m.Bounds {
			if !validInteger(b.LowerBound, -MaxInteger) || b.Shift < 0 || b.Shift > 62 ||
				slices.ContainsFunc([]int64{b.RAM, b.Disk, b.Compute, b.Read}, func(n int64) bool { return !validInteger(n, 0) }) {
				v.fail(at("certificate", "modes", i, "bounds", j), "want a shift of 0 to 62 and integers up to 2^53, prices not negative")
			}
		}
	}
}

// increments checks that the steps of every op rise in bytes and fall in KL.
func (v *planValidator) increments() {
	for i := range v.plan.Increments {
		s := &v.plan.Increments[i]
		if _, ok := v.ops[s.Op]; !ok {
			v.fail(at("increments", i, "op"), "invariant 1: op %q has no bundle", s.Op)
			return
		}
		if n := len(s.Levels); n == 0 || len(s.Bytes) != n || len(s.PicoNats) != n {
			v.fail(at("increments", i), "op %q: %d levels, %d bytes, %d piconats: want as many of each, at least one", s.Op, len(s.Levels), len(s.Bytes), len(s.PicoNats))
			return
		}
		for j := range s.Levels {
			switch {
			case s.Levels[j] == "" || !validInteger(s.Bytes[j], 1) || !validInteger(s.PicoNats[j], 0):
				v.fail(at("increments", i), "op %q level %q: %d bytes, %d picoNats: want integers up to 2^53", s.Op, s.Levels[j], s.Bytes[j], s.PicoNats[j])
			case j > 0 && (s.Bytes[j] <= s.Bytes[j-1] || s.PicoNats[j] >= s.PicoNats[j-1]):
				v.fail(at("increments", i), "op %q: level %q does not lose less than %q for more bytes", s.Op, s.Levels[j], s.Levels[j-1])
			}
		}
	}
}
