package ingest

import (
	"context"
	"fmt"
	"strings"

	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// fail gives an object up, and ends the flush with it: the checkpoint decides, before
// anything behind the object is committed, that it failed, for another worker may still
// be reading it. What stands for the rest of it comes when all objects are done: a
// segment that holds rows of later objects, from such a worker, would drop it (ADR 0021).
func (g *filling) fail(ctx context.Context, bad *ObjectError) error {
	name := g.Objects.Name(g.objects + 1)
	g.Logger.Warn("an object cannot be read on", "object", name, "row", g.rows, "err", bad)
	if len(g.failures) == segment.MaxFailures {
		return fmt.Errorf("%s: %w: %w", name, bad, ErrTooManyFailures)
	}
	reason := bad.Error()
	reason = strings.ToValidUTF8(reason[:min(len(reason), segment.MaxFailureReason)], "")
	failure := segment.Failure{Object: g.objects + 1, Row: g.rows, Reason: reason}
	g.failures = append(g.failures, failure)
	g.flush.tally.Failures = append(g.flush.tally.Failures, failure)
	if err := g.end(ctx); err != nil || g.Mutant.Has(mutant.FailureInPassing) {
		return err
	}
	return g.hand(ctx)
}

// failed adds the refused record that stands for the rest of an object.
func (g *filling) failed(f segment.Failure, at topic.Position) error {
	name := g.Objects.Name(f.Object)
	r := record.Record{Time: g.time(), Position: at, Rejected: fmt.Sprintf("%s from row %d on: %s", name, f.Row, f.Reason)}
	return g.reject(&r, name, f.Row)
}

// tell adds the records for objects that failed, behind all objects. Which they are was
// decided when the checkpoint passed them, whoever passed it: so these records are a
// flush of their own, which commits nothing before the checkpoint has moved.
func (g *filling) tell(ctx context.Context) error {
	if err := g.hand(ctx); err != nil {
		return err
	}
	for int(g.rows) < len(g.failures) {
		at := topic.Position{Sequence: g.Objects.Len() + 1, Row: g.rows}
		if err := g.failed(g.failures[g.rows], at); err != nil {
			return err
		}
		g.rows++
		g.flush.counts.Messages++
		if err := g.passed(ctx); err != nil {
			return err
		}
	}
	g.objects, g.rows = g.Objects.Len()+1, 0
	return g.passed(ctx)
}
