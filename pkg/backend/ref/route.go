package ref

import (
	"substrate/pkg/backend"
)

func (b *Backend) Route(ids []int32, weights []float32, x backend.Tensor, w *backend.Linear, s backend.RouteSpec) error {
	if !b.ok("route", b.table.Route(ids, weights, x, w, s)) {
		return b.err
	}
	experts := w.Parts[0].Rows
	logits := make([]float32, x.Rows*experts)
	b.linear(rows{values: logits, cols: experts}, rows{values: b.tensor(x), cols: x.Cols}, x.Rows, w)
	for r := range x.Rows {
		backend.Choose(ids[r*s.TopK:][:s.TopK], weights[r*s.TopK:][:s.TopK], logits[r*experts:][:experts], s)
	}
	return nil
}
