package followup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Bounds of a topic's state. What does not fit into the open list is not looked at
// yet, and the watermark stays before it; of those given up, the last are kept.
const (
	MaxOpen    = 10_000
	MaxGivenUp = 1_000
)

// State is how far the pending references of a topic have been followed up: its
// refs.json, in the folder of its incarnation. Equal states have equal bytes.
type State struct {
	// Epoch is the layout up to which segments are known. One that a layout up to
	// it made, and that is not in Segments, has been looked through to its end.
	Epoch    uint64      `json:"epoch"`
	Segments []Watermark `json:"segments"` // by id
	Open     []Open      `json:"open"`     // by segment and offset, at most MaxOpen
	GivenUp  []GivenUp   `json:"given_up"` // the last MaxGivenUp, oldest first
	GaveUp   uint64      `json:"gave_up"`  // how many ever were
}

// Watermark is how far a segment has been looked through.
type Watermark struct {
	Segment topic.SegmentID `json:"segment"`
	Chunk   uint64          `json:"chunk"`  // number of the first that was not, or not to its end
	Offset  uint64          `json:"offset"` // of the first record that was not
}

// Open is a reference that was looked at and is not decided.
type Open struct {
	Segment topic.SegmentID `json:"segment"`
	Chunk   uint64          `json:"chunk"`
	Offset  uint64          `json:"offset"`
	// Since is when the endpoint first said that the object is not there, or cannot
	// be looked at. Until it says anything, Since is the last time that it was asked.
	Since time.Time `json:"since"`
	Tries int       `json:"tries"` // looks that had an answer
	Due   time.Time `json:"due"`   // for the next look
	// State and Reason are what the last look found.
	State  ref.State `json:"state"`
	Reason string    `json:"reason"`
}

// GivenUp is a reference that is looked at no more: it is wrong, or its object did
// not come in time. Its record is as it was, and its object has no pin of the topic
// by that record.
type GivenUp struct {
	Segment topic.SegmentID `json:"segment"`
	Offset  uint64          `json:"offset"`
	URL     string          `json:"url"` // its beginning, if it is long
	At      time.Time       `json:"at"`
	State   ref.State       `json:"state"`
	Reason  string          `json:"reason"`
}

// Bytes of texts that a state keeps.
const (
	maxURL    = 300
	maxReason = 200
)

const fileName = "refs.json"

func fileOf(s *segment.Store, t *segment.Topic) cursor.File[State] {
	return cursor.At[State](s.Filer, path.Join(t.Dir(), fileName))
}

// Load reads a topic's state. filer.ErrNotFound: nobody has followed it up yet.
// filer.ErrCorrupt: the file is none that is written here.
func Load(ctx context.Context, s *segment.Store, t *segment.Topic) (State, error) {
	state, _, err := load(ctx, fileOf(s, t))
	return state, err
}

func load(ctx context.Context, file cursor.File[State]) (State, cursor.Version, error) {
	state, version, err := file.Load(ctx)
	if err == nil {
		if err = state.check(); err != nil {
			err = fmt.Errorf("%s: %w: %w", file.Path(), filer.ErrCorrupt, err)
		}
	}
	if errors.Is(err, filer.ErrCorrupt) {
		err = fmt.Errorf("%w (delete it, and all that is pending is looked at again)", err)
	}
	return state, version, err
}

// check accepts states as they are kept.
func (s State) check() error {
	switch {
	case s.Segments == nil || s.Open == nil || s.GivenUp == nil:
		return errors.New("a list is missing") // and an empty one would mean that all is looked through
	case len(s.Open) > MaxOpen:
		return fmt.Errorf("%d references are open, at most %d can be", len(s.Open), MaxOpen)
	case len(s.GivenUp) > MaxGivenUp:
		return fmt.Errorf("it lists %d references as given up, at most %d can be", len(s.GivenUp), MaxGivenUp)
	case !ascending(s.Segments, func(a, b Watermark) int { return cmp.Compare(a.Segment, b.Segment) }):
		return errors.New("its segments are not in order")
	case !ascending(s.Open, Open.compare):
		return errors.New("its open references are not in order")
	}
	for _, w := range s.Segments {
		if badID(w.Segment) {
			return fmt.Errorf("%.60q is no segment", w.Segment)
		}
	}
	for _, o := range s.Open {
		if badID(o.Segment) {
			return fmt.Errorf("%.60q is no segment", o.Segment)
		}
	}
	return nil
}

// badID tells what would not be a folder of the topic's.
func badID(id topic.SegmentID) bool {
	return id == "" || len(id) > 100 || strings.Trim(string(id), "abcdefghijklmnopqrstuvwxyz0123456789-") != ""
}

func ascending[T any](list []T, compare func(a, b T) int) bool {
	for i := 1; i < len(list); i++ {
		if compare(list[i-1], list[i]) >= 0 {
			return false
		}
	}
	return true
}

// compare orders by place.
func (o Open) compare(p Open) int {
	return cmp.Or(cmp.Compare(o.Segment, p.Segment), cmp.Compare(o.Offset, p.Offset))
}

// next is when the first of the open references is due; zero if none is open.
func (s State) next() (next time.Time) {
	for _, o := range s.Open {
		if next.IsZero() || o.Due.Before(next) {
			next = o.Due
		}
	}
	return next
}

// settle replaces what was open at some places by what is open there now, and adds
// those that nobody looks at any more. Places are in order.
func (s *State) settle(places, open []Open, given []GivenUp) {
	s.Open = slices.DeleteFunc(s.Open, func(o Open) bool {
		_, found := slices.BinarySearchFunc(places, o, Open.compare)
		return found
	})
	s.Open = append(s.Open, open...)
	slices.SortFunc(s.Open, Open.compare)
	s.GivenUp = append(s.GivenUp, given...)
	if more := len(s.GivenUp) - MaxGivenUp; more > 0 {
		s.GivenUp = slices.Delete(s.GivenUp, 0, more)
	}
	s.GaveUp += uint64(len(given))
}

// clone shares nothing with s, and has no nil lists, so that bytes do not differ.
func (s State) clone() State {
	s.Segments = append([]Watermark{}, s.Segments...)
	s.Open = append([]Open{}, s.Open...)
	s.GivenUp = append([]GivenUp{}, s.GivenUp...)
	return s
}

// clip keeps a text of others short and on one line.
func clip(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, text), "\ufffd")
}
