package schema_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

var update = flag.Bool("update", false, "rewrite the schemas from the types")

// documents are the types with a schema, by its name.
var documents = map[string]any{
	"profile":     doc.Profile{},
	"table":       doc.Table{},
	"machine":     doc.Machine{},
	"plan":        doc.Plan{},
	"policy":      doc.Policy{},
	"feasibility": doc.Feasibility{},
	"curve":       doc.CurvePoint{},
	"store":       doc.Manifest{},
	"packed":      doc.Packed{},
	"verify":      doc.Verify{},
	"verifier":    doc.Verifier{},
	"request":     doc.Request{},
	"answer":      doc.Answer{},
}

// traceLines are the types of a trace's lines.
var traceLines = map[string]any{
	doc.TraceRunStart: doc.RunStart{},
	doc.TraceToken:    doc.TokenLine{},
	doc.TraceOp:       doc.OpLine{},
	doc.TraceTier:     doc.TierLine{},
	doc.TraceRead:     doc.ReadLine{},
	doc.TraceSlot:     doc.SlotLine{},
	doc.TraceSignal:   doc.SignalLine{},
	doc.TraceFallback: doc.FallbackLine{},
	doc.TraceMemory:   doc.MemoryLine{},
	doc.TraceRunEnd:   doc.RunEnd{},
}

func reflector(t *testing.T) *jsonschema.Reflector {
	t.Helper()
	r := &jsonschema.Reflector{Anonymous: true, ExpandedStruct: true, Mapper: func(t reflect.Type) *jsonschema.Schema {
		if t.Kind() == reflect.Int64 {
			return &jsonschema.Schema{Type: "integer", Minimum: "-9007199254740992", Maximum: "9007199254740992"}
		}
		return nil
	}}
	if err := r.AddGoComments("substrate", "../pkg/doc"); err != nil {
		t.Fatal(err)
	}
	// Keys are made from the path that was given.
	comments := make(map[string]string, len(r.CommentMap))
	for key, text := range r.CommentMap {
		name := key[strings.LastIndex(key, "/")+1:]
		comments["substrate/pkg/"+name] = strings.Join(strings.Fields(text), " ")
	}
	r.CommentMap = comments
	return r
}

// generate makes all schemas from the types.
func generate(t *testing.T) map[string][]byte {
	t.Helper()
	schemas := map[string][]byte{}
	for name, v := range documents {
		s := reflector(t).Reflect(v)
		if p, ok := s.Properties.Get("format"); ok {
			p.Const = "sb." + name + "/1"
		} else {
			t.Errorf("%s has no format", name)
		}
		schemas[name] = marshal(t, s)
	}
	trace := &jsonschema.Schema{
		Version:     jsonschema.Version,
		Description: "A line of a trace.",
		Definitions: jsonschema.Definitions{},
	}
	for _, name := range []string{
		doc.TraceRunStart, doc.TraceToken, doc.TraceOp, doc.TraceTier, doc.TraceRead, doc.TraceSlot, doc.TraceSignal, doc.TraceMemory, doc.TraceRunEnd,
	} {
		s := reflector(t).Reflect(traceLines[name])
		p, ok := s.Properties.Get("type")
		if !ok {
			t.Fatalf("%s lines have no type", name)
		}
		p.Const = name
		s.Version = ""
		for inner, d := range s.Definitions {
			trace.Definitions[inner] = d
		}
		s.Definitions = nil
		trace.OneOf = append(trace.OneOf, s)
	}
	schemas["trace"] = marshal(t, trace)
	return schemas
}

func marshal(t *testing.T, s *jsonschema.Schema) []byte {
	t.Helper()
	b, err := s.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	b, err = jsonio.Marshal(jsonio.RawValue(b))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The schemas are those of the types; go generate makes them again.
func TestSchemas(t *testing.T) {
	for name, want := range generate(t) {
		file := name + ".schema.json"
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the types say: run go generate ./schema", file)
		}
	}
}

// Golden documents are valid by their schemas, and spoiled ones are not.
func TestGoldenDocuments(t *testing.T) {
	goldens, err := filepath.Glob("../pkg/doc/testdata/*.json")
	if err != nil || len(goldens) == 0 {
		t.Fatal("no golden documents", err)
	}
	for _, golden := range goldens {
		name := strings.TrimSuffix(filepath.Base(golden), ".json")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			schema, err := validator.NewCompiler().Compile(name + ".schema.json")
			if err != nil {
				t.Fatal(err)
			}
			check := func(text []byte) error {
				v, err := validator.UnmarshalJSON(bytes.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				return schema.Validate(v)
			}
			if err := check(text); err != nil {
				t.Error(err)
			}
			if check(bytes.Replace(text, []byte(`"format"`), []byte(`"unknown": 1, "format"`), 1)) == nil {
				t.Error("an unknown member is valid")
			}
			if check(bytes.Replace(text, []byte(`/1"`), []byte(`/2"`), 1)) == nil {
				t.Error("another version is valid")
			}
		})
	}
}
