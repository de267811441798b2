package run

import (
	"fmt"

	"substrate/pkg/doc"
)

// checkShapes checks that the first record of every tier of an op holds all
// of its tensors and no others, and that the records above add to matrices of
// the same shapes.
func (p *program) checkShapes(o *op) error {
	want := make(map[string]doc.Shape)
	for _, s := range p.arch.Shapes(o.kind) {
		want[s.Role] = s
	}
	for _, t := range o.tiers {
		for i, n := range t.records {
			tensors := p.records[n].layout.Tensors
			for _, have := range tensors {
				s, ok := want[have.Role]
				if !ok {
					return fmt.Errorf("record %s holds a tensor %s, which is none of a %s", p.records[n].id, have.Role, o.kind)
				}
				if have.Rows != s.Rows || have.Cols != s.Cols {
					return fmt.Errorf("record %s: tensor %s is %d x %d, the architecture makes it %d x %d", p.records[n].id, have.Role, have.Rows, have.Cols, s.Rows, s.Cols)
				}
			}
			if i == 0 && len(tensors) != len(want) {
				return fmt.Errorf("record %s holds %d tensors of the %d of a %s", p.records[n].id, len(tensors), len(want), o.kind)
			}
		}
	}
	return nil
}
