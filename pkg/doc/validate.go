package doc

import (
	"errors"
	"strings"

	"substrate/internal/jsonio"
)

// within puts the place of an error inside member of an outer document.
func within(member string, err error) error {
	var e *jsonio.Error
	if errors.As(err, &e) {
		e.Pointer = "/" + jsonio.Pointer(member) + e.Pointer
	}
	return err
}

// Validate checks that rates are sound and in order.
func (m *Machine) Validate() error {
	var c checker
	if m.Source != SourceMeasured && m.Source != SourceDefault {
		c.fail(at("source"), "%q: want %q or %q", m.Source, SourceMeasured, SourceDefault)
	}
	for i := range m.Reads {
		r := &m.Reads[i]
		if !validInteger(r.Bytes, 1) || r.Depth < 1 || r.Depth > 1<<16 || !validInteger(r.BytesPerSec, 1) {
			c.fail(at("reads", i), "%d bytes at depth %d, %d bytes/s: want positive numbers", r.Bytes, r.Depth, r.BytesPerSec)
		}
		if i > 0 {
			if p := &m.Reads[i-1]; p.Bytes > r.Bytes || p.Bytes == r.Bytes && p.Depth >= r.Depth {
				c.fail(at("reads", i), "%d bytes at depth %d: want points ascending by bytes, then depth", r.Bytes, r.Depth)
			}
		}
	}
	for i := range m.Kernels {
		k := &m.Kernels[i]
		if k.Bits < 1 || k.Bits > 32 || k.Group < 0 || k.Rows < 1 || k.Rows > MaxDimension || k.Cols < 1 || k.Cols > MaxDimension ||
			k.Tokens < 1 || k.Tokens > MaxContextTokens || !validInteger(k.TimeNs, 1) {
			c.fail(at("kernels", i), "%d bits, group %d, [%d, %d], %d tokens, %d ns: want positive numbers", k.Bits, k.Group, k.Rows, k.Cols, k.Tokens, k.TimeNs)
		}
	}
	l := &m.Memory
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"total_bytes", l.TotalBytes}, {"available_bytes", l.AvailableBytes},
		{"process_base_bytes", l.ProcessBaseBytes}, {"dispatch_ns", l.DispatchNs},
	} {
		if !validInteger(n.value, 0) {
			c.fail(at("memory", n.name), "%d: want 0 to 2^53", n.value)
		}
	}
	if m.Threads < 0 || m.Threads > 1<<16 {
		c.fail(at("threads"), "%d: want 0 to 65536", m.Threads)
	}
	return c.err
}

// Validate checks that the manifest is well formed: files are inside the
// store, records inside their files and in order, layouts inside records.
func (m *Manifest) Validate() error {
	var c checker
	if err := m.Profile.Validate(); err != nil {
		return within("profile", err)
	}
	if m.Align < 1 || m.Align > 1<<24 || m.Align&(m.Align-1) != 0 {
		c.fail(at("align_bytes"), "%d: want a power of two up to 2^24", m.Align)
		return c.err
	}
	if m.ScaleType != "bf16" && m.ScaleType != "f16" {
		c.fail(at("scale_type"), "%q: want bf16 or f16", m.ScaleType)
	}
	encodings, err := indexEncodings(m.Encodings)
	if err != nil {
		return err
	}
	m.validateFiles(&c)
	m.validateLayouts(&c)
	if c.err == nil {
		m.validateRecords(&c, encodings)
	}
	return c.err
}

func (m *Manifest) validateFiles(c *checker) {
	files := make(map[string]bool, len(m.Files))
	for i := range m.Files {
		f := &m.Files[i]
		if !validPath(f.File) || files[f.File] {
			c.fail(at("files", i, "file"), "%q: want a path inside the store, once", f.File)
		}
		files[f.File] = true
		if !validInteger(f.Bytes, 0) || !validHash(f.SHA256) {
			c.fail(at("files", i), "file %q: %d bytes, sha256 %q: want 0 to 2^53 and 64 hex digits", f.File, f.Bytes, f.SHA256)
		}
	}
	names := make(map[string]bool, len(m.Plans))
	for i := range m.Plans {
		p := &m.Plans[i]
		if p.Name == "" || names[p.Name] || !validPath(p.File) || !validHash(p.SHA256) {
			c.fail(at("plans", i), "plan %q in file %q, sha256 %q: want each name once, a path inside the store and 64 hex digits", p.Name, p.File, p.SHA256)
		}
		names[p.Name] = true
		for j, r := range p.Records {
			if r < 0 || r >= len(m.Records) {
				c.fail(at("plans", i, "records", j), "record %d of %d", r, len(m.Records))
				break
			}
		}
	}
	if len(m.Plans) == 0 {
		c.fail(at("plans"), "no plan: want at least one")
	}
}

