package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/internal/segment"
)

// What the objects of simulated backfills do.
const (
	backfillWhole   = "whole"
	backfillBroken  = "broken"  // from some row on it is no file of its kind
	backfillChanges = "changes" // from some time on it is another object
)

var errSimObject = errors.New("object: no answer")

// simBackfill is a source from objects: one of a job's, or a job of its own.
type simBackfill struct {
	w           *world
	n           int // among the world's
	topic       string
	incarnation string
	objects     []simBackfillObject
}

type simBackfillObject struct {
	kind    string
	rows    uint32
	breaks  uint32    // the row from which a broken one cannot be read
	changes time.Time // of one that does
}

func (b *simBackfill) source() string { return segment.BackfillSource("sim", b.n) }

// withBackfills adds three sources from objects: two for the first topic and one for
// the second, beside the lanes' records for both.
func (w *world) withBackfills() *world {
	for n := range 3 {
		b := &simBackfill{w: w, n: n, topic: w.topics[n/2]}
		for i := range 1 + w.dice.roll("backfill objects", n)%4 {
			kind := []string{backfillWhole, backfillBroken, backfillChanges}[w.dice.roll("backfill kind", n, i)%3]
			if w.dice.chance(500, "all objects change") {
				kind = backfillChanges
			}
			rows := uint32(w.dice.roll("backfill rows", n, i) % 40)
			b.objects = append(b.objects, simBackfillObject{
				kind: kind, rows: rows, breaks: uint32(w.dice.roll("breaks", n, i) % uint64(rows+1)),
				changes: time.Now().Add(w.dice.span(5*time.Second, "changes", n, i)),
			})
		}
		w.backfills = append(w.backfills, b)
	}
	return w
}

// row is row r of object o, from 1.
func (b *simBackfill) row(o uint64, r uint32) BackfillRow {
	d := b.w.dice
	row := BackfillRow{N: r, Value: fmt.Appendf(nil, "b%d.%d.%d", b.n, o, r), Key: fmt.Appendf(nil, "k%d", d.roll("key", b.n, o, r)%simKeys)}
	switch kind := d.roll("row", b.n, o, r) % 12; {
	case kind == 0:
		row.Skip = true
	case kind < 3:
		row.Key, row.Rejected = nil, "no JSON"
	case kind == 3:
		row.Key = nil
	}
	return row
}

// simObjectsView is one worker's view of a source's objects.
type simObjectsView struct {
	*simBackfill
	name  string
	pause func() time.Duration
	opens atomic.Int64
}

func (v *simObjectsView) Len() uint64          { return uint64(len(v.objects)) }
func (v *simObjectsView) Name(n uint64) string { return fmt.Sprintf("b%d.%d", v.n, n) }

func (v *simObjectsView) Open(ctx context.Context, n uint64, from uint32) (RowReader, error) {
	r := &simRows{view: v, n: n, next: from, open: v.opens.Add(1)}
	err := r.call(ctx)
	return r, err
}

type simRows struct {
	view  *simObjectsView
	n     uint64
	next  uint32
	open  int64
	calls int
}

func (*simRows) Close() error { return nil }

// call is where the store of the objects has its faults.
func (r *simRows) call(ctx context.Context) error {
	r.calls++
	d, o := r.view.w.dice, r.view.objects[r.n-1]
	q := []any{r.view.name, r.n, r.open, r.calls}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(r.view.pause() + d.span(60*time.Millisecond, append(q, "row wait")...)):
	}
	if o.kind == backfillChanges && !time.Now().Before(o.changes) {
		return &ObjectError{Reason: "it is another object"}
	}
	if !r.view.w.calm.Load() && d.chance(10, append(q, "row fails")...) {
		return errSimObject
	}
	return nil
}

func (r *simRows) Next(ctx context.Context) (BackfillRow, error) {
	o := r.view.objects[r.n-1]
	if r.next%3 == 0 { // several rows come with one answer
		if err := r.call(ctx); err != nil {
			return BackfillRow{}, err
		}
	}
	switch {
	case o.kind == backfillBroken && r.next >= o.breaks:
		return BackfillRow{}, &ObjectError{Reason: "it is broken"}
	case r.next >= o.rows:
		return BackfillRow{}, io.EOF
	}
	row := r.view.row(r.n, r.next)
	r.next++
	return row, nil
}

