package functions

import (
	"context"
	"errors"
	"io/fs"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
)

// limiter keeps all sources of a job together to its limits, which may change while
// they wait. It is asked often enough that rows come evenly, however few.
type limiter struct{ now atomic.Pointer[paces] }

// paces are limits in force. Nil limiters: there is none.
type paces struct {
	limits      backfill.Limits
	rows, bytes *rate.Limiter
	over        context.Context // ends when there are others
	end         context.CancelFunc
}

const (
	// bursts and asks are how many times a second a limit's burst, and the share of it
	// after which it is asked, go into a second.
	bursts = 10
	asks   = 100
)

func newLimiter(l backfill.Limits) *limiter {
	var m limiter
	m.set(l)
	return &m
}

// set has other limits from now on, for those too who wait already. For one goroutine.
func (m *limiter) set(l backfill.Limits) {
	was := m.now.Load()
	if was != nil && was.limits.Rows == l.Rows && was.limits.Bytes == l.Bytes {
		return
	}
	p := &paces{limits: l, rows: perSecond(l.Rows), bytes: perSecond(l.Bytes)}
	p.over, p.end = context.WithCancel(context.Background())
	m.now.Store(p)
	if was != nil {
		was.end()
	}
}

func perSecond(n uint64) *rate.Limiter {
	if n == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(n), int(max(1, min(n, 1<<40)/bursts)))
}

// due tells whether so much that was not told yet is to be told now.
func (m *limiter) due(rows, bytes int) bool {
	p := m.now.Load()
	return p.rows != nil && uint64(rows) >= p.limits.Rows/asks || p.bytes != nil && uint64(bytes) >= p.limits.Bytes/asks
}

// wait returns when so much may be taken, or with the error of ctx. When stop ends it
// waits no longer.
func (m *limiter) wait(ctx, stop context.Context, rows, bytes int) error {
	for stop.Err() == nil && (rows > 0 || bytes > 0) {
		p := m.now.Load()
		waiting, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a deadline of ctx is no reason to refuse
		defers := []func() bool{context.AfterFunc(ctx, cancel), context.AfterFunc(stop, cancel), context.AfterFunc(p.over, cancel)}
		rows = take(waiting, p.rows, rows)
		bytes = take(waiting, p.bytes, bytes)
		for _, undo := range defers {
			undo()
		}
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// take waits for n, a burst at a time, and returns how much is left when ctx ends.
func take(ctx context.Context, l *rate.Limiter, n int) int {
	if l == nil {
		return 0
	}
	for n > 0 {
		some := min(n, l.Burst())
		if l.WaitN(ctx, some) != nil {
			return n
		}
		n -= some
	}
	return 0
}

// governed are objects of a source whose rows keep to the job's limits. It also sees
// when they cannot be reached for so long that somebody has to look.
type governed struct {
	ingest.Objects
	limits *limiter
	stop   context.Context
	now    func() time.Time
	denied func(error) // is called when objects were barred for deniedFor
	since  time.Time   // of the first denial in a row

	rows, bytes int // that the limiter was not told of
}

// deniedFor is how long access to objects may be denied until a run ends. Rights take
// a while to reach all servers of an endpoint.
const deniedFor = time.Minute

// Open is that of the objects.
func (g *governed) Open(ctx context.Context, n uint64, from uint32) (ingest.RowReader, error) {
	r, err := g.Objects.Open(ctx, n, from)
	g.note(err)
	if err != nil {
		return nil, err
	}
	return &governedRows{RowReader: r, governed: g}, nil
}

// note sees whether objects can be reached.
func (g *governed) note(err error) {
	switch {
	case !mendable(err):
		if !g.since.IsZero() {
			g.since = time.Time{}
		}
	case g.since.IsZero():
		g.since = g.now()
	case g.now().Sub(g.since) >= deniedFor:
		g.denied(err)
	}
}

// mendable tells errors that may be a matter of rights or settings, and so are no outcome of
// an object, but that asking again alone does not mend.
func mendable(err error) bool {
	var file *fs.PathError
	return errors.Is(err, object.ErrForbidden) || errors.Is(err, object.ErrNoBucket) || errors.Is(err, object.ErrInvalid) || errors.As(err, &file)
}

type governedRows struct {
	ingest.RowReader
	*governed
}

// Next gives the next row when the limits allow it. Rows that are passed over are free.
func (r *governedRows) Next(ctx context.Context) (ingest.BackfillRow, error) {
	row, err := r.RowReader.Next(ctx)
	if err != nil || row.Skip {
		r.note(err)
		return row, err
	}
	r.rows++
	r.bytes += len(row.Value)
	if r.limits.due(r.rows, r.bytes) {
		err = r.limits.wait(ctx, r.stop, r.rows, r.bytes)
		r.rows, r.bytes = 0, 0
	}
	return row, err
}
