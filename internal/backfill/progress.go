package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Progress is what of a job is done. All but Read is exact.
type Progress struct {
	segment.Tally                  // of all sources, without Failures; Tally.Objects are those that are done
	Failed        []FailedObject   // of those that are done
	Total         uint64           // objects of the job
	Size          uint64           // bytes of all of them, as they are stored
	Read          uint64           // about how many of those are done
	Sources       []SourceProgress // in their order
}

// FailedObject is one that could not be read to its end.
type FailedObject struct {
	Object string `json:"object"` // its name
	Row    uint32 `json:"row"`    // the first that could not be read
	Reason string `json:"reason"`
}

// SourceProgress is what of a source is done.
type SourceProgress struct {
	Source  string         `json:"source"`
	At      topic.Position `json:"at"`      // its checkpoint
	Objects uint64         `json:"objects"` // of it in all
	Done    bool           `json:"done"`
}

// Done tells whether all sources are at their ends.
func (p Progress) Done() bool {
	return !slices.ContainsFunc(p.Sources, func(s SourceProgress) bool { return !s.Done })
}

// Looked counts the rows that were read: taken in, rejected, or left out.
func (p Progress) Looked() uint64 { return looked(&p.Tally) }

func looked(t *segment.Tally) uint64 { return t.Rows + t.Rejected + t.Filtered }

// Summary is what a job has done when it ended, or stopped.
type Summary struct {
	Objects  uint64 `json:"objects"`  // that are done
	Failed   uint64 `json:"failed"`   // of those, could not be read to their end
	Rows     uint64 `json:"rows"`     // taken in
	Bytes    uint64 `json:"bytes"`    // of their values
	Rejected uint64 `json:"rejected"` // taken in as rejected records
	Filtered uint64 `json:"filtered"` // left out by their event times
	Dropped  uint64 `json:"dropped"`  // brought again and dropped, as they were in already
	Seconds  uint64 `json:"seconds"`  // that runs have worked, rounded up
	Segments int    `json:"segments"` // that took in rows
	// Sources are where they came to.
	Sources []SourceProgress `json:"sources"`
}

// Summary sums the progress up, of runs that have worked for some time.
func (p Progress) Summary(worked time.Duration) Summary {
	return Summary{
		Objects: p.Objects, Failed: uint64(len(p.Failed)), Rows: p.Rows, Bytes: p.Bytes,
		Rejected: p.Rejected, Filtered: p.Filtered, Dropped: p.Dropped,
		Seconds: uint64((worked + time.Second - 1) / time.Second), Segments: len(p.Segments),
		Sources: p.Sources,
	}
}

// Progress reads the checkpoints of a job's sources. [ErrNoCheckpoint]: one is
// missing, and nobody may work on the job.
func (b *Jobs) Progress(ctx context.Context, j Job) (Progress, error) {
	all := make([]segment.Checkpoint, len(j.Sources))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, s := range j.Sources {
		g.Go(func() (err error) {
			all[i], _, err = b.store.CheckpointFile(s.Name).Load(ctx)
			if errors.Is(err, filer.ErrNotFound) {
				err = fmt.Errorf("source %s: %w", s.Name, ErrNoCheckpoint)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Progress{}, fmt.Errorf("progress of job %s: %w", j.ID, err)
	}
	return ProgressAt(j, all), nil
}

// ProgressAt is the progress of a job whose sources, in their order, are at these
// checkpoints. Without one a source is at its start.
func ProgressAt(j Job, at []segment.Checkpoint) Progress {
	var p Progress
	var seen measure
	begun := make([]started, 0, len(j.Sources))
	for i, s := range j.Sources {
		var c segment.Checkpoint
		if i < len(at) {
			c = at[i]
		}
		total := uint64(len(s.Objects))
		done := min(c.Sequence, total)
		p.Total += total
		p.Sources = append(p.Sources, SourceProgress{Source: s.Name, At: c.Position(), Objects: total, Done: c.Finished(total)})
		for n, o := range s.Objects {
			p.Size += uint64(o.Size)
			if uint64(n) < done {
				p.Read += uint64(o.Size)
				seen.bytes += uint64(o.Size)
			}
		}
		if c.Tally != nil {
			p.addSource(s, *c.Tally)
			seen.rows += looked(c.Tally)
		}
		if done < total && c.Rows > 0 {
			begun = append(begun, started{j.Read, s.Objects[done], c})
			seen.rows -= min(uint64(c.Rows), seen.rows)
		}
	}
	for _, s := range begun {
		p.Read += s.share(seen)
	}
	return p
}

// addSource adds what was done of a source, and names the objects of it that failed.
func (p *Progress) addSource(s Source, t segment.Tally) {
	for _, f := range t.Failures {
		if f.Object >= 1 && f.Object <= uint64(len(s.Objects)) {
			p.Failed = append(p.Failed, FailedObject{s.Objects[f.Object-1].String(), f.Row, f.Reason})
		}
	}
	t.Failures = nil
	p.Add(t)
}

// measure is how many bytes of objects that are done had how many rows.
type measure struct{ bytes, rows uint64 }

// started is an object of which some rows are done.
type started struct {
	read Read
	o    Object
	at   segment.Checkpoint
}

// share guesses how many of the object's bytes are done: its rows are taken to be
// as long as those of the objects that are done, or, where there are none, its bytes
// to be those of the values, packed to a quarter if it is packed.
func (s started) share(m measure) uint64 {
	size := uint64(s.o.Size)
	if m.rows > 0 {
		return min(size, uint64(float64(s.at.Rows)*float64(m.bytes)/float64(m.rows)))
	}
	if s.at.Tally == nil {
		return 0
	}
	guess := s.at.Tally.Bytes
	if o := s.read.Options(s.o); o.Compression != rows.None || o.Format == rows.Parquet || o.Format == rows.Avro {
		guess /= 4
	}
	return min(size, guess)
}
