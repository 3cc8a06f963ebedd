package record

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/avro"
)

func TestFingerprintIsThatOfTheSchema(t *testing.T) {
	h := avro.NewRabin()
	h.Write(avro.MustParse(Schema()).Canonical())
	if got, want := Fingerprint(), h.Sum64(); got != want {
		t.Errorf("Fingerprint() = %#x, the library says %#x", got, want)
	}
}

// The worker splices message bytes into records, so the fields must be the same.
func TestMessageIsTheTailOfRecord(t *testing.T) {
	fields := func(schema string) []any {
		var s map[string]any
		if err := json.Unmarshal([]byte(schema), &s); err != nil {
			t.Fatal(err)
		}
		dropDocs(s)
		return s["fields"].([]any)
	}
	rec, msg := fields(Schema()), fields(MessageSchema())
	if diff := cmp.Diff(rec[len(rec)-len(msg):], msg); diff != "" {
		t.Errorf("the last fields of Record are not those of Message (-record +message):\n%s", diff)
	}
	avro.MustParse(MessageSchema())
}

func TestEveryFieldHasADoc(t *testing.T) {
	seen := 0
	var walk func(n *avro.SchemaNode)
	walk = func(n *avro.SchemaNode) {
		for _, f := range n.Fields {
			seen++
			if f.Doc == "" {
				t.Errorf("%s.%s has no doc", n.Name, f.Name)
			}
			walk(&f.Type)
		}
		for i := range n.Branches {
			walk(&n.Branches[i])
		}
		if n.Items != nil {
			walk(n.Items)
		}
	}
	walk(avro.MustParse(Schema()).Root())
	if seen != 10+2+2+7 {
		t.Errorf("saw %d fields", seen)
	}
}

func TestCheckSchema(t *testing.T) {
	reworded := strings.Replace(string(recordSource), "Partition key", "The partition key", 1)
	for _, ok := range []string{Schema(), string(recordSource), reworded} {
		if err := checkSchema([]byte(ok)); err != nil {
			t.Errorf("our schema in other words: %v", err)
		}
	}
	for name, c := range map[string]struct{ schema, want string }{
		"another record":   {`{"type":"record","name":"User","namespace":"x.y","fields":[]}`, "x.y.User"},
		"millis":           {strings.Replace(Schema(), "timestamp-micros", "timestamp-millis", 1), "spillway.Record"},
		"a field more":     {strings.Replace(Schema(), `"fields":[`, `"fields":[{"name":"x","type":"int"},`, 1), "spillway.Record"},
		"messages":         {MessageSchema(), "spillway.Message"},
		"a primitive":      {`"string"`, `"string"`},
		"not JSON":         {"{", "{"},
		"empty":            {"", ""},
		"a name of no use": {`{"name":7}`, `{"name":7}`},
	} {
		t.Run(name, func(t *testing.T) {
			var e *SchemaError
			if err := checkSchema([]byte(c.schema)); !errors.As(err, &e) || e.Name != c.want {
				t.Errorf("got %v, want a SchemaError that names %q", err, c.want)
			}
		})
	}
}
