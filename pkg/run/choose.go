package run

import "substrate/pkg/store"

// ChoosePlan returns the name of the largest plan in a store that fits a cap,
// by what the planner predicted; where none fits, the smallest, since Open
// cuts residency. A store of one plan has no choice.
func ChoosePlan(s *store.Store, capBytes int64) (name string, err error) {
	var best int64
	for _, p := range s.Manifest().Plans {
		plan, err := s.Plan(p.Name)
		if err != nil {
			return "", err
		}
		peak := plan.PeakBytes
		better := peak > best
		if best > capBytes { // none so far fits
			better = peak < best
		} else if peak > capBytes {
			better = best == 0
		}
		if better {
			name, best = p.Name, peak
		}
	}
	return name, nil
}
