package compactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/compactor/table"
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
	if v.table == nil || v.over(ctx) {
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
	if err != nil {
		v.tableFault(fmt.Errorf("commit %d segments to table %s: %w", len(adds), v.table.Name(), err))
		return
	}
	v.Metrics.committed(v.Now().Sub(start))
	for _, id := range append(done.Added, done.Already...) {
		if err := v.record(ctx, byID[id], done.Snapshot); err != nil {
			v.fault(fmt.Errorf("segment %s: %w", id, err))
		}
	}
	v.report.Committed += len(done.Added)
	if len(done.Added) > 0 {
		v.Logger.Info("committed segments to a table", "topic", v.topic.Name, "table", v.table.Name(), "segments", len(done.Added), "snapshot", done.Snapshot)
	}
}

func additionOf(p *part) table.Addition {
	a := table.Addition{Segment: p.ID, Rows: p.manifest.Rows}
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
			return true, nil // retention took it
		} else if err != nil {
			return false, err
		}
	}
	in, _, err := s.InTable(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		return false, nil
	}
	return in.UUID == v.table.UUID(), err
}

// record says in a segment's table.json that the table has it.
func (v *visit) record(ctx context.Context, p *part, snapshot int64) error {
	for {
		in, version, err := p.InTable(ctx)
		if err != nil && !errors.Is(err, filer.ErrNotFound) {
			return err
		}
		if err != nil || in.UUID != v.table.UUID() {
			in = segment.InTable{Table: v.table.Name(), UUID: v.table.UUID(), Snapshot: snapshot, At: v.Now().UTC()}
			err = p.SaveInTable(ctx, in, version)
			if errors.Is(err, filer.ErrExists) || errors.Is(err, filer.ErrConflict) {
				continue
			}
			if err != nil {
				return err
			}
		}
		p.inTable = in
		return nil
	}
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
