package doc

import (
	"fmt"
	"strconv"
	"strings"
)

// An Encoding says how the matrices of one record are stored: for each role
// bits, group size and scale type, and the fit that makes the codes. KL is
// measured for an encoding, the plan chooses one, sb-pack obeys.
//
// Codes are affine: w = scale*q + bias with q in [0, 2^bits), one scale and
// bias per group of consecutive inputs of a row, in MLX's packed layout.
// Tensors marked Keep in the profile are stored dense in their source's 16 or
// 32 bits whatever the encoding says.
type Encoding struct {
	ID         string         `json:"id"`    // EncodingID of the other fields
	Bits       int            `json:"bits"`  // 2, 3, 4, 5, 6, 8; 16: dense bf16 or f16; 32: dense f32
	Group      int            `json:"group"` // 32, 64, 128; 0 where bits >= 16
	Scale      string         `json:"scale"` // "bf16" or "f16": type of scales and biases, and of dense 16-bit matrices
	Fit        string         `json:"fit"`   // "minmax", "lsq", "gptq"; "none" where bits >= 16
	FitVersion int            `json:"fit_version"`
	Residual   bool           `json:"residual,omitzero"` // codes the error that the records below leave
	Roles      []RoleEncoding `json:"roles,omitempty"`   // exceptions, sorted by role
}

// RoleEncoding overrides bits and group for one role of an encoding.
type RoleEncoding struct {
	Role  string `json:"role"`
	Bits  int    `json:"bits"`
	Group int    `json:"group"`
}

// Role returns bits and group of a role.
func (e *Encoding) Role(role string) (bits, group int) {
	for _, r := range e.Roles {
		if r.Role == role {
			return r.Bits, r.Group
		}
	}
	return e.Bits, e.Group
}

// LeastBits is the width of the role that has the fewest bits.
func (e *Encoding) LeastBits() int {
	least := e.Bits
	for _, r := range e.Roles {
		least = min(least, r.Bits)
	}
	return least
}

// EncodingID names an encoding: "q4g64-bf16-lsq1", "r3g64-bf16-lsq1" for a
// residual, "bf16" and "f32" for dense ones; role exceptions follow, as in
// "q4g64-bf16-lsq1,down=q6g64".
func EncodingID(e *Encoding) string {
	if e.Bits >= 16 {
		if e.Bits == 32 {
			return "f32"
		}
		return e.Scale
	}
	var b strings.Builder
	kind := "q"
	if e.Residual {
		kind = "r"
	}
	fmt.Fprintf(&b, "%s%dg%d-%s-%s%d", kind, e.Bits, e.Group, e.Scale, e.Fit, e.FitVersion)
	for _, r := range e.Roles {
		b.WriteString("," + r.Role + "=" + kind + strconv.Itoa(r.Bits) + "g" + strconv.Itoa(r.Group))
	}
	return b.String()
}

// Validate checks widths, groups and the id.
func (e *Encoding) Validate() error {
	check := func(bits, group int) error {
		switch bits {
		case 2, 3, 4, 5, 6, 8:
			switch group {
			case 32, 64, 128:
				return nil
			}
			return fmt.Errorf("encoding %q: group %d: want 32, 64 or 128", e.ID, group)
		case 16, 32:
			if group == 0 {
				return nil
			}
			return fmt.Errorf("encoding %q: group %d: want 0 at %d bits", e.ID, group, bits)
		}
		return fmt.Errorf("encoding %q: bits %d: want 2, 3, 4, 5, 6, 8, 16 or 32", e.ID, bits)
	}
	if err := check(e.Bits, e.Group); err != nil {
		return err
	}
	for i, r := range e.Roles {
		if err := check(r.Bits, r.Group); err != nil {
			return err
		}
		if i > 0 && e.Roles[i-1].Role >= r.Role {
			return fmt.Errorf("encoding %q: roles are not sorted or repeat at %q", e.ID, r.Role)
		}
	}
	if e.Bits < 32 && e.Scale != "bf16" && e.Scale != "f16" {
		return fmt.Errorf("encoding %q: scale %q: want bf16 or f16", e.ID, e.Scale)
	}
	if want := EncodingID(e); e.ID != want {
		return fmt.Errorf("encoding %q: id does not match its fields, want %q", e.ID, want)
	}
	return nil
}

// A Level names the records an op needs and how they combine. A level with
// one encoding is a dedicated record. With several, the first is the skeleton
// and the others are residuals, added: y = sum of the products with each.
type Level struct {
	ID        string   `json:"id"`        // encoding ids joined by "+"
	Encodings []string `json:"encodings"` // ids, skeleton first
}

// LevelID joins encoding ids.
func LevelID(encodings []string) string { return strings.Join(encodings, "+") }
