// Package arch is the forward pass of the model families, written once
// against the backend interface. It decides nothing about where weights come
// from: the caller hands in the weights of one op at a time, so that a run can
// stream them, a calibration can perturb them and a test can compare them.
package arch

import (
	"fmt"

	"substrate/pkg/backend"
	"substrate/pkg/doc"
	"substrate/pkg/plane"
)

// Weights are one op's tensors as kernel handles. An op uses those of its
// kind: an attention Norm, Q, K, V, O and perhaps QNorm, KNorm, Sinks; a
// dense MLP Norm, Gate, Up, Down; an expert and shared experts Gate, Up, Down;
// a router Norm and Weight; embedding and lm_head Weight; the final norm Norm.
// Latent attention has Norm, O and Latent.
type Weights struct {
	Norm, QNorm, KNorm, Sinks backend.Vector
	Q, K, V, O                backend.Linear
	Gate, Up, Down            backend.Linear
	Weight                    backend.Linear
	Latent                    *LatentWeights
}

// LatentWeights are what latent attention has in place of Q, K and V. Roles in
// pkg/doc say what they are.
type LatentWeights struct {
	QANorm, LatentNorm                        backend.Vector
	QA, QNope, QRoPE, Latent, KRoPE, KUp, VUp backend.Linear
}

// Part is one record of a level, loaded at Offset of a slab.
type Part struct {
	Slab   backend.Slab
	Offset int64
	Layout *doc.RecordLayout
}

// Bind makes the handles of an op whose level adds up parts, skeleton first.
// Tensors that a residual does not hold stay the skeleton's alone.
func Bind(b backend.Backend, kind doc.Kind, parts ...Part) (*Weights, error) {
	w := new(Weights)
	for i, p := range parts {
		for j := range p.Layout.Tensors {
			t := &p.Layout.Tensors[j]
			if err := w.add(b, kind, p, t, i > 0); err != nil {
				return nil, fmt.Errorf("tensor %s: %w", t.Role, err)
			}
		}
	}
	return w, nil
}

// add binds one tensor of one part.
func (w *Weights) add(b backend.Backend, kind doc.Kind, p Part, t *doc.TensorLayout, residual bool) error {
	if v := w.vector(kind, t.Role); v != nil {
		if residual {
			return fmt.Errorf("a residual record cannot hold a vector")
		}
		if t.DType != "f32" || t.Rows != 1 {
			return fmt.Errorf("a vector must be f32 with one row, not %s with %d", t.DType, t.Rows)
		}
		var err error
		*v, err = b.Vector(p.Slab, p.Offset+t.Data, t.Cols)
		return err
	}
	l := w.linear(t.Role)
	if l == nil {
		return fmt.Errorf("unknown role for a %s", kind)
	}
	if l.N == backend.MaxParts {
		return fmt.Errorf("more than %d records add up", backend.MaxParts)
	}
	spec := backend.MatrixSpec{Rows: t.Rows, Cols: t.Cols, Data: p.Offset + t.Data}
	var err error
	if spec.Format, err = TensorFormat(t); err != nil {
		return err
	}
	if spec.Format.Coded() {
		spec.Scales, spec.Biases = p.Offset+t.Scales, p.Offset+t.Biases
	}
	if l.Parts[l.N], err = b.Matrix(p.Slab, spec); err != nil {
		return err
	}
	l.N++
	return nil
}

// vector returns the field of a vector role, nil for a matrix role.
func (w *Weights) vector(kind doc.Kind, role string) *backend.Vector {
	switch role {
	case doc.RoleNorm:
		return &w.Norm
	case doc.RoleQNorm:
		return &w.QNorm
	case doc.RoleKNorm:
		return &w.KNorm
	case doc.RoleQBias:
		return &w.Q.Bias
	case doc.RoleKBias:
		return &w.K.Bias
	case doc.RoleVBias:
		return &w.V.Bias
	case doc.RoleOBias:
		return &w.O.Bias
	case doc.RoleWeight:
		if kind == doc.KindNorm {
			return &w.Norm
		}
	case doc.RoleSinks:
		return &w.Sinks
	case doc.RoleWeightBias:
		return &w.Weight.Bias
	case doc.RoleGateBias:
		return &w.Gate.Bias
	case doc.RoleUpBias:
		return &w.Up.Bias
	case doc.RoleDownBias:
		return &w.Down.Bias
	case doc.RoleQANorm:
		return &w.latent().QANorm
	case doc.RoleLatentNorm:
		return &w.latent().LatentNorm
	}
	return nil
}

// latent returns the weights of latent attention, made when first asked for.
func (w *Weights) latent() *LatentWeights {
	if w.Latent == nil {
		w.Latent = new(LatentWeights)
	}
	return w.Latent
}

// linear returns the field of a matrix role, nil for an unknown one.
func (w *Weights) linear(role string) *backend.Linear {
	switch role {
	case doc.RoleQ:
		return &w.Q
	case doc.RoleK:
		return &w.K
	case doc.RoleV:
		return &w.V
	case doc.RoleO:
		return &w.O
	case doc.RoleGate:
		return &w.Gate
	case doc.RoleUp:
		return &w.Up
	case doc.RoleDown:
		return &w.Down
	case doc.RoleWeight:
		return &w.Weight
	case doc.RoleQA:
		return &w.latent().QA
	case doc.RoleQNope:
		return &w.latent().QNope
	case doc.RoleQRoPE:
		return &w.latent().QRoPE
	case doc.RoleLatent:
		return &w.latent().Latent
	case doc.RoleKRoPE:
		return &w.latent().KRoPE
	case doc.RoleKUp:
		return &w.latent().KUp
	case doc.RoleVUp:
		return &w.latent().VUp
	}
	return nil
}

// TensorFormat is the plane format of a placed tensor.
func TensorFormat(t *doc.TensorLayout) (plane.Format, error) {
	switch t.DType {
	case "codes":
		scale, err := plane.ParseFloat(t.Scale)
		return plane.Format{Bits: t.Bits, Group: t.Group, Scale: scale}, err
	case "f32":
		return plane.Format{Bits: 32}, nil
	}
	dense, err := plane.ParseFloat(t.DType)
	return plane.Format{Bits: 16, Scale: dense}, err
}
