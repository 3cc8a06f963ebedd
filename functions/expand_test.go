package functions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestExpandRefused: what cannot be expanded is refused, whatever is at its URL; what
// is no batch reference, or one for readers, has no job.
func TestExpandRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*record.Record)
		key    topic.Key
		why    string // it is refused; empty: it is not
		jobs   int
		rows   string // the key of its rows
	}{
		"as it is":          {nil, topic.KeyHeader, "", 1, "x"},
		"without a key":     {func(r *record.Record) { r.Key = nil }, topic.KeyHeader, "", 1, ""},
		"keyed by a place":  {nil, "json:/n", "", 1, ""},
		"for readers":       {func(r *record.Record) { r.Headers = r.Headers[:1] }, topic.KeyHeader, "", 0, ""},
		"one payload":       {func(r *record.Record) { r.Headers = r.Headers[1:] }, topic.KeyHeader, "", 0, ""},
		"an unknown format": {func(r *record.Record) { r.Headers[0].Value = []byte("xlsx") }, topic.KeyHeader, `Spillway-Rows: format "xlsx"`, 0, ""},
		"for readers, too":  {func(r *record.Record) { r.Headers = []record.Header{{Name: ref.HeaderRows}} }, topic.KeyHeader, "Spillway-Rows", 0, ""},
		"a wish that is none": {func(r *record.Record) { r.Headers[1].Value = []byte("yes") }, topic.KeyHeader,
			`Spillway-Expand: "yes": want true or false`, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, c.key)
				s.lane = stillLane{asking(t, c.change, "x")}
				w, _ := s.worker("one", judgement{}, nil)
				if err := w.Run(t.Context(), t.Context()); err != nil {
					t.Fatal(err)
				}
				jobs := len(s.work())
				refs, rows := s.records()
				switch {
				case len(refs) != 1 || jobs != c.jobs:
					t.Errorf("%d references, %d jobs", len(refs), jobs)
				case c.why == "" && (refs[0].Rejected != "" || refs[0].Pending):
					t.Errorf("%+v", refs[0])
				case c.why != "" && !strings.Contains(refs[0].Rejected, "reference: "+c.why):
					t.Errorf("rejected: %q", refs[0].Rejected)
				case c.key == "json:/n":
					if fmt.Sprint(rows) != "map[1:1 2:1]" {
						t.Errorf("rows %v", rows)
					}
				case c.jobs == 1 && rows[c.rows] != 2, c.jobs == 0 && len(rows) > 0:
					t.Errorf("rows %v", rows)
				}
				if got := w.Counts(); c.why != "" && got.Rejected != 1 {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// TestExpandWithoutETag: an endpoint that names no ETag gives nothing that a job could
// hold on to.
func TestExpandWithoutETag(t *testing.T) {
	s := newScene(t, topic.KeyHeader)
	e := &expander{s.store, lookFunc(func() (object.Info, error) { return object.Info{Size: 1}, nil })}
	r := record.Record{Position: topic.Position{Sequence: 1}, Ref: &record.Ref{URL: "s3://allowed/x", ETag: "e"}, Headers: ref.Batch{Format: "csv", Expand: true}.Headers()}
	var bad *ref.BatchError
	if err := e.Expand(t.Context(), s.topic(), "lane.a", r); !errors.As(err, &bad) || !strings.Contains(err.Error(), "no proper ETag") {
		t.Error(err)
	}
}

type lookFunc func() (object.Info, error)

func (f lookFunc) Look(context.Context, topic.Definition, record.Ref) (object.Info, error) {
	return f()
}

// TestExpandFreezesWhatIsThere: an equal digest forgives another ETag, and a bucket
// with versions says which one it is.
func TestExpandFreezesWhatIsThere(t *testing.T) {
	for version, want := range map[string]string{"": "", "null": "", "v2": "v2"} {
		s := newScene(t, topic.KeyHeader)
		e := &expander{s.store, lookFunc(func() (object.Info, error) {
			return object.Info{Size: 7, ETag: "is", Version: version}, nil
		})}
		r := record.Record{
			Position: topic.Position{Sequence: 1}, Ref: &record.Ref{URL: "s3://allowed/x", ETag: "was", Size: 7},
			Headers: ref.Batch{Format: "csv", Compression: "zstd", CSV: ref.CSV{Comma: ";"}, Expand: true}.Headers(),
		}
		if err := e.Expand(t.Context(), s.topic(), "lane.a", r); err != nil {
			t.Fatal(err)
		}
		jobs := backfill.Of(s.store, s.topic())
		for l, err := range jobs.List(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			j, err := jobs.Load(t.Context(), l.ID)
			if err != nil {
				t.Fatal(err)
			}
			o := j.Sources[0].Objects[0]
			if o != (backfill.Object{Bucket: "allowed", Key: "x", Version: want, ETag: "is", Size: 7}) || j.Read.Format != "csv" || j.Read.Compression != "zstd" || j.Read.CSV.Comma != ";" {
				t.Errorf("%+v %+v", o, j.Read)
			}
		}
	}
}
