package compactor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
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
	m, err := w.watched(ctx)
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
	// Chunks that were mended meanwhile are not to be left out.
	now, err := quarantineOf(ctx, p.Segment)
	if err == nil && !slices.Equal(dropOf(now), dropOf(p.quarantine)) {
		err = errors.New("what is given up of it was changed meanwhile; it is compacted anew")
	}
	if err != nil {
		return err
	}
	if err := v.orphaned(ctx, p, m); err != nil {
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
	p.fresh = true
	v.rewrote(p)
	return nil
}

// orphaned tells of data files of records whose chunks are gone, though there is no
// manifest: it was lost, and with another one in its place they would be garbage.
func (v *visit) orphaned(ctx context.Context, p *part, m segment.Manifest) error {
	if m.Base == 0 {
		return nil
	}
	there, err := v.files(ctx, p)
	if err != nil {
		return err
	}
	for name := range there {
		if first, ok := firstOffset(name); ok && first < m.Base {
			return &damage{
				place{n: m.Seal, path: p.DataPath(name), first: first, last: m.Base - 1},
				fmt.Errorf("%w: the chunks below offset %d are gone, and %s, which says what data files took their place, is lost: restore it", filer.ErrCorrupt, m.Base, path.Join(p.dir, "manifest.json")),
			}
		}
	}
	return nil
}

// firstOffset is the offset that the name of a data file begins with.
func firstOffset(name string) (uint64, bool) {
	digits, _, _ := strings.Cut(name, "-")
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, err == nil
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

// forget deletes what was made of segments whose topic was deleted meanwhile: nobody
// else will.
func (v *visit) forget(parts ...*part) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.hard), forgetWithin)
	defer cancel()
	remove := func(path string) error {
		return filer.Retry(ctx, func(ctx context.Context) error { return v.Store.Filer.Delete(ctx, path, "") })
	}
	for _, p := range parts {
		dead, err := v.dead(ctx, p)
		if dead && err == nil {
			err = filer.Retry(ctx, func(ctx context.Context) error { return v.Store.Filer.DeleteTree(ctx, p.DataDir()) })
			for _, name := range []string{"manifest.json", "table.json", "quarantine.json"} {
				err = errors.Join(err, remove(path.Join(p.dir, name)))
			}
			err = errors.Join(err, remove(v.leasePath()))
		}
		if err != nil {
			v.Logger.Warn("could not delete the data files of a topic that was deleted", "topic", v.topic.Name, "folder", p.DataDir(), "err", err)
		}
	}
}

// dead tells whether a segment was deleted. That its topic is not found is a hint (rule
// 1): a filer that is being restored may say so. Deleting a topic takes the head of
// each log first, then the descriptions, and one that is made again has another folder.
func (v *visit) dead(ctx context.Context, p *part) (bool, error) {
	for _, name := range []string{"head", "segment.json"} {
		err := filer.Retry(ctx, func(ctx context.Context) error {
			_, err := v.Store.Filer.Lookup(ctx, path.Join(p.dir, name))
			return err
		})
		if !errors.Is(err, filer.ErrNotFound) {
			return false, err
		}
	}
	return true, nil
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
