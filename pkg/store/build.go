package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"substrate/pkg/doc"
	"substrate/pkg/footprint"
	"substrate/pkg/quant"
)

// Spec says what a store is to hold.
type Spec struct {
	Profile *doc.Profile
	Plans   []NamedPlan
	// Texts are small files of the model beside the weights: tokenizer.json,
	// config.json, chat_template.jinja.
	Texts []Text
	// Compress stores records that every plan keeps resident as zstd frames
	// where that gains at least 3 %.
	Compress bool
}

// NamedPlan is a plan and its name in the store.
type NamedPlan struct {
	Name string
	Plan *doc.Plan
}

// Text is a small file, by its name in the store.
type Text struct {
	File string
	Data []byte
}

// Build is a Spec worked out: the records of all plans, each once.
type Build struct {
	spec       Spec
	encodings  []doc.Encoding
	layouts    []doc.RecordLayout
	files      []string // of records
	items      []item   // in the order of writing
	plans      []storedPlan
	scale      string
	synthetic  bool
	statistics string
}

// item is one record to write.
type item struct {
	id       string
	op       int // index into the profile's ops
	encoding int
	layout   int
	file     int
	below    int // index into items, -1 for none
	compress bool
}

// storedPlan is a plan as it goes into the store.
type storedPlan struct {
	name  string
	text  []byte
	items []int // by entry of the catalog
}

var (
	planName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$`)
	opName   = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)*$`)
	partName = regexp.MustCompile(`^[a-z0-9_]+$`)
)

// MismatchError is the refusal of plans that do not fit the model or each
// other.
type MismatchError struct {
	Plan   string // name
	Reason error
}

func (e *MismatchError) Error() string { return fmt.Sprintf("plan %q: %v", e.Plan, e.Reason) }
func (e *MismatchError) Unwrap() error { return e.Reason }

// ExitCode is that of a "no".
func (e *MismatchError) ExitCode() int { return 1 }

// NewBuild works out what a store is to hold. Plans that do not fit the model
// or each other are a *MismatchError.
func NewBuild(spec Spec) (*Build, error) {
	c := &Build{spec: spec, synthetic: spec.Profile.Synthetic}
	if len(spec.Plans) == 0 {
		return nil, fmt.Errorf("a store needs at least one plan")
	}
	b := newBinder(c)
	for _, p := range spec.Plans {
		if err := b.add(p); err != nil {
			return nil, &MismatchError{p.Name, err}
		}
	}
	if c.scale == "" {
		c.scale = "bf16"
	}
	c.sort()
	c.nameFiles()
	return c, nil
}

// binder collects the records of several plans.
type binder struct {
	c         *Build
	ops       map[string]int
	encodings map[string]int
	layouts   map[string]int // by text
	files     map[string]int
	items     map[itemKey]int
	ids       map[string]bool // record ids of the plans before
}

// itemKey tells records apart: what is stored, not where, nor what a plan calls
// it. What one plan has as a skeleton may be another one's replacement.
type itemKey struct{ op, encoding, below int }

func newBinder(c *Build) *binder {
	b := &binder{
		c: c, ops: map[string]int{}, encodings: map[string]int{}, layouts: map[string]int{},
		files: map[string]int{}, items: map[itemKey]int{}, ids: map[string]bool{},
	}
	for i := range c.spec.Profile.Ops {
		b.ops[c.spec.Profile.Ops[i].ID] = i
	}
	return b
}

func (b *binder) add(p NamedPlan) error {
	if !planName.MatchString(p.Name) {
		return fmt.Errorf("a plan's name is letters, digits, dots, hyphens and underscores: it becomes a file")
	}
	for i := range b.c.plans {
		if b.c.plans[i].name == p.Name {
			return fmt.Errorf("two plans of this name")
		}
	}
	text, err := doc.Write(p.Plan)
	if err != nil {
		return err
	}
	if want, got := p.Plan.HeaderSHA256, b.c.spec.Profile.HeaderSHA256; want != got && want != "" {
		return fmt.Errorf("made for model %q with header %s, not for %q with header %s",
			p.Plan.ModelID, short(want), b.c.spec.Profile.ModelID, short(got))
	}
	if len(b.c.plans) > 0 && p.Plan.Statistics != b.c.statistics {
		return fmt.Errorf("made with statistics %q, the plans before with %q: their codes differ, pack them apart", short(p.Plan.Statistics), short(b.c.statistics))
	}
	b.c.statistics = p.Plan.Statistics
	b.c.synthetic = b.c.synthetic || p.Plan.Synthetic
	stored := storedPlan{name: p.Name, text: text, items: make([]int, len(p.Plan.Catalog))}
	streamed := streamedRecords(p.Plan)
	catalog := map[string]int{}
	for i := range p.Plan.Catalog {
		catalog[p.Plan.Catalog[i].ID] = i
		stored.items[i] = -1
	}
	for i := range p.Plan.Catalog {
		if err := b.bind(p.Plan, stored.items, catalog, i, streamed); err != nil {
			return err
		}
	}
	for id := range catalog {
		b.ids[id] = true
	}
	b.c.plans = append(b.c.plans, stored)
	return nil
}

