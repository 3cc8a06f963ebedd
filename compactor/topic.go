package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// visit is one look at a topic, with all that is done of it.
type visit struct {
	*Compactor
	hard, stop context.Context
	ctx        context.Context // ends with hard, and when somebody else has the lease
	topic      *segment.Topic
	seat       *seat
	only       topic.SegmentID // empty: every segment
	all        bool            // segments that are done with too, for what others left
	table      *table.Table    // nil: there is no catalog, or it does not answer
	report     Report
	faults     []error
	progress   Progress
	beside     errgroup.Group // keeps the lease
}

// Topic does what is due of a topic: sealed segments become data files, these come into
// the table, and chunks go whose grace is over. On nil, what the report counts is
// durable. A segment that fails does not keep the others from it. When stop ends, the
// segment in hand is done, and no other is begun; hard ends everything at once, and
// whoever comes next goes on from there.
//
// segment.ErrNoTopic and segment.ErrDeleting: there is nothing to compact. Errors of
// package table that need somebody (*table.ForeignError, *table.SchemaError,
// *table.ConfigError) pass through, after all was done that needs no table. Faults of
// the filer are retried until hard ends.
func (c *Compactor) Topic(hard, stop context.Context, name string) (Report, error) {
	return c.visit(hard, stop, name, &visit{})
}

// Segment does what is due of one sealed segment, as [Compactor.Topic] does of all. One
// that still takes records is a *NotSealedError.
func (c *Compactor) Segment(hard, stop context.Context, name string, id topic.SegmentID) (Report, error) {
	return c.visit(hard, stop, name, &visit{only: id})
}

// NotSealedError says that a segment cannot be compacted yet, or is none of its topic's.
type NotSealedError struct {
	Topic   string
	Segment topic.SegmentID
	Unknown bool
}

func (e *NotSealedError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("topic %q has no segment %.60q", e.Topic, string(e.Segment))
	}
	return fmt.Sprintf("segment %s of topic %q still takes records: it can be compacted once it is sealed, by a split, a merge or a roll", e.Segment, e.Topic)
}

func (c *Compactor) visit(hard, stop context.Context, name string, v *visit) (r Report, err error) {
	if err := topic.CheckName(name); err != nil {
		return Report{}, err
	}
	v.Compactor, v.hard, v.stop, v.ctx = c, hard, stop, hard
	v.seat = c.seat(name)
	v.seat.Lock()
	defer v.seat.Unlock()
	if v.topic, err = c.Store.Topic(hard, name); err == nil {
		err = v.run()
	}
	gone := noTopic(err)
	if !v.report.Cut && !v.report.Held && v.only == "" {
		c.Metrics.quarantineChanged(v.report.Quarantined - v.seat.quarantined)
		v.seat.quarantined = v.report.Quarantined
	}
	c.leave(name, v.seat, !v.report.Next.IsZero() || v.report.Cut || err != nil && !gone, gone)
	c.Metrics.visited(v.report, err)
	return v.report, err
}

// run does what is due.
func (v *visit) run() error {
	ids, err := v.sealed()
	if err != nil || len(ids) == 0 {
		return err
	}
	if !v.all && v.only == "" && v.seat.incarnation == v.topic.Incarnation && len(v.undone(ids)) == 0 {
		return nil // and the table, if it was dropped since, waits for the next look at all
	}
	v.seat.reset(v.topic.Incarnation, v.openTable())
	if ids = v.undone(ids); len(ids) == 0 {
		return errors.Join(v.faults...)
	}
	parts, err := v.look(ids)
	if err != nil {
		return err
	}
	ctx, release, err := v.claim(parts)
	if err != nil || ctx == nil {
		return err
	}
	v.ctx = ctx
	v.do(ctx, parts)
	v.count(parts)
	release()
	if err := v.stillThere(); err != nil {
		if errors.Is(err, segment.ErrNoTopic) { // else whoever deletes it is not done yet
			v.forget(parts...)
		}
		return err
	}
	return errors.Join(append(v.faults, v.hard.Err())...)
}

