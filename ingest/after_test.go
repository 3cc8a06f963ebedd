package ingest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/spillway-mq/spillway/internal/lane"
)

// TestAMessageWaitsForAnotherLane: it is not taken in before what it comes after,
// and does not hold up what was read before it.
func TestAMessageWaitsForAnotherLane(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	old, big := s.group(lane.Default, 1)[0], s.group("big", 1)[0]
	s.topic("t")
	s.publish(old.ID, "t", "old 1")
	last := s.publish(old.ID, "t", "old 2")
	s.publish(big.ID, "t", "early")
	s.publish(big.ID, "t", "new", after(old, last))
	s.publish(big.ID, "t", "newer")
	s.start(big)
	s.eventually("what was read before is committed", func() bool { return s.checkpoint(big).Sequence == 1 })
	if got := s.values("t"); !slices.Equal(got, []string{"early"}) {
		t.Fatalf("%q", got)
	}
	if err := s.drain(old); err != nil {
		t.Fatal(err)
	}
	s.eventually("the rest is committed", func() bool { return s.checkpoint(big).Sequence == 3 })
	if got, want := s.values("t"), []string{"early", "old 1", "old 2", "new", "newer"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOnceDoesNotDrainWhatWaits: a run that ends at its deadline leaves a message
// that may not be taken in.
func TestOnceDoesNotDrainWhatWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	old, big := s.group(lane.Default, 1)[0], s.group("big", 1)[0]
	s.topic("t")
	last := s.publish(old.ID, "t", "old")
	s.publish(big.ID, "t", "new", after(old, last))
	stop := s.start(big)
	<-time.After(300 * time.Millisecond) // more than a look at whether it is drained
	stop()
	if c := s.checkpoint(big); c.Sequence != 0 || s.values("t") != nil && len(s.values("t")) > 0 {
		t.Errorf("%+v, %q", c, s.values("t"))
	}
}

// TestLanesDoNotWaitInARing: a topic that goes back and forth between lanes makes
// each wait for the other, and both get on.
func TestLanesDoNotWaitInARing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.group(lane.Default, 1)[0], s.group("big", 1)[0]
	s.topic("t")
	want := []string{}
	lanes, from := []int{0, 1, 0, 1, 0, 1, 1, 0}, after(a, s.publish(a.ID, "u", "x"))
	for i, n := range lanes {
		l := a
		if n == 1 {
			l = b
		}
		value := fmt.Sprint(i)
		want = append(want, value)
		from = after(l, s.publish(l.ID, "t", value, from))
	}
	s.start(b)
	s.start(a)
	s.eventually("all is committed", func() bool { return len(s.values("t")) == len(want) })
	if got := s.values("t"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHeadersThatLieHoldNothingUp: what never was, or was later, is not waited
// for; what cannot be read makes a record that is rejected.
func TestHeadersThatLieHoldNothingUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	old, big := s.group(lane.Default, 1)[0], s.group("big", 1)[0]
	s.topic("t")
	s.publish(old.ID, "t", "old")
	foreign := lane.After{Lane: lane.ID{Group: "nowhere", N: 3}, Incarnation: "abcdefgh", Sequence: 1}
	other := after(old, 1)
	other.Incarnation = "zyxwvuts"
	for name, a := range map[string]lane.After{
		"a lane that is not there": foreign, "another incarnation": other, "above its end": after(old, 2),
		"the same lane": after(big, 1), "its own future": after(big, 1000),
	} {
		s.publish(big.ID, "t", name, a)
	}
	for _, text := range []string{"", "x", "default.0", "default.0=../../x:1", strings.Repeat("default.0=abc:1,", 100)} {
		m := &nats.Msg{Subject: big.ID.Subject("t"), Header: nats.Header{lane.HeaderAfter: {text}}, Data: []byte("bad " + text)}
		if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	m := &nats.Msg{Subject: big.ID.Subject("t"), Header: nats.Header{lane.HeaderAfter: {other.String(), other.String()}}}
	if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := s.drain(big); err != nil {
		t.Fatal(err)
	}
	tp, err := s.store.Topic(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	r, err := tp.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	good, rejected := 0, 0
	for item, err := range r.Next(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case item.Rejected == "":
			good++
		case strings.Contains(item.Rejected, lane.HeaderAfter):
			rejected++
		default:
			t.Errorf("%q was rejected: %s", item.Value, item.Rejected)
		}
	}
	if good != 5 || rejected != 6 {
		t.Errorf("%d records, want 5; %d rejected, want 6", good, rejected)
	}
}

// TestControlMessagesHoldNoRecord: they hold a lane back, and leave nothing.
func TestControlMessagesHoldNoRecord(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	old, big := s.group(lane.Default, 1)[0], s.group("big", 1)[0]
	s.topic("t")
	last := s.publish(old.ID, "t", "old")
	s.publish(big.ID, lane.Control, "", after(old, last))
	s.publish(big.ID, "t", "new") // from a program that knows nothing of all this
	s.start(big)
	s.start(old)
	s.eventually("all is committed", func() bool { return s.checkpoint(big).Sequence == 2 })
	if got := s.values("t"); !slices.Equal(got, []string{"old", "new"}) {
		t.Errorf("%q", got)
	}
	if got := s.values("unrouted"); len(got) != 0 {
		t.Errorf("unrouted: %q", got)
	}
}

// TestALaneThatIsGoneIsNotWaitedFor, nor is one that was reset and lost what it
// had.
func TestALaneThatIsGoneIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	gone, big := s.group("gone", 1)[0], s.group("big", 1)[0]
	s.topic("t")
	last := s.publish(gone.ID, "t", "lost")
	s.publish(big.ID, "t", "new", after(gone, last))
	s.start(big)
	<-time.After(50 * time.Millisecond)
	if len(s.values("t")) != 0 {
		t.Fatal("it did not wait")
	}
	if err := lane.Remove(t.Context(), s.js, gone.ID); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is taken in", func() bool { return s.checkpoint(big).Sequence == 1 })
}
