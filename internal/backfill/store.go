package backfill

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Errors about jobs.
var (
	// ErrNoJob says that there is no file of a job of this id. If anything else of
	// the job is there, somebody deleted the file, and nobody may work on the job.
	ErrNoJob = errors.New("there is no such backfill job")
	// ErrJobExists says that there is a job of this id already; it comes with that job.
	ErrJobExists = errors.New("the backfill job exists already")
	// ErrNoCheckpoint says that the checkpoint of one of the job's sources is
	// missing, so that nobody knows what is done, and nobody may work on the job.
	ErrNoCheckpoint = errors.New("the source's checkpoint is missing")
)

// Jobs are the jobs of a topic's incarnation. It holds no state; concurrent use, in
// any number of processes, is fine.
type Jobs struct {
	store *segment.Store
	topic *segment.Topic
}

// Of gives a topic's jobs. It does no I/O.
func Of(store *segment.Store, t *segment.Topic) *Jobs { return &Jobs{store, t} }

func (b *Jobs) dir() string              { return path.Join(b.topic.Dir(), "backfills") }
func (b *Jobs) jobPath(id string) string { return path.Join(b.dir(), id, jobName) }

func (b *Jobs) stateFile(id string) cursor.File[State] {
	return cursor.At[State](b.store.Filer, path.Join(b.dir(), id, stateName))
}

const (
	jobName   = "job.json"
	stateName = "state.json"

	// atOnce is how many small files are written or read at a time.
	atOnce = 16
)

// DerivedID is the id of the one job that there is to be of something, so that
// whoever makes it makes the same. It follows from the topic's incarnation and from
// what, and from nothing else.
func (b *Jobs) DerivedID(what ...string) string {
	h := sha256.New()
	for _, part := range append([]string{b.topic.Incarnation}, what...) {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // never fails
	}
	const chars = 25 // 125 bits
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)))[:chars]
}

// Create makes a job, open and with nothing done. Topic, incarnation, names of
// sources and time of creation are filled in, and so is the ID if it is empty, with
// a random one; the job is returned so. All that is wrong with the job comes as one
// [*JobError], before anything is written.
//
// An ID that is given is one of [Jobs.DerivedID]. If there is a job of this ID, it
// is returned with [ErrJobExists], whatever is in it: of several that are made at
// once the first one counts. After any other error the job may have come to be, or
// not; with a given ID, calling again settles it.
//
// On nil the job is as durable as the filer's settings make it. Creating makes
// three kinds of files, and may be killed between any two of them:
//
//  1. The sources' checkpoints, at zero: a source never is without one (rule 15).
//     Killed here, there are checkpoints without a job: files that nobody reads.
//     Whoever makes the job of the same ID finds and takes them.
//  2. The job's file, exclusively. It is what makes the job exist. Killed before
//     that, its bytes may be left on volume servers, named by nothing.
//  3. The state. It follows from the job, and is made by whoever misses it.
func (b *Jobs) Create(ctx context.Context, j Job) (Job, error) {
	if j.ID != "" {
		switch old, err := b.Load(ctx, j.ID); {
		case err == nil:
			return old, fmt.Errorf("job %s: %w", j.ID, ErrJobExists)
		case !errors.Is(err, ErrNoJob):
			return j, err
		}
		return b.create(ctx, j, false)
	}
	for {
		fresh := j
		fresh.ID = NewID()
		made, err := b.create(ctx, fresh, true)
		if !errors.Is(err, errTaken) {
			return made, err
		}
	}
}

// errTaken: another job has or had the id.
var errTaken = errors.New("the id is taken")

// create makes a job of an ID, which a fresh one shares with no other job.
func (b *Jobs) create(ctx context.Context, j Job, fresh bool) (Job, error) {
	j = b.complete(j)
	if err := j.Validate(b.topic.Definition); err != nil {
		return j, err
	}
	data, err := encode(j)
	if err != nil {
		return j, err
	}
	if len(data) > MaxFile {
		return j, &JobError{Job: j.ID, Faults: []string{tooLarge(len(data))}, Count: 1}
	}
	begun, err := b.createCheckpoints(ctx, j, fresh)
	if err == nil && begun {
		return b.worked(ctx, j)
	}
	if err == nil {
		err = b.freeze(ctx, j.ID, data)
	}
	if errors.Is(err, filer.ErrExists) {
		return b.worked(ctx, j)
	}
	if err == nil {
		_, err = b.stateFile(j.ID).Create(ctx, NewState(j))
		if errors.Is(err, filer.ErrExists) { // made by somebody who missed it
			err = nil
		}
	}
	if err != nil {
		return j, fmt.Errorf("create job %s: %w", j.ID, err)
	}
	return j, nil
}

// worked returns the job that somebody else has made meanwhile. That it is not
// there, although its sources were worked on, means that its file was deleted.
func (b *Jobs) worked(ctx context.Context, j Job) (Job, error) {
	old, err := b.Load(ctx, j.ID)
	if err != nil {
		return j, fmt.Errorf("job %s was worked on before: %w", j.ID, err)
	}
	return old, fmt.Errorf("job %s: %w", j.ID, ErrJobExists)
}

// complete fills in what follows from the topic.
func (b *Jobs) complete(j Job) Job {
	j.Topic, j.Incarnation = b.topic.Name, b.topic.Incarnation
	if j.Created.IsZero() {
		j.Created = b.store.Now()
	}
	j.Created = j.Created.UTC().Truncate(time.Microsecond)
	j.Read.From, j.Read.Until = utc(j.Read.From), utc(j.Read.Until)
	sources := make([]Source, len(j.Sources))
	for i, s := range j.Sources {
		sources[i] = Source{Name: SourceName(j.ID, i), Objects: s.Objects}
	}
	j.Sources = sources
	return j
}

// utc keeps what is no time at all as it is.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// createCheckpoints makes the checkpoints of a job's sources. Those that are there
// belong to the same job, made before or at this moment by others, unless its ID is
// fresh; begun says that one of them has moved already.
func (b *Jobs) createCheckpoints(ctx context.Context, j Job, fresh bool) (begun bool, err error) {
	var moved atomic.Bool
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, s := range j.Sources {
		g.Go(func() error {
			err := b.store.CreateCheckpoint(ctx, s.Name)
			switch {
			case !errors.Is(err, filer.ErrExists):
				return err
			case fresh:
				return errTaken
			}
			c, _, err := b.store.CheckpointFile(s.Name).Load(ctx)
			if err == nil && c.Position() != (topic.Position{}) {
				moved.Store(true)
			}
			return err
		})
	}
	err = g.Wait()
	return moved.Load(), err
}