// sealed lists the segments that the visit is about, parents before children.
func (v *visit) sealed() (ids []topic.SegmentID, err error) {
	l, err := v.topic.Lineage(v.hard)
	if err != nil {
		return nil, v.gone(err)
	}
	if v.only != "" {
		m, known := l.Member(v.only)
		if !known || len(m.Children) == 0 {
			return nil, &NotSealedError{v.topic.Name, v.only, !known}
		}
		return []topic.SegmentID{v.only}, nil
	}
	for _, m := range l.Members {
		if len(m.Children) > 0 {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}

// undone leaves out the segments that need nothing any more, and those that were put
// off.
func (v *visit) undone(ids []topic.SegmentID) (left []topic.SegmentID) {
	if v.all || v.only != "" {
		return ids
	}
	for _, id := range ids {
		if _, done := v.seat.done[id]; done {
			continue
		}
		left = append(left, id)
	}
	return left
}

// look looks at segments, and keeps those that can be worked with.
func (v *visit) look(ids []topic.SegmentID) (parts []*part, err error) {
	all, err := v.Compactor.look(v.hard, v.topic, ids, nil)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if f.err == nil {
			parts = append(parts, f.part)
			continue
		}
		var manifest *segment.ManifestError // which somebody has to look at, and nothing is lost yet
		if f.part == nil || f.manifest != nil || !unreadable(f.err) || errors.As(f.err, &manifest) {
			v.fault(f.err)
			continue
		}
		v.quarantine(v.hard, f.part, place{n: f.seal.Entry.N}, f.err)
	}
	return parts, v.stillThere()
}

// count counts the segments that wait for the end of their grace.
func (v *visit) count(parts []*part) {
	for _, p := range parts {
		if p.manifest == nil {
			continue
		}
		if _, do, until := p.next(v.situation()); do == Nothing && !until.IsZero() {
			v.report.Waiting++
			v.report.at(until)
		}
	}
}

// do does the steps. What is ready comes first, some segments at a time: it makes room,
// which a rewriting may be waiting for. What was rewritten comes into the table even if
// the visit is to end: else one that has little time would never get that far.
func (v *visit) do(ctx context.Context, parts []*part) {
	v.plan(parts)
	if v.over(ctx) {
		return
	}
	v.ready(ctx, parts)
	var made []*part
	for _, p := range parts {
		if v.step(p) != Rewrite || !v.mayTry(p) {
			continue
		}
		if v.over(ctx) {
			break
		}
		if v.rewrite(ctx, p); p.manifest != nil {
			made = append(made, p)
		}
		if len(made) == table.MaxAdditions {
			v.ready(ctx, made)
			made = nil
		}
	}
	v.ready(ctx, made)
	if v.all && v.table != nil && !v.over(ctx) {
		v.maintain(ctx)
	}
}

// ready brings segments that have data files into the table, and deletes the chunks of
// those whose grace is over.
func (v *visit) ready(ctx context.Context, parts []*part) {
	for some := range slices.Chunk(parts, table.MaxAdditions) {
		v.commit(ctx, some)
		for _, p := range some {
			if p.manifest != nil && ctx.Err() == nil {
				v.settle(ctx, p)
			}
		}
	}
}

// plan tells what is about to be rewritten.
func (v *visit) plan(parts []*part) {
	v.progress.Topic = v.topic.Name
	for _, p := range parts {
		if v.step(p) == Rewrite {
			v.progress.Segments++
			v.progress.TotalRecords += p.seal.End()
		}
	}
}

func (v *visit) step(p *part) Step {
	_, do, _ := p.next(v.situation())
	return do
}

func (v *visit) situation() situation {
	s := situation{catalog: v.Tables != nil, grace: v.Grace, now: v.Now()}
	if v.table != nil {
		s.table = v.table.UUID()
	}
	return s
}

// over tells that no more is begun.
func (v *visit) over(ctx context.Context) bool {
	if v.stop.Err() == nil && ctx.Err() == nil {
		return false
	}
	v.report.Cut = true
	return true
}

func (v *visit) fault(err error) {
	if v.ctx.Err() == nil {
		v.faults = append(v.faults, err)
	}
}

// stillThere tells whether the topic is the one that was looked up.
func (v *visit) stillThere() error {
	now, err := v.Store.Topic(v.hard, v.topic.Name)
	if err == nil && now.Incarnation != v.topic.Incarnation {
		err = fmt.Errorf("topic %q was deleted and made again: %w", v.topic.Name, segment.ErrNoTopic)
	}
	if noTopic(err) {
		return err
	}
	return nil // what else it may be, the next call meets too
}

// gone explains an error by the topic's deletion, if that is the cause.
func (v *visit) gone(err error) error {
	if gone := v.stillThere(); gone != nil {
		return gone
	}
	return err
}

// noTopic tells that a topic was deleted, or is being.
func noTopic(err error) bool {
	return errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrDeleting)
}