// streamedRecords are those that some mode of a plan does not hold for the
// whole run.
func streamedRecords(p *doc.Plan) map[string]bool {
	streamed := map[string]bool{}
	for _, mode := range []*doc.Residency{&p.Scheduled, &p.Exact} {
		resident := map[string]bool{}
		for _, id := range mode.Resident {
			resident[id] = true
		}
		for i := range p.Catalog {
			if id := p.Catalog[i].ID; !resident[id] {
				streamed[id] = true
			}
		}
	}
	return streamed
}

// bind finds or makes the item of entry i of a plan's catalog, and first those
// below it.
func (b *binder) bind(p *doc.Plan, items []int, catalog map[string]int, i int, streamed map[string]bool) error {
	if items[i] >= 0 {
		return nil
	}
	r := &p.Catalog[i]
	it := item{id: r.ID, below: -1}
	if r.Below != "" {
		j, ok := catalog[r.Below]
		if !ok || j == i || p.Catalog[j].Op != r.Op {
			return fmt.Errorf("record %q adds to %q, which is no other record of op %q", r.ID, r.Below, r.Op)
		}
		if items[j] == -2 {
			return fmt.Errorf("record %q adds to itself", r.ID)
		}
		items[i] = -2 // on the way
		if err := b.bind(p, items, catalog, j, streamed); err != nil {
			return err
		}
		it.below = items[j]
	}
	var err error
	if it.op, it.encoding, it.layout, err = b.resolve(p, r); err != nil {
		return err
	}
	key := itemKey{it.op, it.encoding, it.below}
	n, ok := b.items[key]
	if !ok {
		n = len(b.c.items)
		name, err := fileName(&b.c.spec.Profile.Ops[it.op], r.ID)
		if err != nil {
			return err
		}
		if b.ids[r.ID] { // another record of this id is there already
			name = fmt.Sprint(name, planMark, len(b.c.plans)) // until nameFiles
		}
		it.file = intern(b.files, name, &b.c.files)
		it.compress = b.c.spec.Compress
		b.items[key] = n
		b.c.items = append(b.c.items, it)
	}
	if streamed[r.ID] {
		b.c.items[n].compress = false
	}
	items[i] = n
	return nil
}

// resolve finds op, encoding and layout of a catalog entry.
func (b *binder) resolve(p *doc.Plan, r *doc.CatalogRecord) (op, encoding, layout int, err error) {
	op, ok := b.ops[r.Op]
	if !ok {
		return 0, 0, 0, fmt.Errorf("record %q is of op %q, which the model does not have", r.ID, r.Op)
	}
	at := slices.IndexFunc(p.Encodings, func(e doc.Encoding) bool { return e.ID == r.Encoding })
	if at < 0 {
		return 0, 0, 0, fmt.Errorf("record %q has encoding %q, which the plan does not define", r.ID, r.Encoding)
	}
	e := &p.Encodings[at]
	if e.Residual != (r.Below != "") {
		return 0, 0, 0, fmt.Errorf("record %q of encoding %q adds to %q: residuals, and they alone, add to a record", r.ID, e.ID, r.Below)
	}
	if b.c.scale == "" && e.Bits < 32 {
		b.c.scale = e.Scale
	}
	if e.Bits < 32 && e.Scale != b.c.scale {
		return 0, 0, 0, fmt.Errorf("record %q has scales in %s, others in %s: a store has one scale type", r.ID, e.Scale, b.c.scale)
	}
	encoding, ok = b.encodings[e.ID]
	if !ok {
		encoding = len(b.c.encodings)
		b.encodings[e.ID] = encoding
		b.c.encodings = append(b.c.encodings, *e)
	}
	l, err := footprint.Layout(&b.c.spec.Profile.Ops[op], e)
	if err != nil {
		return 0, 0, 0, err
	}
	if l.Bytes == 0 {
		return 0, 0, 0, fmt.Errorf("record %q of encoding %q holds nothing of op %q", r.ID, e.ID, r.Op)
	}
	if l.Bytes != r.RAMBytes {
		return 0, 0, 0, fmt.Errorf("record %q has %d bytes in the plan, %d by the model's shapes: made for another model or by another version", r.ID, r.RAMBytes, l.Bytes)
	}
	text := fmt.Sprint(l)
	layout, ok = b.layouts[text]
	if !ok {
		layout = len(b.c.layouts)
		b.layouts[text] = layout
		b.c.layouts = append(b.c.layouts, l)
	}
	return op, encoding, layout, nil
}

