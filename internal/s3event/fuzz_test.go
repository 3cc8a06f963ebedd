package s3event_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spillway-mq/spillway/internal/s3event"
)

// FuzzParse: whatever comes, an event that is not refused names an object that can
// be, its JSON is JSON, and reading again gives the same.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"abc"},"object":{"key":"\ud800%2F","size":1e9}}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		events, err := s3event.Parse(data)
		var typed *s3event.ParseError
		if err != nil && (!errors.As(err, &typed) || events != nil) {
			t.Fatalf("%d events, %v", len(events), err)
		}
		if err == nil && (len(events) == 0 || len(events) > s3event.MaxRecords) {
			t.Fatalf("%d events", len(events))
		}
		for _, e := range events {
			if !json.Valid([]byte(e.JSON)) {
				t.Fatalf("event %q", e.JSON)
			}
			order, ok := e.Order()
			if len(order) > 32 || ok && e.Sequencer == "" {
				t.Fatalf("sequencer %q: %x", e.Sequencer, order)
			}
			if e.Refused != nil || e.Kind == s3event.Ignored {
				if e.Object.Key != "" || e.Sequencer != "" {
					t.Fatalf("not to be used, and filled in: %+v", e)
				}
				continue
			}
			if err := e.Object.Check(); err != nil || e.Size < 0 || len(e.ETag) > 1024 {
				t.Fatalf("%+v: %v", e, err)
			}
		}
		if again, _ := s3event.Parse(data); describe(events, nil) != describe(again, nil) {
			t.Fatal("read differently the second time")
		}
	})
}
