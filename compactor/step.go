package compactor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// rewrite makes data files and a manifest of a segment, if it can be read.
func (v *visit) rewrite(ctx context.Context, p *part) {
	if p.quarantine.Reason != "" && !v.mended(ctx, p) {
		v.report.Quarantined++
		v.progress.Done++
		return
	}
	if !send(ctx, v.slot, struct{}{}) {
		v.report.Cut = true
		return
	}
	defer func() { <-v.slot }()
	start := v.Now()
	w := &rewriter{part: p, visit: v, drop: dropOf(p.quarantine)}
	m, err := w.rewrite(ctx)
	if err == nil {
		err = v.publish(ctx, p, m)
	}
	v.progress.Done++
	if err == nil {
		v.progress.Records, v.progress.Rows, v.progress.Bytes = v.progress.Records+w.records, v.progress.Rows+w.rows, v.progress.Bytes+w.bytes
		delete(v.seat.later, p.ID)
		v.Metrics.rewrote(v.Now().Sub(start))
		return
	}
	v.failed(ctx, p, err)
}

// publish creates the manifest. Whoever was first has the one that counts, and the files
// that nobody names then are swept.
func (v *visit) publish(ctx context.Context, p *part, m segment.Manifest) error {
	if err := v.stillThere(); err != nil {
		return err
	}
	got, err := p.CreateManifest(ctx, m)
	if err != nil {
		return err
	}
	p.manifest = &got
	if err := p.lookCompacted(ctx); err != nil {
		return err
	}
	if p.quarantine.Reason != "" || len(p.quarantine.Drop) > 0 {
		if err := p.LiftQuarantine(ctx, p.quarantine); err != nil && !errors.Is(err, filer.ErrConflict) {
			return err
		}
	}
	if !got.Created.Equal(m.Created) || !slices.Equal(got.Files, m.Files) {
		v.Logger.Info("somebody else compacted the segment meanwhile", "topic", v.topic.Name, "segment", p.ID)
		return v.sweep(ctx, p)
	}
	v.rewrote(p)
	return nil
}

// rewrote counts a segment that has its manifest now.
func (v *visit) rewrote(p *part) {
	m, size := p.manifest, uint64(0)
	for _, f := range m.Files {
		size += uint64(f.Size)
	}
	r := &v.report
	r.Compacted++
	r.Records, r.Rows, r.Bytes = r.Records+m.Records, r.Rows+m.Rows, r.Bytes+m.Bytes
	r.Files, r.FileBytes = r.Files+len(m.Files), r.FileBytes+size
	v.Logger.Info("compacted a segment", "topic", v.topic.Name, "segment", p.ID, "records", m.Records, "rows", m.Rows,
		"bytes", m.Bytes, "files", len(m.Files), "file_bytes", size, "dropped", len(m.Dropped))
}

// failed decides what it means that a segment was not rewritten.
func (v *visit) failed(ctx context.Context, p *part, err error) {
	if ctx.Err() != nil {
		v.report.Cut = true
		return
	}
	if gone := v.stillThere(); gone != nil {
		v.forget(p)
		return // the visit ends with it
	}
	// Chunks go once there is a manifest, under whoever reads them.
	if m, err := p.Manifest(ctx); err == nil {
		p.manifest = &m
		if err := errors.Join(p.lookCompacted(ctx), v.sweep(ctx, p)); err != nil {
			v.fault(fmt.Errorf("segment %s: %w", p.ID, err))
		}
		return
	}
	var bad *damage
	var wait *postponedError
	switch {
	case errors.As(err, &wait):
		v.postpone(p, wait)
	case errors.As(err, &bad) && unreadable(bad.err):
		v.quarantine(ctx, p, bad.place, bad.err)
		v.later(p.ID, err)
	case pathOf(err) != "":
		v.quarantine(ctx, p, place{}, err)
		v.later(p.ID, err)
	default:
		v.later(p.ID, err)
		v.fault(fmt.Errorf("segment %s: %w", p.ID, err))
	}
}

// forget deletes what was made for a topic that was deleted meanwhile: nobody else will.
func (v *visit) forget(p *part) {
	fs := v.Store.Filer
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.hard), forgetWithin)
	defer cancel()
	err := filer.Retry(ctx, func(ctx context.Context) error { return fs.DeleteTree(ctx, p.DataDir()) })
	manifest := path.Join(p.dir, "manifest.json")
	err = errors.Join(err, filer.Retry(ctx, func(ctx context.Context) error { return fs.Delete(ctx, manifest, "") }))
	if err != nil {
		v.Logger.Warn("could not delete the data files of a topic that was deleted", "topic", v.topic.Name, "folder", p.DataDir(), "err", err)
	}
}

// clear deletes what was written into the folder of a topic after that was deleted.
func (v *visit) clear(gone error) {
	if !errors.Is(gone, segment.ErrNoTopic) {
		return // whoever deletes it is not done yet
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.hard), forgetWithin)
	defer cancel()
	if err := filer.Retry(ctx, func(ctx context.Context) error { return v.Store.Filer.DeleteTree(ctx, v.topic.Dir()) }); err != nil {
		v.Logger.Warn("could not delete what is left of a topic that was deleted", "topic", v.topic.Name, "folder", v.topic.Dir(), "err", err)
	}
}

const forgetWithin = 5 * time.Second

// Times after which a segment is tried again that could not be rewritten: they double.
const (
	laterFirst = time.Minute
	laterMost  = time.Hour
)

// later puts a segment off.
func (v *visit) later(id topic.SegmentID, err error) {
	l := v.seat.later[id]
	l.err, l.tries = err, l.tries+1
	l.at = v.Now().Add(min(laterFirst<<min(l.tries-1, 10), laterMost))
	v.seat.later[id] = l
	v.report.at(l.at)
}

// postpone leaves a segment whose batch references cannot be read.
func (v *visit) postpone(p *part, wait *postponedError) {
	if v.seat.later[p.ID].tries == 0 {
		v.Logger.Warn("a segment with batch references is not compacted yet", "topic", v.topic.Name, "segment", p.ID, "err", wait)
	}
	v.later(p.ID, wait)
	v.waits(wait)
}

// waits counts a segment that is left for its batch references.
func (v *visit) waits(wait *postponedError) {
	if wait.elsewhere {
		v.report.Elsewhere++
		return
	}
	v.report.Postponed++
	v.report.silent(wait, v.Now())
}

// mayTry tells whether a segment's time has come. It has, whenever somebody asks for
// all, or for this one, and when what was wrong with it can be looked at cheaply.
func (v *visit) mayTry(p *part) bool {
	l, put := v.seat.later[p.ID]
	if !put || v.all || v.only != "" || !v.Now().Before(l.at) {
		return true
	}
	v.report.at(l.at)
	var wait *postponedError
	switch {
	case errors.As(l.err, &wait):
		v.waits(wait)
	case p.quarantine.Reason != "" && p.cheap():
		return true
	case p.quarantine.Reason != "":
		v.report.Quarantined++
	}
	return false
}
