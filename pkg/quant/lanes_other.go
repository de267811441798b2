//go:build !amd64

package quant

// haveLanes reports that groups are fitted one by one: the functions below are
// never called.
func haveLanes() bool { return false }

func loadLanes(x *laneValues, w *float32, offsets *[lanes]int32, n int, lo, hi *[lanes]float32, sum *[lanes]float64) {
}

func centreLanes(x *laneValues, h *float64, n int, origin, hx, hxx *[lanes]float64) {}

func regressLanes(x *laneValues, h *float64, n int, top int32, l *laneLines, t *laneTotals, out *laneLines) {
}

func chooseLanes(x *laneValues, h *float64, n int, top int32, scale, bias *[lanes]float64, codes *laneCodes, err *[lanes]float64) {
}
