package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/work"
)

// jobWork is what works on jobs in the foreground.
type jobWork struct {
	*app
	jobs  *jobsOf
	deps  functions.Deps
	close func()
}

// newWork reaches what working on a job needs. It waits for servers that go away, as
// functions do: a job may take hours.
func (a *app) newWork(ctx context.Context, j *jobsOf) (*jobWork, error) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	store, closeFiler, err := a.connectFiler(ctx)
	if err != nil {
		return nil, err
	}
	log, err := a.warningsOnly()
	if err != nil {
		closeFiler()
		return nil, err
	}
	store.Logger = log
	w := &jobWork{app: a, jobs: j, close: closeFiler}
	w.deps = functions.Deps{Store: store, Logger: log, Metrics: prometheus.NewRegistry(), Health: ingest.NewHealth(nil)}
	if err := selfCheck(ctx, store); err != nil {
		w.close()
		return nil, err
	}
	objects, err := a.s3(ctx) // without a setting of ours, as the AWS tools find it
	if err != nil {
		w.close()
		return nil, err
	}
	w.deps.Judge = functions.NewJudge(objects, a.cfg.S3, store.Filer)
	w.deps.NATS = a.natsForComfort()
	w.close = func() {
		if w.deps.NATS != nil {
			w.deps.NATS.Close()
		}
		objects.Close()
		closeFiler()
	}
	return w, nil
}

// warningsOnly logs warnings only, unless more is asked for: the command says itself
// what it does.
func (a *app) warningsOnly() (*slog.Logger, error) {
	c := a.cfg
	if c.LogLevel == defaultLogLevel {
		c.LogLevel = "warn"
	}
	return c.logger(a.errs)
}

// natsForComfort is a NATS server to tell planners of the load with; nil: there is
// none, and they find it by themselves.
func (a *app) natsForComfort() *nats.Conn {
	if a.cfg.NATS == "" {
		return nil
	}
	nc, err := a.connectNATS()
	if err != nil {
		a.note("working without NATS: %v", err)
		return nil
	}
	return nc
}

// lastLook is how long to wait for how a job was left, when the command is to end.
const lastLook = 10 * time.Second

// run works on a job until it is done, or not to be worked on.
func (w *jobWork) run(ctx context.Context, o functions.JobOptions, always bool) error {
	bar := newJobBar(w.errs, always)
	o.Progress = bar.at
	sum, err := functions.RunJob(ctx, w.deps, o)
	bar.end()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	state, stateErr := w.jobs.State(last, o.ID)
	switch {
	case stateErr != nil:
		return functions.Worst(explainBackfill(err), explainBackfill(stateErr))
	case state.Phase != backfill.Open:
		if err := w.showEnded(o.ID, state, sum); err != nil {
			return err
		}
	case err != nil && !is[*backfill.HeldError](err):
		w.note("go on with\n  spillway backfill resume %s %s", o.Topic, o.ID)
	}
	if err == nil {
		return w.lacks(o, state.Limits, sum)
	}
	return explainBackfill(err)
}

// lacks is what is wrong with what a job that is done has taken in.
func (w *jobWork) lacks(o functions.JobOptions, l backfill.Limits, s backfill.Summary) error {
	switch rows := s.Rows + s.Rejected + s.Filtered; {
	case s.Failed > 0:
		return fmt.Errorf("%s of %s could not be read to their ends; `spillway backfill describe %s %s` says which, and why",
			humanize.Comma(int64(s.Failed)), count(int(s.Objects), "object"), o.Topic, o.ID)
	case l.TooMany(s.Rejected, rows):
		return fmt.Errorf("%s of %s were rejected, more than %s; the job was over before it could stop itself",
			humanize.Comma(int64(s.Rejected)), count(int(rows), "row"), shareText(*l.MaxRejects))
	}
	return nil
}

// endedView is how working on a job ended.
type endedView struct {
	Topic  string         `json:"topic"`
	Job    string         `json:"job"`
	Phase  backfill.Phase `json:"phase"`
	Reason string         `json:"reason,omitempty"`
	backfill.Summary
}

func (w *jobWork) showEnded(id string, s backfill.State, sum backfill.Summary) error {
	if s.Summary != nil {
		sum = *s.Summary
	}
	if w.cfg.JSON {
		return w.json(endedView{w.jobs.topic.Name, id, s.Phase, s.Reason, sum})
	}
	if err := w.printf("%s: %s\n", s.Phase, summaryText(sum)); err != nil {
		return err
	}
	if sum.Rejected > 0 {
		w.note("rejected rows: spillway read %s --rejected", w.jobs.topic.Name)
	}
	return nil
}

// summaryText says in one line what was done.
func summaryText(s backfill.Summary) string {
	text := fmt.Sprintf("%s of %s from %s, in %d s, into %s", count(int(s.Rows), "row"), humanize.Bytes(s.Bytes),
		count(int(s.Objects), "object"), s.Seconds, count(s.Segments, "segment"))
	for _, p := range []struct {
		n    uint64
		what string
	}{
		{s.Rejected, "rejected"}, {s.Filtered, "left out by --where"}, {s.Dropped, "dropped that were in already"}, {s.Failed, "objects failed"},
	} {
		if p.n > 0 {
			text += fmt.Sprintf("; %s %s", humanize.Comma(int64(p.n)), p.what)
		}
	}
	return text
}

// call asks a resident function to work on a topic's jobs. It looks at them by itself
// too, so that a call that fails costs time alone.
func (a *app) call(ctx context.Context, nc *nats.Conn, topic string) {
	js, err := jetstream.New(nc)
	var q *work.Queue
	if err == nil {
		q, err = work.Open(ctx, js)
	}
	if err == nil {
		err = q.Put(ctx, work.Subject(work.Backfill, topic))
	}
	if err != nil {
		a.note("`spillway run backfill` could not be called, and begins when it looks the next time: %v", err)
	}
}
