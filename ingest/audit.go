package ingest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// What an audited Event can be.
const (
	EventReset   = "reset"      // the lane got a new incarnation
	EventGap     = "accept-gap" // messages that were lost are given up
	EventDeleted = "deleted"    // the lane was deleted with its group
)

// Event is what somebody did to a lane's incarnation by hand. It is written
// before it takes effect.
type Event struct {
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	What string    `json:"what"`
	From uint64    `json:"from"` // the checkpoint before
	To   uint64    `json:"to"`   // and after: of a reset, in the new incarnation
	// Successor is the incarnation that a reset made.
	Successor string `json:"successor,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

// Trail is the audit file of a source, beside its checkpoint. Events are only
// ever added.
type Trail struct {
	Source string  `json:"source"`
	Events []Event `json:"events"`
}

// maxEvents bounds a trail; the oldest events go first.
const maxEvents = 1000

const trailExt = ".audit"

func checkpointsDir(store *segment.Store) string { return path.Join(store.Root(), "checkpoints") }

func trailFile(store *segment.Store, source string) cursor.File[Trail] {
	return cursor.At[Trail](store.Filer, path.Join(checkpointsDir(store), source+trailExt))
}

// Audit reads what was done to a source by hand.
func Audit(ctx context.Context, store *segment.Store, source string) (Trail, error) {
	t, _, err := trailFile(store, source).Load(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		return Trail{Source: source, Events: []Event{}}, nil
	}
	return t, err
}

// addEvent writes an event. On nil it is as durable as a checkpoint.
func addEvent(ctx context.Context, store *segment.Store, source string, e Event) error {
	file := trailFile(store, source)
	e.At = e.At.UTC().Truncate(time.Millisecond)
	for {
		t, version, err := file.Load(ctx)
		switch {
		case errors.Is(err, filer.ErrNotFound):
			_, err = file.Create(ctx, Trail{Source: source, Events: []Event{e}})
		case err == nil:
			t.Events = append(t.Events, e)
			t.Events = t.Events[max(0, len(t.Events)-maxEvents):]
			_, err = file.Save(ctx, t, version)
		}
		if errors.Is(err, filer.ErrExists) || errors.Is(err, filer.ErrConflict) {
			continue // somebody else wrote one
		}
		if err != nil {
			return fmt.Errorf("audit of %s: %w", source, err)
		}
		return nil
	}
}

// Incarnations lists the incarnations of a lane that have a checkpoint, and are
// not known to have ended by hand.
func Incarnations(ctx context.Context, store *segment.Store, id lane.ID) ([]string, error) {
	prefix := id.Source("")
	var found []string
	ended := map[string]bool{}
	for after := prefix; ; {
		var page []filer.Entry
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			page, err = store.Filer.List(ctx, checkpointsDir(store), after, 0)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("incarnations of lane %s: %w", id, err)
		}
		for _, e := range page {
			after = e.Name()
			rest, ok := strings.CutPrefix(e.Name(), prefix)
			if !ok {
				page = nil
				break
			}
			if inc, ok := strings.CutSuffix(rest, ".json"); ok {
				found = append(found, inc)
			} else if inc, ok := strings.CutSuffix(rest, trailExt); ok {
				t, err := Audit(ctx, store, id.Source(inc))
				if err != nil {
					return nil, err
				}
				ended[inc] = t.ended()
			}
		}
		if len(page) == 0 {
			break
		}
	}
	var live []string
	for _, inc := range found {
		if !ended[inc] {
			live = append(live, inc)
		}
	}
	return live, nil
}

func (t Trail) ended() bool {
	for _, e := range t.Events {
		if e.What == EventDeleted || e.What == EventReset {
			return true
		}
	}
	return false
}
