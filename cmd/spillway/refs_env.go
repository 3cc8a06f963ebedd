package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/refcheck"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// patientObjects is patientFiler for the objects of others.
type patientObjects struct {
	filer.Remover
	p *patientFiler
}

// Look marks as patientFiler does.
func (o *patientObjects) Look(ctx context.Context, n filer.ObjectName) (filer.Object, error) {
	return ask(o.p, func() (filer.Object, error) { return o.Remover.Look(ctx, n) })
}

// Mark marks as patientFiler does.
func (o *patientObjects) Mark(ctx context.Context, obj filer.Object, name, value string) error {
	o.p.asked()
	return o.p.answered(o.Remover.Mark(ctx, obj, name, value))
}

// Remove marks as patientFiler does.
func (o *patientObjects) Remove(ctx context.Context, obj filer.Object) error {
	o.p.asked()
	return o.p.answered(o.Remover.Remove(ctx, obj))
}

// removerOf is the view of the buckets that a connected filer has; nil: none.
func removerOf(store *segment.Store) filer.Remover {
	p, ok := store.Filer.(*patientFiler)
	if !ok {
		return nil
	}
	r, ok := p.Store.(filer.Remover)
	if !ok {
		return nil
	}
	return &patientObjects{r, p}
}

// checker is what checks a topic's references at the endpoint of the settings.
func (a *app) checker(ctx context.Context, store *segment.Store, name string) (*refcheck.Checker, func(), error) {
	t, err := store.Topic(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	objects, err := a.s3(ctx)
	if err != nil {
		return nil, nil, err
	}
	c := &refcheck.Checker{Topic: t, Objects: objects, Endpoint: a.cfg.S3, Bucket: a.cfg.S3Bucket, Now: time.Now}
	if r := removerOf(store); r != nil {
		c.Filer, c.Pins = r, &pin.Pins{Filer: r, Now: time.Now}
	}
	return c, objects.Close, nil
}

// explainRefs sorts what commands about references can meet.
func explainRefs(err error) error {
	switch {
	case err == nil, functions.ExitCode(err) != functions.ExitBug:
		return err
	case is[*verdict.ElsewhereError](err):
		return &functions.ConfigError{Err: fmt.Errorf("%w; name it with --s3", err)}
	case is[*verdict.NotAllowedError](err):
		return &functions.ConfigError{Err: err}
	case is[*refcheck.NotUploadError](err):
		return &functions.UsageError{Err: err}
	case errors.Is(err, refcheck.ErrClaimed):
		return &functions.RetryError{Err: err}
	}
	return explain(err)
}

// whileThere explains an error by the topic's deletion, if that is the cause.
func whileThere(ctx context.Context, store *segment.Store, t *segment.Topic, err error) error {
	if !errors.Is(err, commitlog.ErrNoLog) && !errors.Is(err, filer.ErrNotFound) {
		return explainRefs(err)
	}
	now, gone := store.Topic(ctx, t.Name)
	if gone == nil && now.Incarnation != t.Incarnation {
		gone = fmt.Errorf("topic %q was deleted and made again: %w", t.Name, segment.ErrNoTopic)
	}
	return cmp.Or(gone, explainRefs(err))
}

// deeds shows what was done, and remembers what could not be.
type deeds struct {
	*app
	fine  func(error) bool // reasons to keep an object that are no failures; nil: none
	count map[refcheck.Done]uint64
	bytes int64
	bad   tally
}

func (d *deeds) tell(deed refcheck.Deed) error {
	if d.count == nil {
		d.count = map[refcheck.Done]uint64{}
	}
	d.count[deed.Done]++
	switch {
	case deed.Done != refcheck.Kept:
		d.bytes += max(deed.Size, 0)
	case d.fine == nil || !d.fine(deed.Err):
		d.bad.add(explainRefs(fmt.Errorf("%s: %w", deed.URL, deed.Err)))
	}
	if d.cfg.JSON {
		return d.json(deed)
	}
	word := string(deed.Done)
	if deed.DryRun {
		word = "would be " + word
	}
	if deed.Reason != "" {
		return d.printf("%s  %s: %s\n", word, deed.URL, deed.Reason)
	}
	return d.printf("%s  %s  %d bytes\n", word, deed.URL, deed.Size)
}

// doneSum is the last line of `refs adopt|drop --json`.
type doneSum struct {
	Topic   string `json:"topic"`
	DryRun  bool   `json:"dry_run,omitempty"`
	Pinned  uint64 `json:"pinned"`
	Adopted uint64 `json:"adopted"`
	Deleted uint64 `json:"deleted"`
	Kept    uint64 `json:"kept"`
	Bytes   int64  `json:"bytes"` // of the objects that are not kept as they were
}

// end sums up.
func (d *deeds) end(name string, dry bool) error {
	c := d.count
	if d.cfg.JSON {
		return d.json(doneSum{name, dry, c[refcheck.Pinned], c[refcheck.Adopted], c[refcheck.Deleted], c[refcheck.Kept], d.bytes})
	}
	text := "%d pinned, %d adopted, %d deleted, of %d bytes; %d left as they are"
	if dry {
		text = "would be done: " + text
	}
	d.note(text, c[refcheck.Pinned], c[refcheck.Adopted], c[refcheck.Deleted], d.bytes, c[refcheck.Kept])
	return nil
}
