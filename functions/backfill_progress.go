package functions

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway/internal/backfill"
)

// JobProgress is how far a job is, and how fast it gets on.
type JobProgress struct {
	backfill.Progress
	// Of the last seconds, and when a run ends of all of it: rows that were looked at,
	// and bytes of values.
	RowsPerSecond, BytesPerSecond float64
	ETA                           time.Duration // until the end; 0: not known
}

const (
	tellPeriod = 500 * time.Millisecond
	tellWindow = 20 // periods over which speeds are taken
)

// report tells of the progress until ctx ends.
func (j *job) report(ctx context.Context) {
	if j.o.Progress == nil {
		return
	}
	w := window{j.first}
	tick := time.NewTicker(tellPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			j.o.Progress(w.add(j.now(), j.progress()))
		}
	}
}

// window are the last looks at a job's progress.
type window []look

type look struct {
	at time.Time
	backfill.Progress
}

// add adds a look, and tells how fast the job has been in the window.
func (w *window) add(now time.Time, p backfill.Progress) JobProgress {
	*w = append(*w, look{now, p})
	if len(*w) > tellWindow+1 {
		*w = (*w)[1:]
	}
	return (*w)[0].until(now, p)
}

// until tells how fast a job has been since a look at it.
func (first look) until(now time.Time, p backfill.Progress) JobProgress {
	out := JobProgress{Progress: p}
	took := now.Sub(first.at).Seconds()
	if took <= 0 {
		return out
	}
	speed := func(is, was uint64) float64 { return float64(is-min(was, is)) / took }
	out.RowsPerSecond = speed(p.Looked(), first.Looked())
	out.BytesPerSecond = speed(p.Bytes, first.Bytes)
	if read := speed(p.Read, first.Read); read > 0 {
		out.ETA = time.Duration(min(float64(p.Size-min(p.Read, p.Size))/read, 1e9) * float64(time.Second))
	}
	return out
}
