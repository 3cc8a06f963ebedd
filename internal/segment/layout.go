package segment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/topic"
)

func (t *Topic) layoutLog() *commitlog.Log {
	return t.store.log(path.Join(t.Dir(), "layout"), ".json")
}

// createLayout makes the layout log and its entry 0.
func (t *Topic) createLayout(ctx context.Context, l topic.Layout) error {
	if err := t.layoutLog().Init(ctx); err != nil {
		return err
	}
	_, err := t.appendLayout(ctx, commitlog.Entry{}, l)
	return err
}

// appendLayout appends a layout after the given entry, and sees to it that a
// planner will look at the topic.
func (t *Topic) appendLayout(ctx context.Context, after commitlog.Entry, l topic.Layout) (commitlog.Entry, error) {
	if err := l.Validate(); err != nil {
		return commitlog.Entry{}, err
	}
	if err := t.wake(ctx); err != nil {
		return commitlog.Entry{}, err
	}
	data, err := cursor.Encode(l)
	if err != nil {
		return commitlog.Entry{}, err
	}
	f := filer.File{ID: filer.NewID(), Content: data}
	if len(data) > t.store.Inline {
		f.Content = nil
		err = filer.Retry(ctx, func(ctx context.Context) error {
			f.Blobs, err = filer.UploadParts(ctx, t.store.Filer, t.layoutLog().Dir(), data)
			return err
		})
		if err != nil {
			return commitlog.Entry{}, err
		}
	}
	entry, err := t.layoutLog().Append(ctx, after, f)
	var lost *commitlog.LostError
	if errors.As(err, &lost) {
		t.discard(ctx, f.Blobs)
	}
	if err == nil {
		t.seen.set(entry)
	}
	return entry, err
}

func (t *Topic) discard(ctx context.Context, blobs []filer.Blob) {
	for _, b := range blobs {
		if err := t.store.Filer.Discard(ctx, b); err != nil {
			t.store.Logger.Warn("could not delete an upload that is not needed", "topic", t.Name, "blob", b.ID, "err", err)
		}
	}
}

// Follow starts to look for the end of the layout log where another handle on the
// same topic has seen it, and counts on the marks that either of them writes. It
// is called before the handle is used for anything else.
func (t *Topic) Follow(old *Topic) {
	if old.Incarnation == t.Incarnation {
		t.seen.set(old.seen.get())
		t.woken = old.woken
	}
}

// layoutTail is the last entry of the layout log, found from the last one that
// this handle has seen.
func (t *Topic) layoutTail(ctx context.Context) (commitlog.Entry, error) {
	e, err := t.layoutLog().Tail(ctx, t.seen.get())
	if err != nil {
		return e, fmt.Errorf("layout of topic %q: %w", t.Name, err)
	}
	if e.ID == "" {
		return e, fmt.Errorf("layout of topic %q is empty: %w", t.Name, filer.ErrCorrupt)
	}
	t.seen.set(e)
	return e, nil
}

func (t *Topic) lastLayout(ctx context.Context) (commitlog.Entry, topic.Layout, error) {
	e, err := t.layoutTail(ctx)
	if err != nil {
		return e, topic.Layout{}, err
	}
	l, err := t.readLayout(ctx, e)
	return e, l, err
}

// Layout returns the last entry of the layout log. Its Live list is in force; if
// it is Pending, an edit is under way.
func (t *Topic) Layout(ctx context.Context) (topic.Layout, error) {
	_, l, err := t.lastLayout(ctx)
	return l, err
}

// Layouts returns the whole history of layouts, oldest first.
func (t *Topic) Layouts(ctx context.Context) ([]topic.Layout, error) {
	layouts, err := t.layoutsFrom(ctx, 0)
	if err == nil && len(layouts) == 0 {
		err = fmt.Errorf("layout of topic %q is empty: %w", t.Name, filer.ErrCorrupt)
	}
	return layouts, err
}

func (t *Topic) layoutsFrom(ctx context.Context, n uint64) ([]topic.Layout, error) {
	var layouts []topic.Layout
	for e, err := range t.layoutLog().Entries(ctx, n) {
		if err != nil {
			return nil, fmt.Errorf("layout of topic %q: %w", t.Name, err)
		}
		l, err := t.readLayout(ctx, e)
		if err != nil {
			return nil, err
		}
		layouts = append(layouts, l)
	}
	return layouts, nil
}

// maxLayout bounds what is read of a layout: far more than MaxLive segments take.
const maxLayout = 16 << 20

// readLayout reads and checks one entry. Errors about what is in it match
// filer.ErrCorrupt.
func (t *Topic) readLayout(ctx context.Context, e commitlog.Entry) (l topic.Layout, err error) {
	data := e.Content
	if len(e.Blobs) > 0 {
		err = filer.Retry(ctx, func(ctx context.Context) error {
			r, err := t.store.Filer.Open(ctx, e.Entry, 0)
			if err != nil {
				return err
			}
			defer r.Close() //nolint:errcheck // read-only
			data, err = io.ReadAll(io.LimitReader(r, maxLayout))
			return err
		})
		if err != nil {
			return l, fmt.Errorf("read %s: %w", e.Path, err)
		}
	}
	if err = json.Unmarshal(data, &l); err == nil {
		err = l.Validate()
	}
	if err == nil && l.Epoch != e.N {
		err = fmt.Errorf("it has the epoch %d", l.Epoch)
	}
	if err != nil {
		return l, fmt.Errorf("%s: %w: %w", e.Path, filer.ErrCorrupt, err)
	}
	return l, nil
}
