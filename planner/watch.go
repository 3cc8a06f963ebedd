package planner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// watched is a live segment as it has been seen so far. Everything comes from the
// attributes of its chunks: each tells how much there was up to it, so a few of
// them tell the load over any time.
type watched struct {
	*segment.Segment
	rolledFrom Series    // what its parent took in, if it was rolled; counts end at 0
	split      time.Time // as in Load
	series     Series    // oldest first
	tail       seen
	first      seen      // the oldest that is kept
	looked     time.Time // when the tail was last looked for from the head on
	pace       uint64    // chunks that were new at the last look after that
}

// seen is what is kept of a chunk: a planner watches many segments, and the bytes
// of a small chunk come with its attributes.
type seen struct {
	id     string // empty: no chunk
	n      uint64
	begin  Sample // before it
	end    Sample
	sealed bool
}

func seeing(c segment.Chunk) seen {
	at := c.Entry.MTime
	return seen{c.Entry.ID, c.Entry.N, Sample{at, c.Base, c.ByteBase}, Sample{at, c.End(), c.ByteEnd()}, c.Sealed}
}

// needed is how far back samples are needed: what is older weighs less than
// 0.001 %.
func needed(p Policy) time.Duration { return 4 * p.Long }

// trustTail is for how long "there is no chunk after this one" counts as "this is
// the tail". It is always so unless somebody trims a segment that is live, past what
// was seen of it; then its load is known this much later.
const trustTail = 5 * time.Minute

// observe looks at the segment's tail, and at those chunks before it that are
// needed for its averages: the last, the 2nd, the 4th last and so on.
func (w *watched) observe(ctx context.Context, p Policy, now time.Time) error {
	tail, err := w.newest(ctx, now)
	if err != nil {
		return err
	}
	if tail.id == "" || tail.id == w.tail.id {
		return nil
	}
	if w.first.id == "" {
		if w.first, err = w.oldest(ctx, tail); err != nil {
			return err
		}
	}
	since := now.Add(-needed(p))
	known, fresh, err := w.before(ctx, tail, since, p)
	if err != nil {
		return err
	}
	if !tail.sealed {
		fresh = append(fresh, tail.end)
	}
	w.series, w.tail = append(known, fresh...).after(since), tail
	return nil
}

// newest finds the last chunk. Between two looks from the head on it trusts what it
// has seen: where nothing is new that is one call to the filer, and where as much is
// new as the last time, two.
func (w *watched) newest(ctx context.Context, now time.Time) (seen, error) {
	if w.looked.IsZero() || now.Sub(w.looked) >= trustTail {
		c, err := w.Tail(ctx)
		if err == nil {
			w.looked = now
		}
		return seeing(c), err
	}
	last, low, high := w.tail, uint64(0), uint64(math.MaxUint64) // below low they are there, from high on they are not
	if last.id != "" {
		low = last.n + 1
	}
	begin, probe, step := low, low+max(w.pace, 1)-1, uint64(0)
	for low < high {
		c, err := w.ChunkAt(ctx, probe)
		switch {
		case errors.Is(err, filer.ErrNotFound):
			high = probe
		case err != nil:
			return seen{}, err
		default:
			last, low = seeing(c), probe+1
		}
		if high < math.MaxUint64 {
			probe = low + (high-low)/2
		} else {
			probe, step = low+step, 2*step+1
		}
	}
	w.pace = low - begin
	return last, nil
}

