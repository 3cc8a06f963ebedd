package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// RangeError says why a range of offsets cannot be given up. Chunks are those that
// could be: damage is given up by whole chunks, and nothing that can be read is.
type RangeError struct {
	First, Last uint64
	Reason      string
	Chunks      []Damage
}

func (e *RangeError) Error() string {
	text := fmt.Sprintf("the records %d to %d cannot be given up: %s", e.First, e.Last, e.Reason)
	for i, d := range e.Chunks {
		if i == 0 {
			text += "; what cannot be read is"
		}
		if i == 10 {
			return text + fmt.Sprintf(", and %d more", len(e.Chunks)-i)
		}
		text += fmt.Sprintf(" %d-%d", d.First, d.Last)
	}
	return text
}

// MaxReason bounds the reason for which records are given up, in bytes.
const MaxReason = 500

// Drop is what is to be given up.
type Drop struct {
	First, Last uint64 // offsets
	Reason      string
	DryRun      bool
}

// Drop gives up records that cannot be read: the compactor leaves them out, and readers
// are told of it. They must be exactly those of one or more damaged chunks. It is noted
// in the segment's quarantine, by whom, when and why; giving up again what is given up
// already is no error, nor are several at once.
//
// *RangeError: there is something in the range that can be read, or only a part of a
// chunk. ErrLive, ErrCompacted.
func (r *Repairer) Drop(ctx context.Context, name string, id topic.SegmentID, o Drop) (Report, error) {
	s, t, report, err := r.open(ctx, name, id)
	if err != nil {
		return report, err
	}
	report.DryRun = o.DryRun
	if o.Reason == "" || len(o.Reason) > MaxReason || !utf8.ValidString(o.Reason) {
		return report, &RangeError{First: o.First, Last: o.Last, Reason: fmt.Sprintf("the reason has to be 1 to %d bytes of text", MaxReason)}
	}
	if report.Compacted {
		return report, fmt.Errorf("segment %s: %w", id, ErrCompacted)
	}
	last, err := r.damaged(ctx, t, s, &report)
	if err != nil {
		return report, err
	}
	if !last.Sealed {
		return report, fmt.Errorf("segment %s: %w; spillway compact --roll seals it", id, ErrLive)
	}
	if o.First > o.Last || o.Last >= last.End() {
		return report, &RangeError{First: o.First, Last: o.Last, Reason: fmt.Sprintf("the segment's offsets end before %d", last.End())}
	}
	if err := o.fits(report.Damaged); err != nil {
		return report, err
	}
	ranges := o.give(&report, r)
	if o.DryRun {
		report.Dropped = merge(report.Dropped, ranges)
		return report, nil
	}
	report.Dropped, err = r.change(ctx, t, id, func(list []segment.DroppedRange) []segment.DroppedRange { return merge(list, ranges) })
	if err == nil {
		r.logger(report).Warn("records that cannot be read were given up", "first", o.First, "last", o.Last, "reason", o.Reason, "by", r.By)
	}
	return report, err
}

// fits checks that the range is some damaged chunks, whole and with nothing between.
func (o Drop) fits(damaged []Damage) error {
	next := o.First
	for _, d := range damaged {
		if d.First == next && d.Last <= o.Last {
			next = d.Last + 1
		}
	}
	if next == o.Last+1 {
		return nil
	}
	reason := fmt.Sprintf("record %d can be read, or the range has only a part of its chunk", next)
	if len(damaged) == 0 {
		reason = "all records of the segment can be read"
	}
	return &RangeError{o.First, o.Last, reason, damaged}
}

// give makes a range for each damaged chunk, so that one that is mended later can be
// taken out again.
func (o Drop) give(report *Report, r *Repairer) (ranges []segment.DroppedRange) {
	for i := range report.Damaged {
		d := &report.Damaged[i]
		if d.First < o.First || d.Last > o.Last {
			continue
		}
		d.Outcome = Given
		ranges = append(ranges, segment.DroppedRange{
			First: d.First, Last: d.Last, Reason: fmt.Sprintf("%s (%s, %s)", o.Reason, r.By, r.Now().UTC().Format(time.RFC3339)),
		})
	}
	return ranges
}

func (r *Repairer) quarantine(t *segment.Topic, id topic.SegmentID) cursor.File[segment.Quarantine] {
	return cursor.At[segment.Quarantine](r.Store.Filer, path.Join(segmentDir(t, id), "quarantine.json"))
}

// change changes what of a segment is given up, whoever else does at the same time.
func (r *Repairer) change(ctx context.Context, t *segment.Topic, id topic.SegmentID, with func([]segment.DroppedRange) []segment.DroppedRange) ([]segment.DroppedRange, error) {
	file := r.quarantine(t, id)
	for {
		q, version, err := file.Load(ctx)
		none := errors.Is(err, filer.ErrNotFound)
		if err != nil && !none {
			return nil, err
		}
		list := with(q.Drop)
		if slices.Equal(list, q.Drop) {
			return orEmpty(list), nil
		}
		q.Drop = list
		if none {
			q.At = r.Now().UTC()
			_, err = file.Create(ctx, q)
		} else {
			_, err = file.Save(ctx, q, version)
		}
		switch {
		case err == nil:
			return orEmpty(list), nil
		case errors.Is(err, filer.ErrExists), errors.Is(err, filer.ErrConflict), !none && errors.Is(err, filer.ErrNotFound):
			continue // somebody was faster: look again
		}
		return nil, err
	}
}

func orEmpty(list []segment.DroppedRange) []segment.DroppedRange {
	return append([]segment.DroppedRange{}, list...)
}

// merge adds ranges to a list, in order. What is there already stays as it is.
func merge(list, more []segment.DroppedRange) []segment.DroppedRange {
	out := slices.Clone(list)
	for _, m := range more {
		if !slices.ContainsFunc(list, func(d segment.DroppedRange) bool { return d.First <= m.First && m.Last <= d.Last }) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b segment.DroppedRange) int { return cmp.Compare(a.First, b.First) })
	return out
}

// without takes ranges out of a list.
func without(list, less []segment.DroppedRange) []segment.DroppedRange {
	return slices.DeleteFunc(slices.Clone(list), func(d segment.DroppedRange) bool {
		return slices.ContainsFunc(less, func(l segment.DroppedRange) bool { return l.First <= d.First && d.Last <= l.Last })
	})
}
