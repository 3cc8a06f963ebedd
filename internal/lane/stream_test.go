package lane

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

func TestEnsureMakesALane(t *testing.T) {
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	ctx := t.Context()
	if _, err := Open(ctx, js, testLane); !errors.Is(err, ErrNoLane) {
		t.Fatalf("Open before Ensure: %v, want ErrNoLane", err)
	}
	made, err := Ensure(ctx, js, testLane, small)
	if err != nil {
		t.Fatal(err)
	}
	want := Info{ID: testLane, Stream: "spillway-lane-default-0", Incarnation: made.Incarnation, Lanes: 1, First: 1, MaxBytes: 8 << 20}
	want.First = made.First // of an empty stream: 0 or 1, as the server likes
	if diff := cmp.Diff(want, made); diff != "" {
		t.Error(diff)
	}
	if len(made.Incarnation) != 8 {
		t.Errorf("incarnation %q", made.Incarnation)
	}
	for range 3 {
		if _, err := js.Publish(ctx, testLane.Subject("t"), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Ensure(ctx, js, testLane, Settings{MaxBytes: 1 << 20, Replicas: 1, Duplicates: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if again.Incarnation != made.Incarnation || again.MaxBytes != made.MaxBytes {
		t.Errorf("a second Ensure changed the lane: %+v, was %+v", again, made)
	}
	if again.First != 1 || again.Last != 3 || again.Bytes == 0 {
		t.Errorf("after three messages: %+v", again)
	}
}

func TestEnsureSettings(t *testing.T) {
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	id := ID{"big", 3}
	if _, err := Ensure(t.Context(), js, id, Settings{MaxBytes: 8 << 20, Lanes: 4}); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), id.Stream())
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	if !c.DenyDelete || c.DenyPurge || !c.AllowDirect || c.Duplicates != 2*time.Minute || c.MaxMsgSize != 1<<20 {
		t.Errorf("settings: %+v", c)
	}
	if diff := cmp.Diff([]string{"spillway.lane.big.3.*"}, c.Subjects); diff != "" {
		t.Error(diff)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Errorf("the trimmer cannot purge: %v", err)
	}
	if err := s.DeleteMsg(t.Context(), 1); err == nil {
		t.Error("a single message could be deleted")
	}
}

func TestAFullLaneKeepsWhatItHas(t *testing.T) {
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	if _, err := Ensure(t.Context(), js, testLane, Settings{MaxBytes: 4096}); err != nil {
		t.Fatal(err)
	}
	taken := uint64(0)
	for {
		_, err := js.Publish(t.Context(), testLane.Subject("t"), make([]byte, 1000))
		var api *jetstream.APIError
		if errors.As(err, &api) && api.ErrorCode == 10077 {
			break
		}
		if taken++; err != nil || taken > 4 {
			t.Fatalf("after %d messages: %v", taken, err)
		}
	}
	info, err := Open(t.Context(), js, testLane)
	if err != nil {
		t.Fatal(err)
	}
	if info.First != 1 || info.Last != taken || taken == 0 {
		t.Errorf("took %d, has %d to %d", taken, info.First, info.Last)
	}
}

func TestEnsureRace(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	for round := range 5 {
		id := ID{"race", round}
		got := make([]string, 8)
		start := make(chan struct{})
		var g errgroup.Group
		for i := range got {
			_, js := connect(t, s)
			g.Go(func() error {
				<-start
				info, err := Ensure(t.Context(), js, id, Settings{MaxBytes: 8 << 20, Lanes: 5})
				got[i] = info.Incarnation
				return err
			})
		}
		close(start)
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		for _, inc := range got {
			if inc != got[0] || inc == "" {
				t.Fatalf("round %d: incarnations %q", round, got)
			}
		}
	}
}

func TestUnfitStreams(t *testing.T) {
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	cases := map[string]struct {
		change func(*jetstream.StreamConfig)
		reason string
	}{
		"subjects":    {func(c *jetstream.StreamConfig) { c.Subjects = []string{"spillway.in.only"} }, "subjects"},
		"more":        {func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "other") }, "subjects"},
		"work queue":  {func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, "retention"},
		"discard old": {func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, "discards old"},
		"max age":     {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, "maximum age"},
		"per subject": {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }, "per subject"},
		"memory":      {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, "files"},
		"ttl":         {func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }, "expire"},
		"rollup":      {func(c *jetstream.StreamConfig) { c.AllowRollup = true }, "replace older"},
		"no ack":      {func(c *jetstream.StreamConfig) { c.NoAck = true }, "acknowledge"},
		"source":      {func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "elsewhere"}} }, "copies"},
		"transform": {func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: c.Subjects[0], Destination: "x.{{wildcard(1)}}"}
		}, "transforms"},
		"no incarnation": {func(c *jetstream.StreamConfig) { delete(c.Metadata, MetadataIncarnation) }, "spillway-incarnation"},
		"no size":        {func(c *jetstream.StreamConfig) { delete(c.Metadata, MetadataLanes) }, "spillway-lanes"},
		"bad size":       {func(c *jetstream.StreamConfig) { c.Metadata[MetadataLanes] = "x" }, "spillway-lanes"},
		"too small":      {func(c *jetstream.StreamConfig) { c.Metadata[MetadataLanes] = "2" }, "spillway-lanes"},
	}
	n := 2 // beyond a group of two
	for name, c := range cases {
		id := ID{"unfit", n}
		n++
		t.Run(name, func(t *testing.T) {
			cfg := streamConfig(id, Settings{MaxBytes: 8 << 20, Lanes: MaxLanes}.withDefaults())
			c.change(&cfg)
			if _, err := js.CreateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			_, err := Ensure(t.Context(), js, id, small)
			mismatch, ok := errors.AsType[*MismatchError](err)
			if !ok || len(mismatch.Reasons) != 1 || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("Ensure: %v, want one reason about %q", err, c.reason)
			}
		})
	}
}