// backfillPlace is where one worker after another works on a source and is killed.
func (w *world) backfillPlace(ctx context.Context, place int) error {
	b := w.backfills[place/2] // two at once on each
	for life := 0; ctx.Err() == nil; life++ {
		name := fmt.Sprintf("b%d.%d", place, life)
		mine, kill := context.WithTimeout(ctx, 100*time.Millisecond+w.dice.span(4*time.Second, name, "lives"))
		var frozen atomic.Int64
		if w.dice.chance(300, name, "freezes") {
			at, length := w.dice.span(time.Second, name, "freezes at"), w.dice.span(6*time.Second, name, "freezes for")
			time.AfterFunc(at, func() { frozen.Store(time.Now().Add(length).UnixNano()) })
		}
		worker, err := w.backfill(mine, b, name, func() time.Duration { return max(0, time.Until(time.Unix(0, frozen.Load()))) })
		kill()
		w.noteBackfill(worker)
		if err != nil && mine.Err() == nil {
			return err
		}
		if worker.Done() {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.dice.span(time.Second, name, "rests")):
		}
	}
	return nil
}

// backfill works on a source until it is done, or ctx ends, which kills its
// connections.
func (w *world) backfill(ctx context.Context, b *simBackfill, name string, pause func() time.Duration) (*Backfill, error) {
	client := w.fs.Client(name, w.hook(pause, w.dice.span(40*time.Millisecond, name, "slow")))
	defer context.AfterFunc(ctx, client.Kill)()
	// Some are told to stop, and commit what they have read.
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	if !w.calm.Load() && w.dice.chance(300, name, "is told to stop") {
		time.AfterFunc(w.dice.span(3*time.Second, name, "told at"), cancel)
	}
	worker := NewBackfill(BackfillOptions{
		Source: b.source(), Topic: b.topic, Incarnation: b.incarnation,
		Objects: &simObjectsView{simBackfill: b, name: name, pause: pause},
		Store:   w.store(client), Mutant: w.mutant, Moved: func(c segment.Checkpoint) {
			if c.Rows > 0 {
				w.stats.backfillWithin.Add(1)
			}
		},
	})
	worker.most = 1 + w.dice.roll(name, "most")%60
	err := worker.Run(ctx, stop)
	return worker, err
}

func (w *world) noteBackfill(b *Backfill) {
	c := b.Counts()
	w.stats.conflicts.Add(int64(c.Conflicts))
	w.stats.backfillDrops.Add(int64(c.PartialDrops))
	w.stats.backfillRejected.Add(int64(c.Rejected))
	w.stats.backfillRegrouped.Add(int64(c.Regrouped))
}

// finishBackfills works on what is left of each source, when all is calm.
func (w *world) finishBackfills(ctx context.Context, s *segment.Store) error {
	for _, b := range w.backfills {
		c, _, err := s.CheckpointFile(b.source()).Load(ctx)
		if err != nil {
			return err
		}
		if c.Tally != nil {
			w.stats.backfillFiltered.Add(int64(c.Tally.Filtered))
		}
		worker, err := w.backfill(ctx, b, fmt.Sprintf("final b%d", b.n), func() time.Duration { return 0 })
		w.noteBackfill(worker)
		if err != nil || !worker.Done() {
			return fmt.Errorf("backfill of %s: done %v: %w", b.source(), worker.Done(), err)
		}
	}
	return nil
}

// acceptedRows adds what backfills must bring. What excuses a row that is not there is
// the end of its object, which says so.
func (w *world) acceptedRows(values map[string]spot) (excuses map[string]string) {
	excuses = map[string]string{}
	for i, b := range w.backfills {
		for n, o := range b.objects {
			name, rows := fmt.Sprintf("b%d.%d", b.n, n+1), o.rows
			at := func(row uint32) spot { return spot{len(w.servers) + i, uint64(n+1)<<32 | uint64(row)} }
			if o.kind == backfillBroken {
				rows = o.breaks
			}
			for r := range rows {
				row := b.row(uint64(n+1), r)
				if row.Skip {
					continue
				}
				values[string(row.Value)] = at(r)
				if o.kind == backfillChanges {
					excuses[string(row.Value)] = name + ".end"
				}
			}
			if o.kind != backfillWhole {
				values[name+".end"] = spot{len(w.servers) + i, uint64(len(b.objects)+1)<<32 | uint64(n)}
			}
			if o.kind == backfillChanges {
				excuses[name+".end"] = "" // it may have been read in time
			}
		}
	}
	return excuses
}

// noteEnds counts what became of the objects that change.
func (w *world) noteEnds(seen map[string]string) {
	for _, b := range w.backfills {
		for n, o := range b.objects {
			if o.kind != backfillChanges {
				continue
			}
			end := fmt.Sprintf("b%d.%d.end", b.n, n+1)
			first := fmt.Sprintf("b%d.%d.0", b.n, n+1)
			switch {
			case seen[end] == "":
				w.stats.backfillInTime.Add(1)
			case seen[first] != "":
				w.stats.backfillCut.Add(1)
			}
		}
	}
}
