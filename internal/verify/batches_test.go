package verify

import (
	"context"
	"errors"
	"testing"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
)

// shelf counts what it has, by URL. What it has not cannot be read now.
type shelf struct {
	held  map[string]Counted
	asked int
}

func (s *shelf) Count(_ context.Context, f record.Ref, b ref.Batch) (Counted, error) {
	s.asked++
	held, ok := s.held[f.URL]
	if !ok || f.Records != nil || b.Rows() != "csv+gzip" {
		return Counted{}, errors.New("no answer")
	}
	return held, nil
}

const batchURL = "s3://bucket/12"

// batchRefs makes the references of one message references to batches, which say that
// they hold 40 records.
func (f *fixture) batchRefs(rows string, held Counted) {
	f.shelf = &shelf{held: map[string]Counted{batchURL: held}}
	for _, s := range f.segs {
		for _, c := range s.chunks {
			for i := range c.rows {
				if r := &c.rows[i]; r.Ref != nil && r.Ref.URL == batchURL {
					r.Headers = []header{{"h", []byte("v")}, {"Spillway-Rows", []byte(rows)}}
					r.Ref.Size, r.Ref.Records = 7, ptr(int64(40))
				}
			}
		}
	}
}

// batchFaults are those of the objects of batch references.
func batchFaults() []fault {
	as := func(rows string, held Counted) func(f *fixture) {
		return func(f *fixture) { f.batchRefs(rows, held) }
	}
	return []fault{
		{"a batch has more records than it says", one("batch.count"), as("csv+gzip", Counted{Rows: 41}), nil},
		{"a batch has fewer records than it says", one("batch.count"), as("csv+gzip", Counted{Rows: 39, Rejected: 2}), nil},
		{"a batch is no such file", one("batch.object"), as("csv+gzip", Counted{Rows: 40, Wrong: errors.New("it is cut off")}), nil},
		{"a batch is of no known format", one("batch.header"), as("csv+bzip2", Counted{Rows: 40}), nil},
	}
}

// TestBatchRefs: what is reported of batch references, with and without a look at their
// objects; each object is read once.
func TestBatchRefs(t *testing.T) {
	f := newFixture()
	f.batchRefs("csv+gzip", Counted{Rows: 40, Rejected: 3})
	f.write(t)
	seen := f.shelf
	r := f.verify(t)
	if want := (BatchRefs{Count: 2, Said: 2, Records: 80, Read: 2, Rows: 80, Rejected: 6}); !r.OK || r.BatchRefs != want {
		t.Errorf("%+v, %v", r.BatchRefs, r.Violations)
	}
	if seen.asked != 1 {
		t.Errorf("it was read %d times", seen.asked)
	}
	clear(seen.held)
	if r := f.verify(t); !r.OK || r.BatchRefs != (BatchRefs{Count: 2, Said: 2, Records: 80, Unread: 2}) {
		t.Errorf("it does not answer: %+v, %v", r.BatchRefs, r.Violations)
	}
	f.shelf = nil
	if r := f.verify(t); !r.OK || r.BatchRefs != (BatchRefs{Count: 2, Said: 2, Records: 80}) {
		t.Errorf("without: %+v, %v", r.BatchRefs, r.Violations)
	}
}

// TestBatchRefsEnd: a verification that is ended while an object is read says so.
func TestBatchRefsEnd(t *testing.T) {
	f := newFixture()
	f.batchRefs("csv+gzip", Counted{})
	f.write(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.shelf = nil
	_, err := f.topic(ctx, Expand(counterFunc(func() { cancel() })))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

type counterFunc func()

func (c counterFunc) Count(ctx context.Context, _ record.Ref, _ ref.Batch) (Counted, error) {
	c()
	return Counted{}, ctx.Err()
}
