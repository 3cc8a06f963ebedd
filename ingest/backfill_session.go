package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// backfillSession is one uninterrupted reading of a source's objects, from the
// checkpoint on.
type backfillSession struct {
	*Backfill
	*appender
	clock time.Time // of the last record; owned by gather
	fault error     // that ended gather, and may pass
	// spare has the records' memory of flushes that are committed: making it anew for
	// each was a quarter of the time of a backfill.
	spare chan *record.Set
}

// backfillAge is how long rows may wait until they are committed, where they come
// slowly.
const backfillAge = 5 * time.Second

// waitRows and waitBytes are after how many rows or bytes the rate limit is asked,
// and waitRows also how many share one reading of the clock.
const (
	waitRows  = 256
	waitBytes = 256 << 10
)

// gather reads rows into flushes until the last object ends, or stop does, also in the
// middle of a read. When an object cannot be read just now, what was read of it is handed
// on all the same, so that even bad connections get on; fault then says what was wrong.
func (s *backfillSession) gather(ctx, stop context.Context, out chan<- *flush) error {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stop, cancel)()
	at := &filling{backfillSession: s, stop: stop, reading: reading, out: out, objects: s.checkpoint.Sequence, rows: s.checkpoint.Rows}
	if s.checkpoint.Tally != nil {
		at.failures = slices.Clone(s.checkpoint.Tally.Failures)
	}
	at.begin()
	for at.objects < s.Objects.Len() && stop.Err() == nil {
		err := at.object(ctx)
		if fault := (*readError)(nil); errors.As(err, &fault) {
			if stop.Err() == nil {
				s.fault = fault
			}
			break
		}
		if err != nil {
			return err
		}
	}
	if at.objects == s.Objects.Len() && len(at.failures) > 0 && stop.Err() == nil {
		if err := at.tell(ctx); err != nil {
			return err
		}
	}
	return at.hand(ctx)
}

// readError is a fault of an object that may pass.
type readError struct {
	object string
	err    error
}

func (e *readError) Error() string { return fmt.Sprintf("read %s: %v", e.object, e.err) }
func (e *readError) Unwrap() error { return e.err }

// filling is where gather is.
type filling struct {
	*backfillSession
	stop     context.Context
	reading  context.Context // ends with stop too
	out      chan<- *flush
	flush    *flush
	key      *topic.Key        // nil: not asked for yet
	began    time.Time         // when the flush got its first row, or object's end; zero: it has none
	handed   time.Time         // when the one before was handed on
	objects  uint64            // done
	rows     uint32            // done of the next
	failures []segment.Failure // of those that are done
	// What is not yet told to the rate limit.
	freshRows, freshBytes int
}

// begin begins a flush, with the memory of one that is committed if there is one.
func (g *filling) begin() {
	g.flush, g.key, g.began = newFlush(g.Share), nil, time.Time{}
	select {
	case set := <-g.spare:
		set.Reset()
		g.flush.of(g.Topic).set = set
	default:
	}
}

// partitionKey is what the topic takes as a key; it is asked for once a flush.
func (g *filling) partitionKey(ctx context.Context) (topic.Key, error) {
	if g.key == nil {
		t, err := g.topics.get(ctx, g.Topic)
		if err != nil {
			return "", g.gone(err)
		}
		g.key = &t.Key
	}
	return *g.key, nil
}

