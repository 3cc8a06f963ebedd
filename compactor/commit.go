package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// openTable loads the topic's table, or makes it, and returns its UUID. Without it, what
// needs no table is done all the same.
func (v *visit) openTable() string {
	if v.Tables == nil {
		return ""
	}
	t, err := v.Tables.Open(v.hard, table.Topic{Name: v.topic.Name, Incarnation: v.topic.Incarnation})
	if err != nil {
		v.tableFault(fmt.Errorf("table of topic %q: %w", v.topic.Name, err))
		return ""
	}
	v.table = t
	return t.UUID()
}

// tableFault takes note of what a table, or its catalog, has answered.
func (v *visit) tableFault(err error) {
	if v.ctx.Err() != nil {
		return
	}
	var away *table.UnavailableError
	var crowd *table.ConflictError
	if errors.As(err, &away) || errors.As(err, &crowd) || errors.Is(err, table.ErrNoTable) { // the last: dropped just now
		v.report.silent(err, v.Now())
		return
	}
	v.fault(err)
}

// commit brings those segments into the table that are not in it.
func (v *visit) commit(ctx context.Context, parts []*part) {
	if v.table == nil || ctx.Err() != nil {
		return
	}
	var adds []table.Addition
	byID := map[topic.SegmentID]*part{}
	for _, p := range parts {
		if p.manifest != nil && v.step(p) == Commit {
			adds = append(adds, additionOf(p))
			byID[p.ID] = p
		}
	}
	if len(adds) == 0 {
		return
	}
	start := v.Now()
	recorded := func(ctx context.Context, id topic.SegmentID) (bool, error) { return v.recorded(ctx, id, byID) }
	done, err := v.table.Commit(ctx, adds, recorded)
	for one := (*table.AdditionError)(nil); errors.As(err, &one) && len(adds) > 1; {
		v.fault(fmt.Errorf("commit to table %s: %w", v.table.Name(), err))
		adds = slices.DeleteFunc(adds, func(a table.Addition) bool { return a.Segment == one.Segment })
		done, err = v.table.Commit(ctx, adds, recorded)
	}
	if err != nil {
		v.tableFault(fmt.Errorf("commit %d segments to table %s: %w", len(adds), v.table.Name(), err))
		return
	}
	v.Metrics.committed(v.Now().Sub(start))
	in := make([]*part, 0, len(adds))
	for _, id := range append(done.Added, done.Already...) {
		in = append(in, byID[id])
	}
	if err := v.record(ctx, in, done.Snapshot); err != nil {
		v.tableFault(err)
	}
	v.report.Committed += len(done.Added)
	if len(done.Added) > 0 {
		v.Logger.Info("committed segments to a table", "topic", v.topic.Name, "table", v.table.Name(), "segments", len(done.Added), "snapshot", done.Snapshot)
	}
}

func additionOf(p *part) table.Addition {
	a := table.Addition{Segment: p.ID, Rows: p.manifest.Rows, Old: !p.fresh}
	for _, f := range p.manifest.Files {
		a.Files = append(a.Files, p.DataURL(f.Name))
	}
	return a
}

// recorded tells whether a segment's table.json names the table. The table asks while
// it commits; other segments than those of the commit are asked for too.
func (v *visit) recorded(ctx context.Context, id topic.SegmentID, known map[topic.SegmentID]*part) (bool, error) {
	var s *segment.Segment
	if p := known[id]; p != nil {
		s = p.Segment
	} else {
		var err error
		if s, err = v.topic.Segment(ctx, id); errors.Is(err, filer.ErrNotFound) {
			return false, nil // a hint, and no proof: the id stays in the property
		} else if err != nil {
			return false, err
		}
	}
	in, _, err := s.InTable(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		return false, nil
	}
	return in.Names(v.table.UUID()), err
}

// record says in the segments' table.json that the table has them. What is there is
// read before the table is looked at once more: somebody who comes late, after the table
// was dropped and made again, sees that, or meets what others have written since.
func (v *visit) record(ctx context.Context, parts []*part, snapshot int64) error {
	var faults []error
	for len(parts) > 0 {
		versions, said := make([]cursor.Version, len(parts)), make([]segment.InTable, len(parts))
		for i, p := range parts {
			in, version, err := p.InTable(ctx)
			replaceable := errors.Is(err, filer.ErrCorrupt) && version != ""
			if err != nil && !errors.Is(err, filer.ErrNotFound) && !replaceable {
				return fmt.Errorf("segment %s: %w", p.ID, err)
			}
			versions[i], said[i] = version, in
		}
		now, err := v.Tables.Find(ctx, table.Topic{Name: v.topic.Name, Incarnation: v.topic.Incarnation})
		if err == nil && now.UUID() != v.table.UUID() {
			err = table.ErrNoTable
		}
		if err != nil {
			return fmt.Errorf("look at table %s once more: %w", v.table.Name(), err)
		}
		var again []*part
		for i, p := range parts {
			in := said[i]
			var err error
			if !in.Names(v.table.UUID()) {
				in = in.With(segment.InTable{Table: v.table.Name(), UUID: v.table.UUID(), Snapshot: snapshot, At: v.Now().UTC()})
				err = p.SaveInTable(ctx, in, versions[i])
			}
			switch {
			case err == nil:
				p.inTable = in
			case errors.Is(err, filer.ErrExists), errors.Is(err, filer.ErrConflict):
				again = append(again, p)
			default:
				faults = append(faults, fmt.Errorf("segment %s: %w", p.ID, err))
			}
		}
		parts = again
	}
	return errors.Join(faults...)
}

// maintain removes old snapshots, and metadata files that nothing names.
func (v *visit) maintain(ctx context.Context) {
	if _, err := v.table.Maintain(ctx); err != nil {
		v.tableFault(fmt.Errorf("old snapshots of table %s: %w", v.table.Name(), err))
		return
	}
	n, err := v.table.Sweep(ctx)
	v.report.Swept += n
	if err != nil {
		v.tableFault(fmt.Errorf("sweep table %s: %w", v.table.Name(), err))
	}
}
