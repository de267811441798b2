package plan

import (
	"math"
	"slices"
)

// mixture is the small linear program behind the prices: columns, each of a
// cost and a use of every resource, are mixed with weights that sum to one so
// that the average use is within one (uses are in shares of what there is)
// and the average cost is least. What the program says of its limits are the
// prices (Dantzig and Wolfe 1960). A use beyond the limits is allowed at a
// penalty, so that there always is a mixture.
//
// It is solved by the revised simplex method. The basis has one row for each
// resource and one for the weights, at most five, so it is inverted anew for
// every step.
type mixture struct {
	resources int
	penalty   float64
	columns   []mixColumn
	basis     []int // variables: columns, then slacks and excesses as -1-2r and -2-2r
	inverse   [][]float64
	values    []float64 // of the basic variables
}

// mixColumn is a column with its cost and its use of each resource.
type mixColumn struct {
	cost float64
	use  []float64
}

func slackOf(resource int) int  { return -1 - 2*resource }
func excessOf(resource int) int { return -2 - 2*resource }

// mixPivots bounds the steps of one solve; half of them may take the steepest
// column, the rest the first (Bland 1977), which cannot cycle.
const mixPivots = 400

// add adds a column, the first one with a basis of its own.
func (m *mixture) add(cost float64, use []float64) {
	m.columns = append(m.columns, mixColumn{cost, slices.Clone(use)})
	if len(m.columns) > 1 {
		return
	}
	for r, u := range use {
		if u <= 1 {
			m.basis = append(m.basis, slackOf(r))
		} else {
			m.basis = append(m.basis, excessOf(r))
		}
	}
	m.basis = append(m.basis, 0)
}

// entry is row r of a variable's column; row resources is that of weights.
func (m *mixture) entry(v, r int) float64 {
	switch {
	case v >= 0 && r == m.resources:
		return 1
	case v >= 0:
		return m.columns[v].use[r]
	case v == slackOf(r):
		return 1
	case v == excessOf(r):
		return -1
	}
	return 0
}

func (m *mixture) cost(v int) float64 {
	switch {
	case v >= 0:
		return m.columns[v].cost
	case v%2 == 0:
		return m.penalty
	}
	return 0
}

// solve returns the least cost of a mixture, the price of each resource and
// the part of the cost that pays for excess.
func (m *mixture) solve() (value float64, prices []float64, excess float64) {
	dual := make([]float64, m.resources+1)
	for step := range mixPivots {
		m.invert()
		for r := range dual {
			dual[r] = 0
			for i, v := range m.basis {
				dual[r] += m.cost(v) * m.inverse[i][r]
			}
		}
		enter := m.entering(dual, step > mixPivots/2)
		if enter == noVariable || !m.pivot(enter) {
			break
		}
	}
	prices = make([]float64, m.resources)
	for r := range prices {
		prices[r] = max(0, -dual[r])
	}
	for i, v := range m.basis {
		paid := m.cost(v) * max(0, m.values[i])
		value += paid
		if v < 0 {
			excess += paid
		}
	}
	return value, prices, excess
}

const noVariable = math.MinInt

// entering picks the variable that lowers the cost most, or the first that
// does.
func (m *mixture) entering(dual []float64, first bool) int {
	best, least := noVariable, 0.0
	consider := func(v int) bool {
		reduced := m.cost(v)
		scale := math.Abs(reduced)
		for r := range dual {
			part := dual[r] * m.entry(v, r)
			reduced -= part
			scale += math.Abs(part)
		}
		if reduced < least && reduced < -1e-13*scale && !slices.Contains(m.basis, v) {
			best, least = v, reduced
			return first
		}
		return false
	}
	for v := range m.columns {
		if consider(v) {
			return best
		}
	}
	for r := range m.resources {
		if consider(slackOf(r)) || consider(excessOf(r)) {
			return best
		}
	}
	return best
}

// pivot takes a variable into the basis. It reports false if no variable
// would leave, which rounding alone can cause.
func (m *mixture) pivot(enter int) bool {
	leave, least := -1, math.Inf(1)
	for i := range m.basis {
		var rate float64
		for r := range m.resources + 1 {
			rate += m.inverse[i][r] * m.entry(enter, r)
		}
		if rate <= 1e-12 {
			continue
		}
		if ratio := max(0, m.values[i]) / rate; ratio < least || ratio == least && m.basis[i] < m.basis[leave] {
			leave, least = i, ratio
		}
	}
	if leave < 0 {
		return false
	}
	m.basis[leave] = enter
	return true
}

// invert computes the inverse of the basis and the values of its variables,
// by elimination with partial pivoting.
func (m *mixture) invert() {
	n := m.resources + 1
	if m.inverse == nil {
		m.inverse = make([][]float64, n)
		for i := range m.inverse {
			m.inverse[i] = make([]float64, n)
		}
		m.values = make([]float64, n)
	}
	var rows [maxResources + 1][2 * (maxResources + 1)]float64
	for r := range n {
		for i, v := range m.basis {
			rows[r][i] = m.entry(v, r)
		}
		rows[r][n+r] = 1
	}
	for i := range n {
		pivot := i
		for r := i + 1; r < n; r++ {
			if math.Abs(rows[r][i]) > math.Abs(rows[pivot][i]) {
				pivot = r
			}
		}
		rows[i], rows[pivot] = rows[pivot], rows[i]
		if rows[i][i] == 0 {
			rows[i][i] = 1e-300 // singular but for rounding
		}
		f := 1 / rows[i][i]
		for c := range 2 * n {
			rows[i][c] *= f
		}
		for r := range n {
			if g := rows[r][i]; r != i && g != 0 {
				for c := range 2 * n {
					rows[r][c] -= g * rows[i][c]
				}
			}
		}
	}
	for i := range n {
		m.values[i] = 0
		for r := range n {
			m.inverse[i][r] = rows[i][n+r]
			m.values[i] += rows[i][n+r] // every right-hand side is one
		}
	}
}

// active lists the columns of the mixture, most weight first.
func (m *mixture) active() []int {
	var active []int
	for _, v := range m.basis {
		if v >= 0 {
			active = append(active, v)
		}
	}
	slices.SortFunc(active, func(a, b int) int {
		switch {
		case m.weight(a) > m.weight(b):
			return -1
		case m.weight(a) < m.weight(b):
			return 1
		}
		return a - b
	})
	return active
}

// weight is that of an active column.
func (m *mixture) weight(v int) float64 { return m.values[slices.Index(m.basis, v)] }
