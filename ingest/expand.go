package ingest

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// Expander makes jobs of batch references whose rows are to become records of their
// topic.
type Expander interface {
	// Expand sees to it that there is the one job for a reference, a record of a topic
	// that comes from a source. On nil it is as durable as the filer makes it, and waits
	// for [backfill.Jobs.Decide].
	//
	// An error that [verdict.Wrong] knows, or a *ref.BatchError, says that there can be
	// none, and the reference is wrong; an *UnseenError that the object could not be
	// looked at; any other is the filer's. It is called concurrently.
	Expand(ctx context.Context, t *segment.Topic, source string, r record.Record) error
}

// UnseenError says that an object could not be looked at, or is not there, so that no
// job can be made of it yet.
type UnseenError struct{ Err error }

func (e *UnseenError) Error() string { return "no job could be made: " + e.Err.Error() }

func (e *UnseenError) Unwrap() error { return e.Err }

// errRemade ends a session that has made jobs in a topic that was then deleted and made
// again: its references go to the new one, and need their jobs there.
var errRemade = errors.New("a topic was made again after jobs of its references were made")

// expandParallel is how many jobs a flush makes at a time, and expandUnseen of how many
// the objects may turn out not to be there before the rest is left to the follow-up:
// whoever has the endpoint to ask is not to wait in line (rule 24).
const (
	expandParallel = 4
	expandUnseen   = 4
)

var (
	errNobody = &UnseenError{errors.New("there is nobody to make it")}
	errUnseen = &UnseenError{errors.New("too many objects of the flush could not be looked at")}
)

// expand makes the jobs of a flush's verified references, before these are committed:
// so there is none without a job, wherever a worker dies. Where there can be none the
// verdict changes, while the flush is not divided yet.
func (s *session) expand(ctx context.Context, f *flush) error {
	for _, t := range f.topics {
		if len(t.expand) == 0 {
			continue
		}
		open, err := s.topics.get(ctx, t.name)
		var why *refused
		if errors.As(err, &why) {
			continue // the topic goes, and its records with it
		}
		if err != nil {
			return err
		}
		if err := s.expandIn(ctx, f, t, open); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) expandIn(ctx context.Context, f *flush, t *topicRecords, open *openTopic) error {
	found := make([]error, len(t.expand))
	var unseen atomic.Int32
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(expandParallel)
	for n, i := range t.expand {
		if rec := t.set.Recs[i]; !rec.HasRef || rec.Pending {
			continue
		}
		if s.Expander == nil {
			found[n] = errNobody
			continue
		}
		r, err := t.set.Record(i)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		t.made = open.Incarnation
		g.Go(func() (err error) {
			if unseen.Load() >= expandUnseen {
				found[n] = errUnseen
				return nil
			}
			found[n], err = settled(s.Expander.Expand(each, open.Topic, s.appender.source, r))
			if found[n] != nil && !impossible(found[n]) {
				unseen.Add(1)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return t.unexpanded(f, found)
}

// settled tells what is a verdict on a reference from what ends the session.
func settled(err error) (found, fault error) {
	var not *UnseenError
	if err == nil || impossible(err) || errors.As(err, &not) {
		return err, nil
	}
	return nil, err
}

// impossible tells that there can never be a job.
func impossible(err error) bool {
	var batch *ref.BatchError
	return verdict.Wrong(err) || errors.As(err, &batch)
}

// unexpanded changes the verdict on references for which there is no job: what cannot be
// is refused, and the rest is left to the follow-up.
func (t *topicRecords) unexpanded(f *flush, found []error) error {
	for n, err := range found {
		switch i := t.expand[n]; {
		case err == nil:
		case impossible(err):
			if err := t.set.Refuse(i, "reference: "+err.Error()); err != nil {
				return err
			}
			f.counts.Rejected++
		default:
			t.set.Recs[i].Pending = true
			f.counts.Pending++
		}
	}
	return nil
}

// decide starts the jobs of a flush's references that are committed as verified, and ends
// those of refused ones, before the checkpoint passes them: so whoever dies here leaves it
// to the next worker, which reads them again. What is committed as pending is for the
// follow-up.
//
// If others have committed any of it, they may have judged otherwise. Then the records are
// looked up, which is still possible: a segment may forget how far it has taken a source
// in only when that is below the checkpoint.
func (s *session) decide(ctx context.Context, f *flush) error {
	for _, t := range f.topics {
		if len(t.expand) == 0 {
			continue
		}
		open, err := s.topics.get(ctx, t.name)
		var why *refused
		if errors.As(err, &why) {
			continue
		}
		if err != nil {
			return err
		}
		if open.Incarnation != t.tried.incarnation {
			continue // what was committed is gone, and its jobs with it
		}
		list := t.verdicts()
		if t.dropped {
			if list, err = s.committed(ctx, open, list); err != nil {
				return err
			}
		}
		if err := s.decideIn(ctx, open, list); err != nil {
			return err
		}
	}
	return nil
}

// decision is what is to become of a reference's job.
type decision struct {
	at                topic.Position
	verified, refused bool
}

// verdicts are those of this worker.
func (t *topicRecords) verdicts() []decision {
	list := make([]decision, 0, len(t.expand))
	for _, i := range t.expand {
		rec := t.set.Recs[i]
		list = append(list, decision{rec.Pos, rec.HasRef && !rec.Pending, !rec.HasRef})
	}
	return list
}

// committed are the verdicts that count. Those that cannot be found any more are of a
// worker that has moved the checkpoint, and so has decided.
func (s *session) committed(ctx context.Context, t *openTopic, mine []decision) (list []decision, err error) {
	in, err := inspect.Open(ctx, s.Store, t.Name)
	if err != nil || in.Incarnation != t.Incarnation {
		return nil, s.topics.vanished(ctx, t.Topic, err)
	}
	wanted := map[topic.Position]bool{}
	for _, d := range mine {
		wanted[d.at] = true
	}
	found, err := in.Find(ctx, s.appender.source, inspect.Rows{From: mine[0].at, To: mine[len(mine)-1].at})
	if err != nil {
		return nil, err
	}
	for _, p := range found.Places {
		if wanted[p.Position] {
			list = append(list, decision{p.Position, p.Rejected == "" && !p.Pending, p.Rejected != ""})
		}
	}
	return list, nil
}

func (s *session) decideIn(ctx context.Context, t *openTopic, list []decision) error {
	jobs := backfill.Of(s.Store, t.Topic)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(expandParallel)
	for _, d := range list {
		if !d.verified && !d.refused {
			continue
		}
		g.Go(func() error {
			r := backfill.ReferenceAt(s.appender.source, d.at)
			err := jobs.Decide(ctx, r, d.verified)
			if errors.Is(err, backfill.ErrNoJob) {
				if d.verified {
					s.Logger.Warn("the job of a reference is gone", "topic", t.Name, "reference", r)
				}
				err = nil
			}
			return err
		})
	}
	return g.Wait()
}
