package verify

import (
	"context"
	"errors"
	"path"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
)

// trail is what was done to a source by hand: the file beside its checkpoint.
type trail struct {
	Events []event `json:"events"`
}

type event struct {
	What      string `json:"what"`
	From      uint64 `json:"from"`
	To        uint64 `json:"to"`
	Successor string `json:"successor"` // the incarnation that a reset made
}

// Events of trails that matter here.
const (
	eventReset   = "reset"      // To is where the successor's checkpoint began
	eventGap     = "accept-gap" // what lies above From, up to To, is given up
	eventDeleted = "deleted"    // with the lane's group
)

// trailOf reads the trail of a source. One that cannot be read explains nothing.
func (v *verifier) trailOf(ctx context.Context, source string) (trail, error) {
	file := cursor.At[trail](v.store.Filer, path.Join(v.store.Root(), "checkpoints", source+".audit"))
	t, _, err := file.Load(ctx)
	if err != nil && !errors.Is(err, filer.ErrNotFound) && !errors.Is(err, filer.ErrCorrupt) {
		return t, err
	}
	return t, nil
}

// givenUp tells whether somebody accepted that a message is lost. Some segments
// may have its rows, and others not.
func (t trail) givenUp(seq uint64) bool {
	for _, e := range t.Events {
		if e.What == eventGap && e.From < seq && seq <= e.To {
			return true
		}
	}
	return false
}

// readTrails takes from the trails of a lane's incarnations what explains its
// state. They are written before they take effect, so they are read after that.
func (v *verifier) readTrails(ctx context.Context, s *laneStep) error {
	sources := map[string]bool{}
	for source := range v.before {
		sources[source] = true
	}
	for source := range v.sources {
		sources[source] = true
	}
	s.deleted = true
	for source := range sources {
		if id, ok := laneOf(source); !ok || id != s.id {
			continue
		}
		t, err := v.trailOf(ctx, source)
		if err != nil {
			return err
		}
		ended := false
		for _, e := range t.Events {
			ended = ended || e.What == eventDeleted || e.What == eventReset
			if e.What == eventReset && e.Successor == s.state.Incarnation {
				s.since = max(s.since, e.To)
			}
		}
		s.deleted = s.deleted && ended
	}
	return nil
}
