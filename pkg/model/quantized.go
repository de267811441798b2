package model

import (
	"maps"
	"slices"
	"strings"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// quantization is what config.json says of weights that are quantized: MXFP4
// as gpt-oss has it, or a conversion by MLX, whose settings may differ from
// module to module.
type quantization struct {
	blocks  bool // gpt-oss
	whole   mlxCodes
	modules map[string]mlxCodes // by path
}

// mlxCodes are the settings of one module.
type mlxCodes struct {
	bits, group int
	mode        string
}

// Suffixes of tensors that belong together.
const (
	blocksSuffix = "_blocks" // with scalesOfBlocks, of gpt-oss
	scalesSuffix = ".scales" // beside ".weight", of MLX
	biasesSuffix = ".biases"
)

const mxfp4Group = 32 // of OCP's MX formats

// quantized takes the keys that tell of quantized weights.
func (mc *modelConfig) quantized(c *config) {
	c.only("compression_config")
	raw, mlx := c.values["quantization"]
	other, ok := c.values["quantization_config"]
	delete(c.values, "quantization")
	delete(c.values, "quantization_config")
	var method struct {
		Name string `json:"quant_method"`
	}
	if ok {
		_ = jsonio.UnmarshalLoose("", other, &method) // what is no object has no method
	}
	switch {
	case mlx && (!ok || jsonio.Equal(raw, other)):
		mc.quantization = mlxQuantization(c, raw)
	case ok && !mlx && method.Name == "mxfp4" && mc.family == gptOSS().name:
		mc.quantization = &quantization{blocks: true}
	case ok:
		c.fail("quantization_config", "checkpoints quantized by other tools are not supported (%s): use the original 16-bit weights", clip(other))
	}
}

// mlxQuantization reads the settings that MLX's converter writes.
func mlxQuantization(c *config, text jsonio.RawValue) *quantization {
	in, err := newConfig(c.file, "quantization.", text)
	if err != nil {
		c.fail("quantization", "%v", err)
		return nil
	}
	q := &quantization{modules: map[string]mlxCodes{}}
	q.whole = in.mlxCodes(mlxCodes{mode: "affine"})
	for _, path := range slices.Sorted(maps.Keys(in.values)) {
		raw := in.values[path]
		switch raw.Kind() {
		case '{':
			module, err := newConfig(c.file, in.prefix+path+".", raw)
			if err != nil {
				in.fail(path, "%v", err)
				continue
			}
			q.modules[path] = module.mlxCodes(q.whole)
			module.rest()
			if module.err != nil && in.err == nil {
				in.err = module.err
			}
		case 't', 'f': // false: not quantized, which its tensors show
		default:
			in.fail(path, "%s: want the settings of a module", clip(raw))
		}
	}
	if in.err != nil && c.err == nil {
		c.err = in.err
	}
	return q
}

func (c *config) mlxCodes(whole mlxCodes) mlxCodes {
	m := whole
	c.take("mode", &m.mode)
	group, bits := whole.group, whole.bits
	if group == 0 {
		group, bits = -1, -1 // must be given
	}
	m.group = c.integer("group_size", group, 1, 1<<12)
	m.bits = c.integer("bits", bits, 1, 16)
	switch {
	case m.mode == "mxfp4":
		if m.bits != 4 || m.group != mxfp4Group {
			c.fail("mode", "mxfp4 with %d bits in groups of %d: want 4 and %d", m.bits, m.group, mxfp4Group)
		}
	case m.mode != "affine":
		c.fail("mode", "%q is not supported, only affine and mxfp4", m.mode)
	case !slices.Contains([]int{2, 3, 4, 5, 6, 8}, m.bits):
		c.fail("bits", "%d: want 2, 3, 4, 5, 6 or 8", m.bits)
	case !slices.Contains([]int{32, 64, 128}, m.group):
		c.fail("group_size", "%d: want 32, 64 or 128", m.group)
	}
	return m
}

// reference names what quality is measured against.
func (q *quantization) reference() string {
	t := tensorInfo{dtype: mxfp4Planes}
	if !q.blocks && q.whole.mode == "affine" {
		t = tensorInfo{dtype: affine, planes: &planes{bits: q.whole.bits, group: q.whole.group}}
	}
	return t.reference()
}

// join makes one tensor of every one that is kept as codes and scales.
func (q *quantization) join(m *Model) error {
	for _, name := range m.tensors.names() {
		var err error
		if path, ok := strings.CutSuffix(name, scalesSuffix); ok && !q.blocks {
			err = q.joinMLX(m, path)
		} else if stem, ok := strings.CutSuffix(name, blocksSuffix); ok && q.blocks {
			err = joinBlocks(m, stem)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) tensorFault(name, reason string) error {
	return &Error{File: m.path, Offset: -1, Key: "tensor " + name, Reason: reason}
}

func spanOf(t tensorInfo) span { return span{file: t.file, offset: t.offset, dtype: t.dtype} }

// joinMLX joins weight [.., rows, cols*bits/32] of 32-bit words with scales
// and biases [.., rows, cols/group].
func (q *quantization) joinMLX(m *Model, path string) error {
	const weightSuffix = ".weight"
	codes, ok := q.modules[path]
	if !ok {
		codes = q.whole
	}
	w, scales := m.tensors[path+weightSuffix], m.tensors[path+scalesSuffix]
	biases, biased := m.tensors[path+biasesSuffix]
	last := len(w.shape) - 1
	if w.typeName != "U32" || last < 1 || len(scales.shape) != last+1 || !slices.Equal(w.shape[:last], scales.shape[:last]) {
		return m.tensorFault(path+scalesSuffix, "is not beside a "+path+weightSuffix+" of 32-bit words of the same rows")
	}
	cols := scales.shape[last] * int64(codes.group)
	if cols > doc.MaxDimension || cols*int64(codes.bits) != w.shape[last]*32 {
		return m.tensorFault(path+weightSuffix, "shapes "+formatShape(w.shape)+" and "+formatShape(scales.shape)+" of scales do not fit the bits and group_size of config.json")
	}
	p := &planes{bits: codes.bits, group: codes.group, scales: spanOf(scales)}
	kind := affine
	if codes.mode == "mxfp4" {
		kind = mxfp4Planes
		if biased || scales.typeName != "U8" {
			return m.tensorFault(path+scalesSuffix, "mxfp4 has scales of type U8 and no biases")
		}
	} else {
		if !biased || !slices.Equal(biases.shape, scales.shape) || scales.dtype == dtypeNone || biases.dtype == dtypeNone {
			return m.tensorFault(path+biasesSuffix, "is missing, or scales and biases differ in shape or are not floating-point numbers")
		}
		p.biases = spanOf(biases)
		delete(m.tensors, path+biasesSuffix)
	}
	delete(m.tensors, path+scalesSuffix)
	w.dtype, w.planes = kind, p
	w.shape = append(slices.Clone(w.shape[:last]), cols)
	m.tensors[path+weightSuffix] = w
	return nil
}

// joinBlocks joins blocks [experts, outputs, groups, 16] of bytes with scales
// [experts, outputs, groups].
func joinBlocks(m *Model, stem string) error {
	w, scales := m.tensors[stem+blocksSuffix], m.tensors[stem+"_scales"]
	if w.typeName != "U8" || len(w.shape) != 4 || w.shape[3] != mxfp4Group/2 || scales.typeName != "U8" || !slices.Equal(scales.shape, w.shape[:3]) ||
		w.shape[2] > doc.MaxDimension/mxfp4Group {
		return m.tensorFault(stem+blocksSuffix, "shapes "+formatShape(w.shape)+" and "+formatShape(scales.shape)+" of "+stem+"_scales are not blocks of MXFP4 with their scales")
	}
	delete(m.tensors, stem+"_scales")
	w.dtype = mxfp4Planes
	w.planes = &planes{bits: 4, group: mxfp4Group, scales: spanOf(scales)}
	w.shape = []int64{w.shape[0], w.shape[1], w.shape[2] * mxfp4Group}
	m.tensors[stem+blocksSuffix] = w
	return nil
}