// before samples the chunks before a new tail, and tells what of the samples known
// so far goes before those.
func (w *watched) before(ctx context.Context, tail seen, since time.Time, p Policy) (known, fresh Series, err error) {
	known = w.series
	if len(known) == 0 && len(w.Parents) == 0 {
		// The first chunk of a child may hold what came before it was made, and
		// waited for a flush: there, counting begins with that chunk.
		known = Series{{At: w.Created}}
	}
	if tail.end.At.Before(since) {
		return nil, nil, nil // older ones are not needed
	}
	if w.little(tail, p) {
		return known, nil, nil
	}
	for step := uint64(1); tail.n >= w.first.n+step; step *= 2 {
		n := tail.n - step
		if w.tail.id != "" && n <= w.tail.n {
			return known, fresh, nil // known from an earlier look
		}
		c, err := w.ChunkAt(ctx, n)
		if errors.Is(err, filer.ErrNotFound) {
			return nil, fresh, nil // trimmed up to somewhere here
		}
		if err != nil {
			return nil, nil, err
		}
		fresh = append(Series{seeing(c).end}, fresh...)
		if c.Entry.MTime.Before(since) {
			return nil, fresh, nil
		}
	}
	return known, fresh, nil
}

// little tells that what came since the last look is too little for a split, even
// had all of it come in just now. Then it does not matter when it came.
func (w *watched) little(tail seen, p Policy) bool {
	if w.tail.id == "" {
		return false
	}
	came := Rate{float64(tail.end.Records - w.tail.end.Records), float64(tail.end.Bytes - w.tail.end.Bytes)}
	return p.level(came.Times(3/p.Short.Seconds())) < p.Fill
}

// oldest is the first chunk that is kept.
func (w *watched) oldest(ctx context.Context, tail seen) (seen, error) {
	if tail.n == 0 {
		return tail, nil
	}
	c, err := w.ChunkAt(ctx, 0)
	if err == nil || !errors.Is(err, filer.ErrNotFound) {
		return seeing(c), err
	}
	for c, err := range w.Chunks(ctx, 0) {
		return seeing(c), err
	}
	return seen{}, fmt.Errorf("segment %s: %w", w.ID, commitlog.ErrWentBack)
}

// after leaves out samples that are older than all that is needed.
func (s Series) after(since time.Time) Series {
	for len(s) > 2 && s[1].At.Before(since) {
		s = s[1:]
	}
	return s
}

// load is what is known of the segment now.
func (w *watched) load(now time.Time, flushAge time.Duration, p Policy) Load {
	s := w.history()
	asOf := s.AsOf(now, flushAge)
	l := Load{Segment: w.ID, Split: w.split, Short: s.Average(asOf, p.Short), Long: s.Average(asOf, p.Long)}
	if len(s) > 0 {
		l.Observed = max(0, now.Sub(s[0].At))
	}
	if w.tail.id != "" {
		l.Records, l.Bytes = w.tail.end.Records-w.first.begin.Records, w.tail.end.Bytes-w.first.begin.Bytes
		l.First = w.first.begin.At
	}
	return l
}

// history is the segment's series, with that of what it was rolled from.
func (w *watched) history() Series {
	own := w.series
	if len(own) == 0 {
		own = Series{{At: w.Created}}
	}
	if len(w.rolledFrom) == 0 {
		return own
	}
	last := w.rolledFrom[len(w.rolledFrom)-1]
	s := append(Series{}, w.rolledFrom...)
	for _, x := range own {
		if !x.At.Before(last.At) {
			s = append(s, Sample{x.At, last.Records + x.Records, last.Bytes + x.Bytes})
		}
	}
	return s
}

// densityChunks is how many of a segment's last chunks tell where its load falls.
const densityChunks = 64

// density is where the load of the last chunks fell, as far back as since, but of
// a few chunks in any case.
func (w *watched) density(ctx context.Context, since time.Time, bytes bool) (sum topic.Density, err error) {
	if w.tail.id == "" {
		return nil, nil
	}
	from := w.tail.n - min(w.tail.n, densityChunks-1)
	var chunks []segment.Chunk
	for c, err := range w.Chunks(ctx, from) {
		if err != nil {
			return nil, err
		}
		c.Entry.Content = nil
		if !c.Sealed {
			chunks = append(chunks, c)
		}
	}
	const few = 8
	for i, c := range chunks {
		if c.Entry.MTime.Before(since) && len(chunks)-i > few {
			continue
		}
		d := c.Density(w.Range, bytes)
		if sum == nil {
			sum = d
		} else {
			sum = sum.Plus(d)
		}
	}
	return sum, nil
}
