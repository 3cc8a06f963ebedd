package ingest_test

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/lane"
)

// TestTellAgain: what producers are told follows the definitions of topics, after
// a move that ended half way and after the loss of what they were told.
func TestTellAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group(lane.Default, 1)
	s.group("big", 2)
	for _, name := range []string{"t", "u", "v"} {
		s.topic(name)
	}
	for _, name := range []string{"t", "u"} {
		if _, err := s.store.SetLanes(t.Context(), name, "big"); err != nil {
			t.Fatal(err)
		}
	}
	if err := lane.Bind(t.Context(), s.js, "u", lane.Binding{Group: "big", Lanes: 2}); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{{"t"}, {}} {
		told, err := ingest.TellAgain(t.Context(), s.nc, s.store, "big")
		if err != nil || !slices.Equal(told, want) {
			t.Errorf("told of %q, %v; want %q", told, err, want)
		}
	}
	bound, err := lane.Bindings(t.Context(), s.js)
	if err != nil || len(bound) != 2 || bound["t"].Group != "big" || bound["t"].Lanes != 2 {
		t.Errorf("%+v, %v", bound, err)
	}
}

// TestMovesThatRace: whoever is not the last one is told so, unless both say the
// same in the end; a further move settles it.
func TestMovesThatRace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group(lane.Default, 1)
	s.group("a", 1)
	s.group("b", 2)
	s.topic("t")
	for range 10 {
		var g errgroup.Group
		for _, to := range []string{"a", "b", lane.Default} {
			g.Go(func() error {
				_, err := ingest.MoveTopic(t.Context(), s.nc, s.store, "t", to)
				if errors.Is(err, ingest.ErrMovedMeanwhile) {
					return nil
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := ingest.MoveTopic(t.Context(), s.nc, s.store, "t", "b"); err != nil {
			t.Fatal(err)
		}
		tp, err := s.store.Topic(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		bound, err := lane.Bindings(t.Context(), s.js)
		if err != nil || tp.Lanes != "b" || bound["t"].Group != "b" {
			t.Errorf("the definition says %s, producers are told %s, %v", tp.Lanes, bound["t"].Group, err)
		}
	}
}
