package model

import "substrate/pkg/doc"

// stored is how a tensor's rows lie in the checkpoint: it is all of a stored
// matrix [rows, cols], or a part of it.
type stored struct {
	t          *doc.Tensor
	info       *tensorInfo
	head       int   // rows that are permuted among themselves; 0: none
	rows, cols int   // of the stored matrix, as outputs and inputs
	base       int64 // its first value in the tensor
}

func (m *Model) stored(t *doc.Tensor, info *tensorInfo) stored {
	s := stored{t: t, info: info, rows: t.Rows, cols: t.Cols}
	if t.Rows == 1 { // a vector: one value for each row of its matrix
		s.rows, s.cols = t.Cols, 1
	}
	if p := t.Source.Part; p != nil {
		s.rows, s.cols = p.Rows, p.Cols
	}
	switch t.Source.Permute {
	case permuteLlamaQK:
		s.head = m.profile.Architecture.HeadDim
	case permutePairs:
		s.head = t.Source.Part.Count
	}
	if t.Source.Index > 0 {
		s.base = int64(t.Source.Index) * int64(s.rows) * int64(s.cols)
	}
	return s
}

// row is the stored row that row r of the tensor is.
func (s *stored) row(r int) int {
	if s.head > 0 {
		r = permute(r, s.head)
	}
	if p := s.t.Source.Part; p != nil {
		r = r/p.Count*p.Period + p.First + r%p.Count
	}
	return r
}

// permute returns the stored row of a row whose head is rotated as halves and
// kept as pairs: dimensions i and i+d/2 of a head of d lie side by side. So
// does llama.cpp's converter, which turns [heads, 2, d/2] into [heads, d/2, 2],
// and so are DeepSeek's models trained.
func permute(row, head int) int {
	in := row % head
	return row - in + in%(head/2)*2 + in/(head/2)
}

// gather fills dst with rows row0 to row0+rows of t.
func (m *Model) gather(dst []float32, t *doc.Tensor, info *tensorInfo, row0, rows int) error {
	s := m.stored(t, info)
	part := t.Source.Part
	switch {
	case part == nil && s.head == 0:
		return m.values(dst, info, s.base+int64(row0)*int64(t.Cols))
	case t.Rows == 1:
		if rows == 0 {
			return nil
		}
		return m.gatherVector(dst, &s)
	case part != nil && part.InputsFirst:
		return m.gatherColumns(dst, &s, row0, rows)
	case part != nil && part.Transposed:
		return m.gatherTransposed(dst, &s, row0, rows)
	}
	// Rows that lie behind each other are read at once.
	for r := 0; r < rows; {
		at, n := s.row(row0+r), 1
		for r+n < rows && s.row(row0+r+n) == at+n {
			n++
		}
		if err := m.values(dst[r*t.Cols:(r+n)*t.Cols], info, s.base+int64(at)*int64(s.cols)); err != nil {
			return err
		}
		r += n
	}
	return nil
}

func (m *Model) gatherVector(dst []float32, s *stored) error {
	all := make([]float32, s.rows)
	if err := m.values(all, s.info, s.base); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = all[s.row(i)]
	}
	return nil
}

// gatherColumns reads rows that are columns of the file, a stretch of every
// line of it.
func (m *Model) gatherColumns(dst []float32, s *stored, row0, rows int) error {
	if rows == 0 {
		return nil
	}
	low, high := s.row(row0), s.row(row0)
	for r := range rows {
		at := s.row(row0 + r)
		low, high = min(low, at), max(high, at)
	}
	line := make([]float32, high+1-low)
	for in := range s.cols {
		if err := m.values(line, s.info, s.base+int64(in)*int64(s.rows)+int64(low)); err != nil {
			return err
		}
		for r := range rows {
			dst[r*s.cols+in] = line[s.row(row0+r)-low]
		}
	}
	return nil
}

// gatherTransposed reads rows that are columns of pieces of the stored matrix:
// row r is column r%cols of piece r/cols.
func (m *Model) gatherTransposed(dst []float32, s *stored, row0, rows int) error {
	p := s.t.Source.Part
	for r := 0; r < rows; {
		piece, col := (row0+r)/s.cols, (row0+r)%s.cols
		n := min(rows-r, s.cols-col)
		line := make([]float32, n)
		for in := range p.Count {
			at := piece*p.Period + p.First + in
			if err := m.values(line, s.info, s.base+int64(at)*int64(s.cols)+int64(col)); err != nil {
				return err
			}
			for i, v := range line {
				dst[(r+i)*p.Count+in] = v
			}
		}
		r += n
	}
	return nil
}
