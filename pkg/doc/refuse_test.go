package doc_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"substrate/pkg/doc"
)

func read[T any, P interface {
	*T
	doc.Document
}](t *testing.T, name string) *T {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := doc.Read[T, P](name, b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// refusals spoils a golden document and wants the place of what is wrong.
func refusals[T any, P interface {
	*T
	doc.Document
}](t *testing.T, name string, cases map[string]func(*T)) {
	for place, spoil := range cases {
		t.Run(name+place, func(t *testing.T) {
			d := read[T, P](t, name)
			spoil(d)
			err := P(d).Validate()
			if err == nil {
				t.Fatal("valid")
			}
			place, _, _ := strings.Cut(place, "#") // several ways to spoil one place
			if !strings.HasPrefix(err.Error(), place+": ") {
				t.Errorf("error %q is not at %s", err, place)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	refusals(t, "profile", map[string]func(*doc.Profile){
		"/header_sha256":                  func(p *doc.Profile) { p.HeaderSHA256 = "ABC" },
		"/parameters":                     func(p *doc.Profile) { p.Parameters = -1 },
		"/architecture/hidden_size":       func(p *doc.Profile) { p.Architecture.HiddenSize = 0 },
		"/architecture/layers":            func(p *doc.Profile) { p.Architecture.Layers = math.MaxInt },
		"/architecture/kv_heads":          func(p *doc.Profile) { p.Architecture.Heads, p.Architecture.KVHeads = 3, 2 },
		"/architecture/norm_eps":          func(p *doc.Profile) { p.Architecture.NormEps = math.NaN() },
		"/architecture/moe_layers/1":      func(p *doc.Profile) { p.Architecture.MoELayers[1] = 0 },
		"/architecture/experts_per_token": func(p *doc.Profile) { p.Architecture.ExpertsPerToken = 99 },
		"/architecture/eos_token_ids/0":   func(p *doc.Profile) { p.Architecture.EOS = []int{-2} },
		"/architecture/rope/theta":        func(p *doc.Profile) { p.Architecture.RoPE.Theta = math.Inf(1) },
		"/kv_caches":                      func(p *doc.Profile) { p.KVCaches = nil },
		"/kv_caches/1/type":               func(p *doc.Profile) { p.KVCaches[1].Type = p.KVCaches[0].Type },
		"/ops":                            func(p *doc.Profile) { p.Ops = nil },
		"/ops/1/id":                       func(p *doc.Profile) { p.Ops[1].ID = p.Ops[0].ID },
		"/ops/1/kind":                     func(p *doc.Profile) { p.Ops[1].Kind = "mystery" },
		"/ops/1/layer":                    func(p *doc.Profile) { p.Ops[1].Layer = 1 },
		"/ops/1/expert":                   func(p *doc.Profile) { p.Ops[1].Expert = 0 },
		"/ops/1":                          func(p *doc.Profile) { p.Ops[1].FlopsPerToken = -1 },
		"/ops/0/shares":                   func(p *doc.Profile) { p.Ops[0].Shares, p.Ops[0].Tensors = "lm_head", nil },
		"/ops/1/tensors/1/role":           func(p *doc.Profile) { p.Ops[1].Tensors[1].Role = p.Ops[1].Tensors[0].Role },
		"/ops/1/tensors/1":                func(p *doc.Profile) { p.Ops[1].Tensors[1].Rows = 0 },
		"/ops/1/tensors/1#size":           func(p *doc.Profile) { p.Ops[1].Tensors[1].Rows /= 2 },
		"/ops/1/tensors/1#keep":           func(p *doc.Profile) { p.Ops[1].Tensors[1].Keep = true },
		"/ops/0/tensors/0":                func(p *doc.Profile) { p.Architecture.HiddenSize *= 2 },
		"/ops/1/tensors":                  func(p *doc.Profile) { p.Ops[1].Tensors = p.Ops[1].Tensors[:1] },
		"/ops/1/tensors/1/source/index":   func(p *doc.Profile) { p.Ops[1].Tensors[1].Source.Index = -2 },
	})
	refusals(t, "table", map[string]func(*doc.Table){
		"/profile/ops":               func(t *doc.Table) { t.Profile.Ops = nil },
		"/kl_floor":                  func(t *doc.Table) { t.Floor = math.NaN() },
		"/encodings/0":               func(t *doc.Table) { t.Encodings[0].Group = 48 },
		"/encodings/1/id":            func(t *doc.Table) { t.Encodings[1] = t.Encodings[0] },
		"/levels/0/encodings/0":      func(t *doc.Table) { t.Levels[0].Encodings[0] = "q7" },
		"/levels/0/encodings/0#res":  func(t *doc.Table) { t.Levels[0].Encodings[0] = "r2g64-bf16-lsq1" },
		"/levels/1/id":               func(t *doc.Table) { t.Levels[1].ID = "q" },
		"/levels/2/encodings":        func(t *doc.Table) { t.Levels[2].Encodings = nil },
		"/items/0/op":                func(t *doc.Table) { t.Items[0].Op = "block_9.attn" },
		"/items/1/op":                func(t *doc.Table) { t.Items[1].Op = t.Items[0].Op },
		"/items/0/levels":            func(t *doc.Table) { t.Items[0].Levels = nil },
		"/items/0/levels/1/level":    func(t *doc.Table) { t.Items[0].Levels[1].Level = t.Items[0].Levels[0].Level },
		"/items/0/levels/1":          func(t *doc.Table) { t.Items[0].Levels[1].RAMBytes = 1 << 54 },
		"/items/0/levels/1/kl":       func(t *doc.Table) { t.Items[0].Levels[1].KL = math.Inf(-1) },
		"/items/0/levels/1/kl#err":   func(t *doc.Table) { t.Items[0].Levels[1].KLError = -1 },
		"/items/0/levels/1/source":   func(t *doc.Table) { t.Items[0].Levels[1].Source = "hearsay" },
		"/items/3":                   func(t *doc.Table) { t.Items[3].HitShare = 1.5 },
		"/reuse_curves/1/layer":      func(t *doc.Table) { t.Reuse[1].Layer = t.Reuse[0].Layer },
		"/reuse_curves/0/hit_rate":   func(t *doc.Table) { t.Reuse[0].HitRate = t.Reuse[0].HitRate[:2] },
		"/reuse_curves/0/hit_rate/1": func(t *doc.Table) { t.Reuse[0].HitRate[1] = 1.1 },
		"/link":                      func(t *doc.Table) { t.Link.Scale = 0 },
	})
	refusals(t, "machine", map[string]func(*doc.Machine){
		"/source":             func(m *doc.Machine) { m.Source = "guess" },
		"/reads/0":            func(m *doc.Machine) { m.Reads[0].BytesPerSec = 0 },
		"/reads/1":            func(m *doc.Machine) { m.Reads[1] = m.Reads[0] },
		"/kernels/0":          func(m *doc.Machine) { m.Kernels[0].TimeNs = 0 },
		"/memory/total_bytes": func(m *doc.Machine) { m.Memory.TotalBytes = -1 },
		"/threads":            func(m *doc.Machine) { m.Threads = -1 },
	})
	refusals(t, "policy", map[string]func(*doc.Policy){
		"/pins/0":                       func(p *doc.Policy) { p.Pins[0].Op = "lm_head" },
		"/pins/0#neither":               func(p *doc.Policy) { p.Pins[0].MinBits = 0 },
		"/pins/0#both":                  func(p *doc.Policy) { p.Pins[0].Level = "bf16" },
		"/pins/0/kind":                  func(p *doc.Policy) { p.Pins[0].Kind = "mystery" },
		"/pins/0/min_bits":              func(p *doc.Policy) { p.Pins[0].MinBits = 17 },
		"/pins/0/reason":                func(p *doc.Policy) { p.Pins[0].Reason = "" },
		"/pins/1/layers/1":              func(p *doc.Policy) { p.Pins[1].Layers[1] = 0 },
		"/pins/2/layers":                func(p *doc.Policy) { p.Pins[2].Layers = []int{0} },
		"/super_experts/loss_factor":    func(p *doc.Policy) { p.SuperExperts.LossFactor = math.NaN() },
		"/super_experts/min_bits":       func(p *doc.Policy) { p.SuperExperts.MinBits = 0 },
		"/rare_experts/hit_share_below": func(p *doc.Policy) { p.RareExperts.HitShareBelow = 2 },
		"/rare_experts/min_bits":        func(p *doc.Policy) { p.RareExperts.MinBits = -1 },
		"/max_classes_per_layer":        func(p *doc.Policy) { p.MaxClasses = -1 },
	})
	refusals(t, "store", map[string]func(*doc.Manifest){
		"/align_bytes":             func(m *doc.Manifest) { m.Align = 1000 },
		"/scale_type":              func(m *doc.Manifest) { m.ScaleType = "f8" },
		"/plans":                   func(m *doc.Manifest) { m.Plans = nil },
		"/plans/0":                 func(m *doc.Manifest) { m.Plans[0].File = "../plan.json" },
		"/plans/0/records/0":       func(m *doc.Manifest) { m.Plans[0].Records[0] = 1 << 30 },
		"/files/0/file":            func(m *doc.Manifest) { m.Files[0].File = "/etc/passwd" },
		"/files/1/file":            func(m *doc.Manifest) { m.Files[1].File = m.Files[0].File },
		"/files/0":                 func(m *doc.Manifest) { m.Files[0].SHA256 = "" },
		"/layouts/0/bytes":         func(m *doc.Manifest) { m.Layouts[0].Bytes = 0 },
		"/layouts/0/tensors/0":     func(m *doc.Manifest) { m.Layouts[0].Tensors[0].Data = 1 << 52 },
		"/layouts/0/tensors/0#neg": func(m *doc.Manifest) { m.Layouts[0].Tensors[0].Data = -1 },
		"/layouts/0/tensors/0#big": func(m *doc.Manifest) { m.Layouts[0].Tensors[0].Rows = doc.MaxDimension },
		"/records/0":               func(m *doc.Manifest) { m.Records[0].Offset = 1 },
		"/records/0#end":           func(m *doc.Manifest) { m.Records[0].Offset = 1 << 40 },
		"/records/0#long":          func(m *doc.Manifest) { m.Records[0].Bytes = math.MaxInt64 },
		"/records/0/op":            func(m *doc.Manifest) { m.Records[0].Op = "block_9.attn" },
		"/records/0/encoding":      func(m *doc.Manifest) { m.Records[0].Encoding = "q7" },
		"/records/0/layout":        func(m *doc.Manifest) { m.Records[0].Layout = -1 },
		"/records/0/file":          func(m *doc.Manifest) { m.Records[0].File = 1 << 20 },
		"/records/1":               func(m *doc.Manifest) { m.Records[1] = m.Records[0] },
	})
	refusals(t, "packed", map[string]func(*doc.Packed){
		"/store":           func(p *doc.Packed) { p.Store = "m.sb" },
		"/manifest_sha256": func(p *doc.Packed) { p.Manifest = "" },
		"/plan":            func(p *doc.Packed) { p.Plan = "" },
		"/bytes":           func(p *doc.Packed) { p.Bytes = -1 },
	})
	refusals(t, "feasibility", map[string]func(*doc.Feasibility){
		"/status":                     func(f *doc.Feasibility) { f.Status = "maybe" },
		"/verdict":                    func(f *doc.Feasibility) { f.Verdict = "splendid" },
		"/input":                      func(f *doc.Feasibility) { f.Input = "hearsay" },
		"/styles/0/style":             func(f *doc.Feasibility) { f.Styles[0].Style = "casual" },
		"/styles/1":                   func(f *doc.Feasibility) { f.Styles[1].KL = math.Inf(1) },
		"/joint_relaxation/changes/1": func(f *doc.Feasibility) { f.Joint.Changes[1].Value = -1 },
		"/joint_relaxation":           func(f *doc.Feasibility) { f.Joint.Changes = nil },
		"/axes/0/axis":                func(f *doc.Feasibility) { f.Axes[0].Axis = "luck" },
		"/axes/1":                     func(f *doc.Feasibility) { f.Axes[1].Slack = math.NaN() },
		"/relax_options/0":            func(f *doc.Feasibility) { f.RelaxOptions[0].Flag = "" },
	})
}

// Unknown members, other versions, other documents and null are errors with
// their place.
func TestReadIsStrict(t *testing.T) {
	b, err := os.ReadFile("testdata/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	swap := func(from, to string) string {
		text := strings.Replace(string(b), from, to, 1)
		if text == string(b) {
			t.Fatalf("the golden plan has no %s", from)
		}
		return text
	}
	for want, text := range map[string]string{
		`plan.json: /format: version "2" of sb.plan is not known here`: swap("sb.plan/1", "sb.plan/2"),
		`plan.json: /format: got "sb.tune/1"`:                          swap("sb.plan/1", "sb.tune/1"),
		`plan.json: /budget: unknown member "max_ram"`:                 swap("max_ram_bytes", "max_ram"),
		`plan.json: /model_id: null`:                                   swap(`"model_id": "golden"`, `"model_id": null`),
		`plan.json: /predicted_peak_resident_bytes: 9`:                 swap(`"predicted_peak_resident_bytes": `, `"predicted_peak_resident_bytes": 9`),
		`ends in the middle of a value`:                                string(b[:len(b)/2]),
	} {
		if _, err := doc.Read[doc.Plan]("plan.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v: want %q", err, want)
		}
	}
}
