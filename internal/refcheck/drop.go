package refcheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
)

const (
	// DropAge is how old an upload is before it is deleted, if nothing else is
	// said.
	DropAge = 24 * time.Hour
	// SafeAge is how old it must be for it to be certain that no producer is about
	// to name it: producers name uploads that are up to 12 hours old, and upload
	// older ones again. What is more is for clocks that differ, and for producers
	// that are slow.
	SafeAge = 13 * time.Hour
)

// Errors that say why an upload was left as it is.
var (
	// ErrNoOrphan: a rejected record names it, or somebody has a pin on it.
	ErrNoOrphan = errors.New("it is no orphan")
	// ErrElsewhere: the endpoint is not our filer's, and no endpoint deletes on
	// condition that nobody has begun to refer to the object.
	ErrElsewhere = errors.New("it is not on the filer, so that it cannot be deleted on condition that no worker pins it meanwhile; --force deletes it all the same")
	// ErrVersions: its bucket has versions.
	ErrVersions = errors.New("its bucket has versions; --force puts a delete marker on it")
	// ErrMoved: it is not as it was judged.
	ErrMoved = errors.New("it was changed or pinned meanwhile")
)

// Deleter deletes at an endpoint, without any condition that holds everywhere;
// *object.Store is one.
type Deleter interface {
	Delete(ctx context.Context, n object.Name, ifMatch string) error
}

// Dropper deletes uploads that no record names.
type Dropper struct {
	*Checker
	Call
	Remover filer.Remover // nil: there is none, and everything is elsewhere
	// Force: also what is elsewhere, by Deleter.
	Force   bool
	Deleter Deleter
	Logger  *slog.Logger
}

// Drop deletes the uploads below spillway/<topic>/ that are older than OlderThan,
// that no record names, rejected ones included, and that nobody has a pin on: each
// on condition that its entry on the filer is as it was judged. So whoever pins one
// at that moment has it, or does not find it any more.
//
// Only this package's callers know whether OlderThan is at least SafeAge.
func (d *Dropper) Drop(ctx context.Context) error {
	if err := d.ours(); err != nil {
		return err
	}
	if err := d.Settle(ctx); err != nil {
		return err
	}
	start := d.Now()
	d.thorough = true
	seen := map[string]bool{}
	var orphans []Finding
	d.Found = func(f Finding) error {
		if d.wants(f) {
			seen[f.URL] = true
			orphans = append(orphans, f)
		}
		return nil
	}
	r, err := d.check(ctx, false)
	if err == nil {
		err = r.judged()
	}
	if err != nil {
		return err
	}
	for _, f := range orphans {
		err := d.drop(ctx, f, start)
		if err != nil && !kept(err) {
			return fmt.Errorf("delete %s: %w", f.URL, err)
		}
		if err == nil && !d.DryRun {
			d.Logger.Info("deleted an upload that no record names", "topic", d.Topic.Name, "url", f.URL, "size", f.Size, "etag", f.info.ETag, "modified", f.Modified)
		}
		if err := d.tell(Deleted, f, err); err != nil {
			return err
		}
	}
	return d.notFound(seen, fmt.Sprintf("a record names it, or it is not older than %s, or it is not there", d.OlderThan))
}

// NotUploadError says that a URL names no upload of the topic.
type NotUploadError struct{ URL, Topic string }

func (e *NotUploadError) Error() string {
	return fmt.Sprintf("%.300q: only uploads of topic %q are dropped, which are below %s in its buckets", e.URL, e.Topic, Prefix(e.Topic))
}

// ours refuses URLs that are not of uploads.
func (d *Dropper) ours() error {
	for _, url := range d.URLs {
		if !d.isUpload(url) {
			return &NotUploadError{url, d.Topic.Name}
		}
	}
	return nil
}

// kept tells reasons to keep one upload from failures.
func kept(err error) bool {
	for _, known := range []error{ErrElsewhere, ErrVersions, ErrMoved, ErrClaimed, ErrNoOrphan, object.ErrForbidden, object.ErrChanged, object.ErrInvalid, filer.ErrReadOnly} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// Settled tells reasons to keep an upload for which nothing needs to be done from
// those that stand in the way of deleting an orphan.
func Settled(why error) bool {
	return errors.Is(why, ErrNoOrphan) || errors.Is(why, ErrMoved) || errors.Is(why, ErrClaimed)
}

// drop deletes one upload. It is looked at before its pins are: one that comes
// later changes what was looked at.
func (d *Dropper) drop(ctx context.Context, f Finding, start time.Time) error {
	if err := orphaned(f); err != nil {
		return err
	}
	if d.Remover == nil || d.Pins == nil {
		return d.elsewhere(ctx, f, ErrElsewhere)
	}
	o, err := d.find(ctx, f.name)
	switch {
	case errors.Is(err, filer.ErrNotFound), errors.Is(err, filer.ErrInvalid):
		return d.elsewhere(ctx, f, ErrElsewhere)
	case err != nil:
		return err
	case o.Size != f.Size || f.info.ETag != "" && o.ETag != f.info.ETag:
		return d.elsewhere(ctx, f, ErrElsewhere)
	case !o.MTime.Truncate(time.Second).Equal(f.Modified.Truncate(time.Second)):
		return ErrMoved // it was uploaded again
	case claimedSince(o, start.Add(-claimed)):
		return ErrClaimed
	}
	marks, here, err := d.marks(ctx, f.name)
	switch {
	case err != nil:
		return err
	case !here || len(marks) > 0:
		return ErrMoved
	case o.Name.Version != "":
		return d.elsewhere(ctx, f, ErrVersions)
	case d.DryRun:
		return nil
	}
	err = filer.Remove(ctx, d.Remover, o)
	switch {
	case errors.Is(err, filer.ErrConflict):
		return fmt.Errorf("%w: %w", ErrMoved, err)
	case errors.Is(err, filer.ErrInvalid):
		return d.elsewhere(ctx, f, ErrVersions)
	}
	return err
}

// orphaned says why an upload is no orphan.
func orphaned(f Finding) error {
	switch f.Kind {
	case Refused:
		return fmt.Errorf("%w: a rejected record names it", ErrNoOrphan)
	case Held:
		return fmt.Errorf("%w: it is pinned by %s", ErrNoOrphan, strings.Join(f.Pins, ", "))
	}
	return nil
}

// elsewhere deletes by the endpoint, if that is wanted in spite of why.
func (d *Dropper) elsewhere(ctx context.Context, f Finding, why error) error {
	switch {
	case !d.Force || d.Deleter == nil:
		return why
	case d.DryRun:
		return nil
	}
	return d.Deleter.Delete(ctx, f.name, f.info.ETag)
}
