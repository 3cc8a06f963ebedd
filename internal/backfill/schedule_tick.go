package backfill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
)

// Ticker has schedules do what is due. Any number of processes may tick at once, be
// killed anywhere, and have clocks that differ.
type Ticker struct {
	Schedules *Schedules
	// Lister gives what lists the objects of an endpoint; empty: of the settings'.
	Lister func(ctx context.Context, endpoint string) (Lister, error)
	Logger *slog.Logger

	most int // objects of a job; 0: mostObjects
}

// Ticked is what a tick did.
type Ticked struct {
	Schedule Schedule // after it
	Job      string   // that was made; empty: none was
	Found    bool     // it was made before, by a tick that did not get to note it
	Ended    string   // the job that was found to have ended
	Empty    bool     // a run found nothing new
}

// tries bounds how often a tick begins again because others changed the schedule, or
// merged files of the ledger.
const tries = 20

// Tick does what a schedule needs at the time now, step by step until nothing is to be
// done. Each step ends with one change of the schedule's file on condition that it is
// as it was loaded. Killed anywhere, the next tick goes on.
//
//  1. A run is due and none is under way: the run is begun, and its slot is served
//     with that. Killed here, the run is there without a job.
//  2. A run has no job: the objects are listed, and those that jobs 0 … Runs-1 took
//     are left out. The rest becomes job number Runs, whose id follows from its
//     number, so that of all who make it one does. Killed before or after it was
//     made, the next tick meets the same number: it makes the job, or finds it.
//  3. Its job is there: that is noted, and Runs is one more.
//  4. A run's job has ended: the result is noted, and the run is over.
//
// A job's file is what has its objects count as taken. Job n is only ever made of
// what jobs 0 … n-1, which are all there and never change, have not taken. So an object
// is in one job at most, whoever made them and whatever the clocks were.
//
// Errors are of the filer, of the endpoint that is listed, or say that a job's file is
// missing or damaged ([ErrNoJob], [*FrozenError]); the schedule then does not go on.
func (t *Ticker) Tick(ctx context.Context, name string, now time.Time) (Ticked, error) {
	var done Ticked
	for range tries {
		s, version, err := t.Schedules.load(ctx, name)
		done.Schedule = s
		if err != nil {
			return done, err
		}
		is := s
		more, err := t.step(ctx, &is, &done, now)
		if errors.Is(err, errMerged) { // by another tick, while this one was reading it
			continue
		}
		if err != nil {
			t.blame(ctx, s, version, err)
			return done, fmt.Errorf("schedule %s of topic %q: %w", name, t.Schedules.topic.Name, err)
		}
		if !more {
			return done, nil
		}
		saved, err := t.Schedules.save(ctx, is, version)
		if err != nil {
			return done, err
		}
		if saved {
			done.Schedule = is
			t.note(ctx, is, &done)
		}
	}
	return done, fmt.Errorf("schedule %s of topic %q: %w %d times in a row", name, t.Schedules.topic.Name, filer.ErrConflict, tries)
}

// step takes one of the steps, and tells whether there is something to be saved.
func (t *Ticker) step(ctx context.Context, s *Schedule, done *Ticked, now time.Time) (bool, error) {
	r := s.Running
	if r == nil {
		return s.begin(now), nil
	}
	if r.Job == "" {
		if r.held(s.Paused) {
			return false, nil
		}
		id, h, err := t.job(ctx, *s)
		if err != nil {
			return false, err
		}
		if id == "" {
			s.empty(now, h)
		} else {
			s.found(id, h)
		}
		done.Found = h.found
		return true, nil
	}
	st, err := t.Schedules.jobs.State(ctx, r.Job)
	if err != nil || !st.Phase.Final() {
		return false, err
	}
	s.collect(st, now)
	return true, nil
}

// note tells the caller and the log what was saved.
func (t *Ticker) note(ctx context.Context, s Schedule, done *Ticked) {
	log := t.Logger.With("topic", t.Schedules.topic.Name, "schedule", s.Name)
	switch r := s.Running; {
	case r != nil && r.Job != "":
		done.Job = r.Job
		log.InfoContext(ctx, "a backfill job was made", "job", r.Job, "slot", r.Slot, "missed", r.Missed, "rest", s.Rest)
	case r == nil && s.Last != nil && s.Last.Phase == "":
		done.Empty = true
		log.InfoContext(ctx, "no new objects", "slot", s.Last.Slot, "missed", s.Last.Missed, "unfit", s.Last.Unfit)
	case r == nil && s.Last != nil:
		done.Ended = s.Last.Job
		log.InfoContext(ctx, "a backfill job has ended", "job", s.Last.Job, "phase", s.Last.Phase, "rows", s.Last.Rows, "rejected", s.Last.Rejected)
	}
}

