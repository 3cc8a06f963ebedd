package verify

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
)

// BatchRefs is what a topic has of batch references: accepted records whose object is
// a file of many records.
type BatchRefs struct {
	Count   uint64 `json:"count"`
	Said    uint64 `json:"said"`    // of them, how many say how many records they hold
	Records uint64 `json:"records"` // that those say

	// Of those whose objects were read to their ends; with [Expand] only.
	Read     uint64 `json:"read"`
	Rows     uint64 `json:"rows"`
	Rejected uint64 `json:"rejected"` // of the rows
	Unread   uint64 `json:"unread"`   // references whose objects could not be read now, or must not be
}

// Counted is what a Counter found in an object.
type Counted struct {
	Rows, Rejected uint64
	// Wrong: the object is not there, is another one, or is no such file. The rows are
	// those before.
	Wrong error
}

// Counter reads the object of a batch reference to its end. The records that it should
// hold are compared by whoever calls it. An error says that it could not be read now,
// or must not be, and nothing of the object.
type Counter interface {
	Count(ctx context.Context, f record.Ref, b ref.Batch) (Counted, error)
}

// Expand has the rows of batch references counted, one object at a time.
func Expand(c Counter) Option { return func(v *verifier) { v.counter = c } }

// batchAt is a batch reference of a chunk.
type batchAt struct {
	n     uint64 // record of the chunk
	ref   record.Ref
	batch ref.Batch
	wrong error // why it is none that can be read
}

// batchStep is a batch reference with what its object holds.
type batchStep struct {
	header error
	counted
	says *int64
}

// counted is how reading an object ended.
type counted struct {
	Counted
	unread error
}

func checkBatchHeader(s batchStep) string { return describe(s.header) }

func checkBatchObject(s batchStep) string {
	if s.header != nil {
		return ""
	}
	return describe(s.Wrong)
}

func checkBatchCount(s batchStep) string {
	if s.header != nil || s.Wrong != nil || s.unread != nil || s.says == nil || uint64(*s.says) == s.Rows {
		return ""
	}
	return fmt.Sprintf("the object holds %d records, its reference says %d", s.Rows, *s.says)
}

// batchesOf notes record n of a chunk, if it is a batch reference.
func batchesOf(list []batchAt, n uint64, r *record.Record) []batchAt {
	b, is, err := ref.BatchOf(r)
	if !is {
		return list
	}
	f := *r.Ref
	f.SHA256 = bytes.Clone(f.SHA256)
	return append(list, batchAt{n, f, b, err})
}

// batches judges the batch references of a chunk, and counts what is in their objects
// if that is wanted. The error is that of ctx.
func (v *verifier) batches(ctx context.Context, list []batchAt, base uint64, at place) error {
	sum := &v.report.BatchRefs
	for _, b := range list {
		sum.Count++
		if b.ref.Records != nil {
			sum.Said++
			sum.Records += uint64(*b.ref.Records)
		}
		if v.counter == nil || v.full() {
			continue
		}
		step := batchStep{header: b.wrong, says: b.ref.Records}
		if b.wrong == nil {
			step.counted = v.count(ctx, b)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case step.unread != nil:
			sum.Unread++
		case step.header == nil && step.Wrong == nil:
			sum.Read++
			sum.Rows += step.Rows
			sum.Rejected += step.Rejected
		}
		at.offset = base + b.n
		run(v, v.checks.batch, at, step)
	}
	return nil
}

// mostCounted bounds what is remembered of objects that were read.
const mostCounted = 4096

// count reads an object, unless another record referred to it in the same way.
func (v *verifier) count(ctx context.Context, b batchAt) counted {
	f := b.ref
	f.Records = nil
	id := fmt.Sprintf("%q", []any{f.URL, f.Size, f.ETag, f.Version, f.SHA256, b.batch.Headers()})
	got, known := v.counted[id]
	if known {
		return got
	}
	got.Counted, got.unread = v.counter.Count(ctx, f, b.batch)
	if len(v.counted) >= mostCounted {
		clear(v.counted)
	}
	if got.unread == nil {
		v.counted[id] = got
	}
	return got
}