// fileName is the file of a record: "block_5.attn.skeleton", and for experts
// "block_5.experts.skeleton" for all of a layer.
func fileName(op *doc.Op, id string) (string, error) {
	part, ok := strings.CutPrefix(id, op.ID+".")
	if !ok || !partName.MatchString(part) || !opName.MatchString(op.ID) {
		return "", fmt.Errorf("record id %q: want the op's id %q, a dot and a word, all of a-z, 0-9 and _", id, op.ID)
	}
	if op.Expert >= 0 {
		return fmt.Sprintf("block_%d.experts.%s", op.Layer, part), nil
	}
	return id, nil
}

// sort brings items and files into the order of writing: by op, in an op what
// is below first.
func (c *Build) sort() {
	order := make([]int, len(c.items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return c.items[a].op - c.items[b].op })
	place := make([]int, len(order))
	items := make([]item, len(order))
	for to, from := range order {
		place[from] = to
		items[to] = c.items[from]
	}
	var files []string
	seen := map[string]int{}
	for i := range items {
		it := &items[i]
		if it.below >= 0 {
			it.below = place[it.below]
		}
		it.file = intern(seen, c.files[it.file], &files)
	}
	for i := range c.plans {
		for j, n := range c.plans[i].items {
			c.plans[i].items[j] = place[n]
		}
	}
	c.items, c.files = items, files
}

// planMark is between the name of a file and the number of its plan, and in no
// name.
const planMark = "#"

// nameFiles makes paths of the names of files. Where two plans mean different
// records by one id, the name of the later one's ends in the start of a digest
// of what is in it.
func (c *Build) nameFiles() {
	identities := make([][]string, len(c.files))
	for i, identity := range c.identities("") {
		f := c.items[i].file
		identities[f] = append(identities[f], identity)
	}
	for i, name := range c.files {
		if base, _, marked := strings.Cut(name, planMark); marked {
			name = base + "." + short(digest([]byte(strings.Join(identities[i], "\n"))))
		}
		c.files[i] = "tensors/" + name + ".bin"
	}
}

// intern returns the index of name in list, adding it if it is new.
func intern(index map[string]int, name string, list *[]string) int {
	i, ok := index[name]
	if !ok {
		i = len(*list)
		index[name] = i
		*list = append(*list, name)
	}
	return i
}

// identities returns the identity of each item: equal ones have equal bytes.
func (c *Build) identities(weights string) []string {
	ids := make([]string, len(c.items))
	for i := range c.items {
		it := &c.items[i]
		e := &c.encodings[it.encoding]
		stats, below := "", ""
		if e.Fit != "minmax" && e.Fit != "none" {
			stats = c.statistics
		}
		if it.below >= 0 {
			below = ids[it.below]
		}
		ids[i] = digest([]byte(strings.Join([]string{"sb.record/1", weights, c.spec.Profile.Ops[it.op].ID, e.ID, stats, below}, "\n")))
	}
	return ids
}

// Records is the number of records.
func (c *Build) Records() int { return len(c.items) }

// Bytes is the size of the store, at most: without what compression gains, and
// without the manifest.
func (c *Build) Bytes() int64 {
	var sum int64
	for i := range c.items {
		sum += c.layouts[c.items[i].layout].Bytes
	}
	for i := range c.plans {
		sum += int64(len(c.plans[i].text))
	}
	for i := range c.spec.Texts {
		sum += int64(len(c.spec.Texts[i].Data))
	}
	return sum
}

// MemoryBytes is what writing holds at once, beside the program: the records
// of the largest op, and what threads goroutines need to fit.
func (c *Build) MemoryBytes(threads int) int64 {
	var largest, op, fit int64
	for i := range c.items {
		layout := &c.layouts[c.items[i].layout]
		for j := range layout.Tensors {
			fit = max(fit, quant.FitBytes(c.encodings[c.items[i].encoding].Fit, layout.Tensors[j].Cols))
		}
		if i > 0 && c.items[i].op != c.items[i-1].op {
			op = 0
		}
		op += c.layouts[c.items[i].layout].Bytes
		largest = max(largest, op)
	}
	if c.spec.Compress {
		largest *= 2
	}
	return largest + fit + int64(threads)*quant.WorkBytes
}

// Statistics is the digest of the statistics that the plans' KL was measured
// with, "" if none was.
func (c *Build) Statistics() string { return c.statistics }

func digest(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// short is what tells digests apart for people.
func short(digest string) string { return digest[:min(8, len(digest))] }
