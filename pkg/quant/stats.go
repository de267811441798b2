package quant

// Stats are second moments E[x^2] of the inputs of a model's matrices.
type Stats struct{}

// Moments returns E[x^2] of the inputs of a matrix, nil if s has none.
func (s *Stats) Moments(op, role string, cols int) ([]float32, error) { return nil, nil }
