package run

import "substrate/pkg/doc"

// Signals of the runtime monitor.
const (
	LatencyWarn     = "LATENCY_WARN"
	LatencyCritical = "LATENCY_CRITICAL"
	SSDCritical     = "SSD_BW_CRITICAL"
)

// Signal is one finding of the monitor.
type Signal struct {
	Name     string
	Measured float64 // ns per token, or bytes per second, over the window
	Expected float64
	Critical bool // demotes in mode fastest
}

const (
	// monitorWindow is how many tokens the monitor looks back.
	monitorWindow = 16
	// readLatencyNs is granted to every read beside its bytes: a disk's rate
	// is stated for reads of a MiB, and records may be smaller.
	readLatencyNs = 200_000
	// minReads is how many reads the disk is judged by at least.
	minReads = 8
)

// A RuntimeMonitor compares, over a sliding window of tokens, what ops take
// and what the disk delivers with what the plan expects. Its policy has the
// factors of drift. A signal is raised once, and again only after the drift
// was over.
type RuntimeMonitor struct {
	policy doc.FallbackPolicy
	rate   float64 // bytes per second that the disk should deliver; 0: unknown

	token  measured // the one being computed
	window [monitorWindow]measured
	sum    measured // of the window
	at, n  int
	raised [3]bool
	found  [3]Signal
}

// measured is what one token took.
type measured struct {
	expectedNs, ns, bytes, reads, busyNs int64
}

func (m *measured) add(o *measured, sign int64) {
	m.expectedNs += sign * o.expectedNs
	m.ns += sign * o.ns
	m.bytes += sign * o.bytes
	m.reads += sign * o.reads
	m.busyNs += sign * o.busyNs
}

// NewRuntimeMonitor starts a monitor. bytesPerSec is the disk's forecast, 0 if
// there is none.
func NewRuntimeMonitor(policy doc.FallbackPolicy, bytesPerSec int64) *RuntimeMonitor {
	return &RuntimeMonitor{policy: policy, rate: float64(bytesPerSec)}
}

// RecordOp notes one op of the token: how long it should have taken and did,
// waiting included.
func (m *RuntimeMonitor) RecordOp(expectedNs, ns int64) {
	m.token.expectedNs += expectedNs
	m.token.ns += ns
}

// EndToken ends the token: bytes and number of reads that ended in it, and how
// long at least one was under way.
func (m *RuntimeMonitor) EndToken(bytes, reads, busyNs int64) {
	m.token.bytes, m.token.reads, m.token.busyNs = bytes, reads, busyNs
	if m.n == len(m.window) {
		m.sum.add(&m.window[m.at], -1)
	} else {
		m.n++
	}
	m.window[m.at] = m.token
	m.at = (m.at + 1) % len(m.window)
	m.sum.add(&m.token, 1)
	m.token = measured{}
}

// Assess lists the signals that are new. The slice is overwritten by the next
// call.
func (m *RuntimeMonitor) Assess() []Signal {
	found := m.found[:0]
	raise := func(i int, drifts bool, s Signal) {
		if drifts && !m.raised[i] {
			found = append(found, s)
		}
		m.raised[i] = drifts
	}
	n := float64(max(1, m.n))
	took, expected := float64(m.sum.ns)/n, float64(m.sum.expectedNs)/n
	warn := expected > 0 && took > m.policy.LatencyWarnFactor*expected
	critical := expected > 0 && took > m.policy.LatencyCriticalFactor*expected
	raise(0, warn, Signal{Name: LatencyWarn, Measured: took, Expected: expected})
	raise(1, critical, Signal{Name: LatencyCritical, Measured: took, Expected: expected, Critical: true})

	// The rate of the bytes alone, had every read its latency for nothing.
	var should, rate float64
	if m.rate > 0 && m.sum.reads >= minReads {
		should = 1e9*float64(m.sum.bytes)/m.rate + readLatencyNs*float64(m.sum.reads)
		rate = m.rate * should / max(1, float64(m.sum.busyNs))
	}
	raise(2, should > 0 && rate < m.policy.SSDCriticalFactor*m.rate, Signal{Name: SSDCritical, Measured: rate, Expected: m.rate, Critical: true})
	return found
}

// Critical reports whether a critical drift goes on.
func (m *RuntimeMonitor) Critical() bool { return m.raised[1] || m.raised[2] }

// Reset forgets what was measured.
func (m *RuntimeMonitor) Reset() {
	*m = RuntimeMonitor{policy: m.policy, rate: m.rate}
}