// object reads the object after those that are done, to its end or to that of stop.
func (g *filling) object(ctx context.Context) error {
	r, err := g.Objects.Open(g.reading, g.objects+1, g.rows)
	var bad *ObjectError
	switch {
	case err != nil && g.reading.Err() != nil: // whatever it says: that is no outcome of an object
		return &readError{g.Objects.Name(g.objects + 1), err}
	case errors.As(err, &bad):
		return g.fail(ctx, bad)
	case err != nil:
		return &readError{g.Objects.Name(g.objects + 1), err}
	}
	defer r.Close() //nolint:errcheck // read-only
	for g.stop.Err() == nil {
		row, err := r.Next(g.reading)
		switch {
		case errors.Is(err, io.EOF):
			return g.end(ctx)
		case err != nil && g.reading.Err() != nil:
			return &readError{g.Objects.Name(g.objects + 1), err}
		case errors.As(err, &bad):
			return g.fail(ctx, bad)
		case err != nil:
			return &readError{g.Objects.Name(g.objects + 1), err}
		}
		if err := g.take(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// take adds a row to the flush, and hands that on when it is due.
func (g *filling) take(ctx context.Context, row BackfillRow) error {
	if row.N < g.rows || row.N > topic.MaxRow {
		return fmt.Errorf("%s gives row %d after row %d", g.Objects.Name(g.objects+1), row.N, g.rows)
	}
	g.freshRows++
	g.freshBytes += len(row.Value)
	if g.freshRows >= waitRows || g.freshBytes >= waitBytes {
		if err := g.limit(ctx); err != nil {
			return err
		}
	}
	if row.Skip {
		g.flush.tally.Filtered++
	} else if err := g.add(ctx, row); err != nil {
		return err
	}
	g.rows = row.N + 1
	g.flush.counts.Messages++
	return g.passed(ctx)
}

// add encodes a row as a record.
func (g *filling) add(ctx context.Context, row BackfillRow) error {
	key, err := g.partitionKey(ctx)
	if err != nil {
		return err
	}
	r := record.Record{
		Time: g.time(), Position: topic.Position{Sequence: g.objects + 1, Row: row.N},
		EventTime: row.Time, Key: row.Key, Headers: row.Headers, Value: row.Value, Rejected: row.Rejected,
	}
	if pointer := key.Pointer(); pointer != nil && r.Rejected == "" {
		if r.Key, err = keyAt(r.Value, pointer); err != nil {
			r.Rejected = err.Error()
		}
	}
	set := g.flush.of(g.Topic).set
	if r.Rejected == "" {
		err := set.Append(&r, decoder{source: g.appender.source}.slotOf(key)(r.Position, r.Key))
		var invalid *record.InvalidError
		if !errors.As(err, &invalid) {
			g.flush.tally.Rows++
			g.flush.tally.Bytes += uint64(len(row.Value))
			return err
		}
		r.Rejected = invalid.Error()
		r.Key, r.Headers = nil, nil // one of which may be what is wrong
	}
	g.flush.tally.Rejected++
	return g.reject(&r, g.Objects.Name(g.objects+1), row.N)
}

// reject adds a refused record, which tells where it comes from.
func (g *filling) reject(r *record.Record, object string, row uint32) error {
	r.Headers = append([]record.Header{
		{Name: HeaderRowObject, Value: []byte(object)},
		{Name: HeaderRowNumber, Value: strconv.AppendUint(nil, uint64(row), 10)},
	}, r.Headers...)
	return g.flush.of(g.Topic).set.Append(r, topic.SpreadSlot(g.appender.source, r.Position))
}

// end goes on to the next object.
func (g *filling) end(ctx context.Context) error {
	g.objects, g.rows = g.objects+1, 0
	g.flush.tally.Objects++
	return g.passed(ctx)
}

// passed notes that the flush reaches as far as what was read, and hands it on if it
// is full or has waited.
func (g *filling) passed(ctx context.Context) error {
	f := g.flush
	f.last, f.rows = g.objects, g.rows
	if g.began.IsZero() {
		g.began = g.Now()
	}
	if f.full() || g.Now().Sub(g.began) >= backfillAge || f.counts.Messages == g.most {
		return g.hand(ctx)
	}
	return nil
}

// hand hands the flush on, if there is anything in it.
func (g *filling) hand(ctx context.Context) error {
	if err := g.limit(ctx); err != nil {
		return err
	}
	f := g.flush
	if g.began.IsZero() {
		return nil
	}
	f.counts.Records, f.counts.Rejected = f.tally.Rows+f.tally.Rejected, f.tally.Rejected
	if err := g.pace(ctx); err != nil {
		return err
	}
	g.begin()
	g.handed = g.Now()
	return send(ctx, g.out, f)
}

// limit waits for as long as the rate limit asks.
func (g *filling) limit(ctx context.Context) error {
	rows, bytes := g.freshRows, g.freshBytes
	g.freshRows, g.freshBytes = 0, 0
	g.clock = later(g.clock, g.Now())
	if g.Wait == nil || rows == 0 {
		return nil
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.stop, cancel)()
	err := g.Wait(waiting, rows, bytes)
	if g.stop.Err() != nil && ctx.Err() == nil {
		err = nil // what has been read is committed all the same
	}
	g.clock = later(g.clock, g.Now())
	return err
}

// pace waits until the filer may be asked for the commits of one more flush (rule 30).
func (g *filling) pace(ctx context.Context) error {
	each := time.Second * time.Duration(max(g.Share, 1)) / commitsPerSecond
	wait := g.handed.Add(time.Duration(g.touched.Load()) * each).Sub(g.Now())
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-g.stop.Done():
	case <-timer.C:
	}
	return nil
}

// time is the append time of the next record, which is never before the last one's.
func (g *filling) time() time.Time {
	if g.clock.IsZero() {
		g.clock = g.Now()
	}
	return g.clock
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// gone tells that a topic is not there, in the words of a backfill.
func (*filling) gone(err error) error {
	var why *refused
	if errors.As(err, &why) {
		return fmt.Errorf("%w: %w", ErrTopicGone, why)
	}
	return err
}

// commit makes a flush count, and tells of it.
func (s *backfillSession) commit(ctx context.Context, f *flush) error {
	if err := s.appender.commit(ctx, f); err != nil {
		return err
	}
	if s.Moved != nil {
		s.Moved(s.checkpoint)
	}
	for _, t := range f.topics {
		select {
		case s.spare <- t.set:
		default:
		}
	}
	return nil
}

// after is the checkpoint at the end of a flush: that far are objects done, and rows of
// the next (ADR 0020).
func (s *backfillSession) after(f *flush) segment.Checkpoint {
	done := f.tally
	total, taken := 0, 0
	for _, t := range f.topics {
		total += len(t.set.Recs)
	}
	for _, part := range f.settled {
		taken += part.outcome.Taken
	}
	done.Dropped = uint64(total - taken)
	for id := range f.touched {
		done.Touch(id)
	}
	return s.checkpoint.AdvanceRows(f.last, f.rows, done, s.Now())
}

// shows is what a segment asks about a position that somebody else has committed.
// Objects do not change, so it holds if there is such an object.
func (s *backfillSession) shows(_ context.Context, p segment.SourcePosition) error {
	if p.At.Sequence <= s.Objects.Len()+1 {
		return nil
	}
	return fmt.Errorf("%s at %s: there are %d objects: %w", p.Source, p.At, s.Objects.Len(), segment.ErrSourceWentBack)
}