// blame writes into the schedule why its run does not get on. That it cannot is told
// by the error that the caller gets anyway.
func (t *Ticker) blame(ctx context.Context, s Schedule, version cursor.Version, err error) {
	if s.Running == nil || s.Running.Fault == clip(err.Error()) || ctx.Err() != nil {
		return
	}
	r := *s.Running
	r.Fault = clip(err.Error())
	s.Running = &r
	if _, err := t.Schedules.save(ctx, s, version); err != nil {
		t.Logger.WarnContext(ctx, "could not note a fault of a schedule", "schedule", s.Name, "err", err)
	}
}

// job makes the schedule's next job, or finds it made. Without an id there is nothing
// new.
func (t *Ticker) job(ctx context.Context, s Schedule) (id string, h harvest, err error) {
	id = t.Schedules.JobID(s, s.Runs)
	_, err = t.Schedules.jobs.State(ctx, id)
	if err == nil { // whoever made it has found what is unknown here, so it is looked for again
		return id, harvest{rest: true, found: true}, nil
	}
	if !errors.Is(err, ErrNoJob) {
		return "", h, err
	}
	if h, err = t.harvest(ctx, s); err != nil || len(h.objects) == 0 {
		return "", h, err
	}
	read, err := Formats(s.Spec.Read, h.objects, s.Spec.as())
	if err != nil {
		return "", h, err
	}
	_, err = t.Schedules.jobs.Create(ctx, Job{
		ID: id, Created: s.Running.Since, By: s.by(), Origin: s.Spec.Origin, Schedule: s.ID,
		Endpoint: s.Spec.Endpoint, Read: read, Limits: s.Spec.Limits,
		Sources: Divide(h.objects, id, s.Spec.Parallel),
	})
	if errors.Is(err, ErrJobExists) {
		return id, harvest{rest: true, found: true}, nil
	}
	return id, h, err
}

func (s Schedule) by() string {
	if s.Running.Slot.IsZero() {
		return fmt.Sprintf("schedule %s, asked for", s.Name)
	}
	return fmt.Sprintf("schedule %s at %s", s.Name, s.Running.Slot.Format(time.RFC3339))
}

// ledger is the ledger of a schedule.
func (t *Ticker) ledger(s Schedule) *ledger {
	return &ledger{
		store: t.Schedules.store.Filer, log: t.Logger,
		dir: path.Join(t.Schedules.folder(s.Name), s.ID, "taken"),
		objects: func(ctx context.Context, n uint64) ([]Object, error) {
			j, err := t.Schedules.jobs.Load(ctx, t.Schedules.JobID(s, n))
			if err != nil {
				return nil, err
			}
			var all []Object
			for _, source := range j.Sources {
				all = append(all, source.Objects...)
			}
			return all, nil
		},
	}
}

const (
	// mostObjects and mostBytes bound a job of a schedule, and so the memory of a tick.
	// The rest waits for the next job, which follows at once.
	mostObjects = 200_000
	mostBytes   = MaxFile - 8<<20
)

// harvest is what a run has found.
type harvest struct {
	objects []Object
	bytes   int  // of the objects in a job's file, at most
	rest    bool // there may be more
	found   bool // the job was there already

	unfit   int // objects that no job can take
	example string
}

// harvest lists what no job of the schedule has taken.
func (t *Ticker) harvest(ctx context.Context, s Schedule) (h harvest, err error) {
	prefix, err := s.Spec.Prefix()
	if err != nil {
		return h, err
	}
	lister, err := t.Lister(ctx, s.Spec.Endpoint)
	if err != nil {
		return h, err
	}
	ledger := t.ledger(s)
	files, err := ledger.open(ctx, s.Runs)
	if err != nil {
		return h, err
	}
	most := t.most
	if most == 0 {
		most = mostObjects
	}
	seen := map[string]bool{}
	err = fresh(ctx, files, fit(prefix.each(ctx, lister, nil), s.Spec, &h), func(o Object) bool {
		cost := 256 + len(o.Bucket) + 2*(len(o.Key)+len(o.Version)+len(o.ETag)) // as JSON
		if len(h.objects) >= most || h.bytes+cost > mostBytes {
			h.rest = true
			return false
		}
		if !seen[o.Key] { // else it was changed while it was listed
			seen[o.Key] = true
			h.objects, h.bytes = append(h.objects, o), h.bytes+cost
		}
		return true
	})
	return h, ledger.heal(ctx, err)
}

// fit leaves out the objects that no job can take, and counts them: a hostile name, no
// ETag, a name that does not tell the format.
func fit(all iter.Seq2[Object, error], spec Spec, h *harvest) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for o, err := range all {
			if err == nil {
				if why := unfit(o, spec.as()); why != "" {
					if h.unfit++; h.unfit == 1 {
						h.example = why
					}
					continue
				}
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

// unfit says why no job can take an object; nothing: it can.
func unfit(o Object, as As) string {
	k := as.of(path.Base(o.Key))
	o.Format, o.Compression = k.format, k.packing
	f := &faults{}
	if (Job{}).checkObject(f, o); f.count == 0 {
		return ""
	}
	return f.shown[0]
}