func (m *Manifest) validateLayouts(c *checker) {
	for i := range m.Layouts {
		l := &m.Layouts[i]
		if !validInteger(l.Bytes, 1) {
			c.fail(at("layouts", i, "bytes"), "%d: want 1 to 2^53", l.Bytes)
		}
		for j := range l.Tensors {
			t := &l.Tensors[j]
			place := at("layouts", i, "tensors", j)
			if t.Rows < 1 || t.Rows > MaxDimension || t.Cols < 1 || t.Cols > MaxDimension {
				c.fail(place, "role %s is [%d, %d]: want 1 to %d", t.Role, t.Rows, t.Cols, MaxDimension)
				return
			}
			values := int64(t.Rows) * int64(t.Cols)
			var data, scales int64
			switch t.DType {
			case "f32":
				data = values * 4
			case "bf16", "f16":
				data = values * 2
			case "codes":
				if t.Bits < 1 || t.Bits > 8 || t.Group < 1 || t.Cols%t.Group != 0 {
					c.fail(place, "role %s: %d bits in groups of %d over %d columns: want 1 to 8 bits and whole groups", t.Role, t.Bits, t.Group, t.Cols)
					return
				}
				data, scales = values*int64(t.Bits)/8, values/int64(t.Group)*2
			default:
				c.fail(place, "role %s: dtype %q is not known here", t.Role, t.DType)
			}
			for _, part := range []struct{ offset, bytes int64 }{{t.Data, data}, {t.Scales, scales}, {t.Biases, scales}} {
				if part.offset < 0 || part.bytes > l.Bytes || part.offset > l.Bytes-part.bytes {
					c.fail(place, "role %s: %d bytes at %d leave the record of %d bytes", t.Role, part.bytes, part.offset, l.Bytes)
				}
			}
		}
	}
}

func (m *Manifest) validateRecords(c *checker, encodings map[string]bool) {
	ops := make(map[string]bool, len(m.Profile.Ops))
	for i := range m.Profile.Ops {
		ops[m.Profile.Ops[i].ID] = true
	}
	type key struct{ id, identity string }
	seen := make(map[key]bool, len(m.Records))
	for i := range m.Records {
		r := &m.Records[i]
		k := key{r.ID, r.Identity}
		switch {
		case r.ID == "" || r.Identity == "" || seen[k]:
			c.fail(at("records", i), "record %q of identity %q occurs twice or has none", r.ID, r.Identity)
		case !ops[r.Op]:
			c.fail(at("records", i, "op"), "record %q is of op %q, which is not in the profile", r.ID, r.Op)
		case !encodings[r.Encoding]:
			c.fail(at("records", i, "encoding"), "record %q has encoding %q, which is not in the manifest", r.ID, r.Encoding)
		case r.Layout < 0 || r.Layout >= len(m.Layouts):
			c.fail(at("records", i, "layout"), "record %q has layout %d of %d", r.ID, r.Layout, len(m.Layouts))
		case r.File < 0 || r.File >= len(m.Files):
			c.fail(at("records", i, "file"), "record %q is in file %d of %d", r.ID, r.File, len(m.Files))
		case r.Bytes < 1 || r.Offset < 0 || r.Offset%m.Align != 0 || r.Bytes > m.Files[r.File].Bytes || r.Offset > m.Files[r.File].Bytes-r.Bytes:
			c.fail(at("records", i), "record %q: %d bytes at %d leave file %q of %d bytes or are not aligned to %d", r.ID, r.Bytes, r.Offset, m.Files[r.File].File, m.Files[r.File].Bytes, m.Align)
		case !r.Zstd && r.Bytes != m.Layouts[r.Layout].Bytes:
			c.fail(at("records", i, "stored_bytes"), "record %q: %d bytes stored raw, its layout has %d", r.ID, r.Bytes, m.Layouts[r.Layout].Bytes)
		}
		if i > 0 && c.err == nil {
			p := &m.Records[i-1]
			if p.File > r.File || p.File == r.File && p.Offset+p.Bytes > r.Offset {
				c.fail(at("records", i), "record %q overlaps record %q or is out of the order of (file, offset)", r.ID, p.ID)
			}
		}
		if c.err != nil {
			return
		}
		seen[k] = true
	}
}

// validPath reports whether p is a relative path that stays inside the store.
func validPath(p string) bool {
	if p == "" || strings.HasPrefix(p, "/") || strings.ContainsAny(p, "\\\x00") {
		return false
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// Validate checks that the line names a store.
func (p *Packed) Validate() error {
	var c checker
	if !strings.HasPrefix(p.Store, "/") {
		c.fail(at("store"), "%q: want an absolute path", p.Store)
	}
	if !validHash(p.Manifest) {
		c.fail(at("manifest_sha256"), "%q is not a sha256 in lower-case hex", p.Manifest)
	}
	if p.Plan == "" {
		c.fail(at("plan"), "no plan is named")
	}
	if p.Records < 0 || !validInteger(p.Bytes, 0) || !validInteger(p.ReusedBytes, 0) {
		c.fail(at("bytes"), "%d records, %d bytes, %d re-used: none may be negative", p.Records, p.Bytes, p.ReusedBytes)
	}
	return c.err
}
