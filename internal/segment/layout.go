package segment

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/topic"
)

func (t *Topic) layoutLog() *commitlog.Log {
	return t.store.log(path.Join(t.Dir(), "layout"), ".json")
}

// createLayout writes entry 0 of the layout log.
func (t *Topic) createLayout(ctx context.Context, l topic.Layout) error {
	if err := l.Validate(); err != nil {
		return err
	}
	data, err := cursor.Encode(l)
	if err != nil {
		return err
	}
	log := t.layoutLog()
	if err := log.Init(ctx); err != nil {
		return err
	}
	_, err = log.Append(ctx, commitlog.Entry{}, filer.File{ID: filer.NewID(), Content: data})
	return err
}

// Layout returns the layout in force: the last one that is not pending.
func (t *Topic) Layout(ctx context.Context) (topic.Layout, error) {
	layouts, err := t.Layouts(ctx)
	if err != nil {
		return topic.Layout{}, err
	}
	for i := len(layouts) - 1; i >= 0; i-- {
		if !layouts[i].Pending {
			return layouts[i], nil
		}
	}
	return topic.Layout{}, fmt.Errorf("%s: no layout in force: %w", t.layoutLog().Dir(), filer.ErrCorrupt)
}

// Layouts returns the whole history of layouts, oldest first.
func (t *Topic) Layouts(ctx context.Context) ([]topic.Layout, error) {
	var layouts []topic.Layout
	for e, err := range t.layoutLog().Entries(ctx, 0) {
		if err != nil {
			return nil, fmt.Errorf("layout of topic %q: %w", t.Name, err)
		}
		var l topic.Layout
		if err := json.Unmarshal(e.Content, &l); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", e.Path, filer.ErrCorrupt, err)
		}
		if err := l.Validate(); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", e.Path, filer.ErrCorrupt, err)
		}
		layouts = append(layouts, l)
	}
	if len(layouts) == 0 {
		return nil, fmt.Errorf("layout of topic %q is empty: %w", t.Name, filer.ErrCorrupt)
	}
	return layouts, nil
}
