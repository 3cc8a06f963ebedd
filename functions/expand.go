package functions

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/followup"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// looker looks at the object of a reference, compares and pins it; *verdict.Judge is
// one.
type looker interface {
	Look(ctx context.Context, d topic.Definition, f record.Ref) (object.Info, error)
}

// expander makes the jobs of batch references whose rows are to become records.
type expander struct {
	store *segment.Store
	judge looker
}

var (
	_ ingest.Expander   = (*expander)(nil)
	_ followup.Expander = (*lateExpander)(nil)
)

// expandLook is for how long an object is looked at that was found a moment ago.
const expandLook = 2 * time.Second

// Expand makes the job, of the object as it is now, which it pins.
func (e *expander) Expand(ctx context.Context, t *segment.Topic, source string, r record.Record) error {
	b, _, err := ref.BatchOf(&r)
	if err != nil || !b.Expand {
		return err
	}
	info, err := e.look(ctx, t.Definition, *r.Ref)
	if err != nil {
		return err
	}
	o, err := frozen(*r.Ref, info)
	if err != nil {
		return err
	}
	read := backfill.Read{
		Format: rows.Format(b.Format), Compression: rows.Compression(b.Compression), CSV: backfill.CSV(b.CSV),
	}
	if t.Key.Pointer() == nil { // else each row says it
		read.FixedKey = bytes.Clone(r.Key)
	}
	err = backfill.Of(e.store, t).Expand(ctx, backfill.ReferenceAt(source, r.Position), read, o)
	var cannot *backfill.JobError
	if errors.As(err, &cannot) {
		return &ref.BatchError{Header: ref.HeaderExpand, Reason: cannot.Error()}
	}
	return err
}

func (e *expander) look(ctx context.Context, d topic.Definition, f record.Ref) (object.Info, error) {
	look, cancel := context.WithTimeout(ctx, expandLook)
	defer cancel()
	info, err := e.judge.Look(look, d, f)
	if err != nil && !verdict.Wrong(err) && ctx.Err() == nil {
		err = &ingest.UnseenError{Err: err}
	}
	return info, err
}

// frozen is the object that was looked at, as a job has it. Its ETag is not the
// reference's, which an equal digest forgives.
func frozen(f record.Ref, info object.Info) (backfill.Object, error) {
	n, err := ref.NameOf(f)
	if err != nil {
		return backfill.Object{}, err
	}
	o := backfill.Object{Bucket: n.Bucket, Key: n.Key, Version: n.Version, ETag: info.ETag, Size: info.Size}
	if o.Version == "" && info.Version != "null" { // which is no version
		o.Version = info.Version
	}
	return o, nil
}

// lateExpander is for references that are committed, accepted, and now verified: it also
// starts the job, and puts a token for the topic. Jobs of which nobody is told are found
// by sweeps.
type lateExpander struct {
	expander
	mu   sync.Mutex
	jobs ingest.Nudger // for one goroutine
}

// Expand makes the job, and starts it.
func (e *lateExpander) Expand(ctx context.Context, t *segment.Topic, source string, r record.Record) error {
	if err := e.expander.Expand(ctx, t, source, r); err != nil {
		return err
	}
	if err := backfill.Of(e.store, t).Decide(ctx, backfill.ReferenceAt(source, r.Position), true); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.jobs.Nudge(ctx, t.Name); err != nil {
		e.store.Logger.Debug("could not call for a job to be worked on", "topic", t.Name, "err", err)
	}
	return nil
}