// TestADefaultLaneTakesEvents: as does one that was made before lanes did, once it
// was opened by a worker; until then it takes records.
func TestADefaultLaneTakesEvents(t *testing.T) {
	ctx := t.Context()
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	old := streamConfig(testLane, small.withDefaults())
	old.Subjects = []string{"spillway.in.*"}
	if _, err := js.CreateStream(ctx, old); err != nil {
		t.Fatal(err)
	}
	was, err := Ensure(ctx, js, testLane, small)
	if err != nil || !was.NoEvents {
		t.Fatalf("a lane without S3 events: %+v, %v", was, err)
	}
	if _, err := js.Publish(ctx, EventSubject("t"), []byte("{}")); err == nil {
		t.Error("it takes events")
	}
	for range 2 {
		now, err := TakeEvents(ctx, js, testLane)
		if err != nil || now.NoEvents || now.Incarnation != was.Incarnation {
			t.Fatalf("mended: %+v, %v", now, err)
		}
	}
	s, err := js.Stream(ctx, testLane.Stream())
	if err != nil {
		t.Fatal(err)
	}
	reversed := s.CachedInfo().Config
	slices.Reverse(reversed.Subjects)
	if _, err := js.UpdateStream(ctx, reversed); err != nil {
		t.Fatal(err)
	}
	if now, err := Open(ctx, js, testLane); err != nil || now.NoEvents {
		t.Errorf("its subjects in another order: %+v, %v", now, err)
	}
	for seq, subject := range []string{EventSubject("t"), testLane.Subject("t")} {
		ack, err := js.Publish(ctx, subject, []byte("{}"))
		if err != nil || ack.Sequence != uint64(seq+1) {
			t.Errorf("%s: %v, %v", subject, ack, err)
		}
		if IsEvent(subject) != (seq == 0) || testLane.Topic(subject) != "t" {
			t.Errorf("%s: event %v of topic %q", subject, IsEvent(subject), testLane.Topic(subject))
		}
	}
	if _, err := Ensure(ctx, js, ID{"big", 0}, small); err != nil {
		t.Errorf("a lane of another group: %v", err)
	}
}

// TestEventsOfAnotherStream: a subject that somebody else has is not taken from
// them, and the lane goes on without.
func TestEventsOfAnotherStream(t *testing.T) {
	ctx := t.Context()
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	old := streamConfig(testLane, small.withDefaults())
	old.Subjects = []string{"spillway.in.*"}
	if _, err := js.CreateStream(ctx, old); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "mine", Subjects: []string{"spillway.s3.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := TakeEvents(ctx, js, testLane); err == nil {
		t.Error("no error")
	}
	if now, err := Open(ctx, js, testLane); err != nil || !now.NoEvents {
		t.Errorf("%+v, %v", now, err)
	}
}

func TestClosingKeepsBothSubjects(t *testing.T) {
	ctx := t.Context()
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	if _, err := Ensure(ctx, js, testLane, small); err != nil {
		t.Fatal(err)
	}
	if _, err := Close(ctx, js, testLane); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{EventSubject("t"), testLane.Subject("t")} {
		if _, err := js.Publish(ctx, subject, nil); err == nil {
			t.Errorf("a closed lane takes %s", subject)
		}
	}
	if _, err := TakeEvents(ctx, js, testLane); err != nil {
		t.Error(err)
	}
	if _, err := Open(ctx, js, testLane); err == nil {
		t.Error("taking events has opened a closed lane")
	}
	if _, err := Reopen(ctx, js, testLane); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{EventSubject("t"), testLane.Subject("t")} {
		if _, err := js.Publish(ctx, subject, nil); err != nil {
			t.Errorf("%s: %v", subject, err)
		}
	}
}

func TestASealedStreamIsUnfit(t *testing.T) {
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	cfg := streamConfig(testLane, small.withDefaults())
	s, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg = s.CachedInfo().Config
	cfg.Sealed = true
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), js, testLane); err == nil || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("Open: %v", err)
	}
}

func TestOpenWithoutServer(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	nc, js := connect(t, s)
	nc.Close()
	_, err := Ensure(t.Context(), js, testLane, small)
	if !errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, ErrNoLane) {
		t.Errorf("Ensure: %v", err)
	}
}

func TestTokens(t *testing.T) {
	seen := map[string]bool{}
	for range 10000 {
		tok := Token()
		if len(tok) != 8 || strings.Trim(tok, "abcdefghijklmnopqrstuvwxyz234567") != "" {
			t.Fatalf("token %q", tok)
		}
		seen[tok] = true
	}
	if len(seen) < 9999 { // one pair in 20,000 runs
		t.Errorf("%d different tokens of 10000", len(seen))
	}
}

func TestIDs(t *testing.T) {
	for _, id := range []ID{{Default, 0}, {"big", 17}} {
		got, err := ParseID(id.String())
		if err != nil || got != id {
			t.Errorf("ParseID(%q) = %v, %v", id, got, err)
		}
		if got := id.Topic(id.Subject("flights")); got != "flights" {
			t.Errorf("topic of %s: %q", id.Subject("flights"), got)
		}
	}
	for _, bad := range []string{"", "default", "default.", "default.x", "default.-1", ".0", "Default.0", "a.b.0", "a/b.0", "a.01", "a.+1"} {
		if id, err := ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) = %v", bad, id)
		}
	}
}
