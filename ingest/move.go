package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// ErrMovedMeanwhile says that somebody else bound the topic to another group at
// the same time. Moving it again settles where it goes.
var ErrMovedMeanwhile = errors.New("somebody else has moved the topic meanwhile")

// Move is a topic's change of lanes.
type Move struct {
	Topic string       `json:"topic"`
	From  []string     `json:"from"` // groups; empty: the topic was there already
	To    string       `json:"to"`
	After []lane.After `json:"-"` // what the old lanes held when producers were told
}

// MoveTopic binds a topic to another lane group, in this order: the topic's
// definition says so; a message in each of the new lanes says what the old lanes
// hold, so that workers take nothing that comes after it in before that is
// committed; producers are told. A call that was interrupted is finished by
// another. lane.ErrNoLane, *lane.IncompleteError: there is no such group.
//
// Producers that have not noticed go on in the old lanes, which is right as well:
// every lane carries every topic. Each producer keeps its own order by itself.
func MoveTopic(ctx context.Context, nc *nats.Conn, store *segment.Store, name, group string) (Move, error) {
	m := Move{Topic: name, From: []string{}, To: group}
	to, err := OpenGroup(ctx, nc, group)
	if err != nil {
		return m, err
	}
	js := to[0].js
	bound, err := lane.Bindings(ctx, js)
	if err != nil {
		return m, err
	}
	t, err := store.Topic(ctx, name)
	if err != nil {
		return m, err
	}
	was, err := store.SetLanes(ctx, name, group)
	if err != nil {
		return m, err
	}
	told := lane.Default
	if b, ok := bound[name]; ok {
		told = b.Group
	}
	for _, g := range []string{told, was} { // they differ when a move was interrupted
		if g != group && !slices.Contains(m.From, g) {
			m.From = append(m.From, g)
		}
	}
	if m.After, err = ends(ctx, js, m.From); err != nil {
		return m, err
	}
	if err := mark(ctx, js, to, m.After); err != nil {
		return m, err
	}
	return m, m.tell(ctx, js, store, lane.Binding{Group: group, Lanes: len(to), Topic: t.Incarnation})
}

// TellAgain moves to a group, and so tells producers of, the topics that are
// bound to it by their definitions and that producers take elsewhere: after the
// NATS server was lost, or a move was interrupted. It returns their names.
func TellAgain(ctx context.Context, nc *nats.Conn, store *segment.Store, group string) ([]string, error) {
	told := []string{}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	bound, err := lane.Bindings(ctx, js)
	if err != nil {
		return nil, err
	}
	defs, err := store.Topics(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range defs {
		if b, ok := bound[d.Name]; d.Lanes != group || d.Lanes == lane.Default || d.State != topic.StateLive || ok && b.Group == group {
			continue
		}
		if _, err := MoveTopic(ctx, nc, store, d.Name, group); err != nil {
			return told, err
		}
		told = append(told, d.Name)
	}
	return told, nil
}

// ends lists the last message of each lane of the groups.
func ends(ctx context.Context, js jetstream.JetStream, groups []string) ([]lane.After, error) {
	var afters []lane.After
	for _, g := range groups {
		lanes, err := lane.OpenGroup(ctx, js, g)
		if errors.Is(err, lane.ErrNoLane) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, l := range lanes {
			if l.Last > 0 {
				afters = append(afters, lane.After{Lane: l.ID, Incarnation: l.Incarnation, Sequence: l.Last})
			}
		}
	}
	return afters, nil
}

// mark puts a message into each lane that holds the lane's worker back until
// others have committed.
func mark(ctx context.Context, js jetstream.JetStream, lanes []*JetStream, afters []lane.After) error {
	for part := range slices.Chunk(afters, lane.MaxLanes) {
		for _, l := range lanes {
			msg := &nats.Msg{Subject: l.ID.Subject(lane.Control), Header: nats.Header{lane.HeaderAfter: {lane.FormatAfters(part)}}}
			if _, err := js.PublishMsg(ctx, msg, jetstream.WithExpectStream(l.ID.Stream())); err != nil {
				return fmt.Errorf("mark lane %s: %w", l.ID, err)
			}
		}
	}
	return nil
}

// tell changes the binding that producers follow.
func (m Move) tell(ctx context.Context, js jetstream.JetStream, store *segment.Store, b lane.Binding) error {
	var err error
	if b.Group == lane.Default {
		err = lane.Unbind(ctx, js, m.Topic)
	} else {
		err = lane.Bind(ctx, js, m.Topic, b)
	}
	if err != nil {
		return err
	}
	t, err := store.Topic(ctx, m.Topic)
	if err == nil && t.Lanes != m.To {
		err = fmt.Errorf("topic %q is bound to %s now: %w", m.Topic, t.Lanes, ErrMovedMeanwhile)
	}
	return err
}

// moveLook is how often Wait looks.
const moveLook = 100 * time.Millisecond

// Wait returns when all that the old lanes held is committed: nothing of the
// topic waits in them, but for what producers send there that have not noticed.
// A lane that was reset or deleted meanwhile is not waited for. behind, if not
// nil, is told now and then how many messages are left.
func (m Move) Wait(ctx context.Context, js jetstream.JetStream, store *segment.Store, behind func(uint64)) error {
	for {
		left := uint64(0)
		for _, a := range m.After {
			n, err := short(ctx, js, store, a)
			if err != nil {
				return err
			}
			left += n
		}
		if left == 0 {
			return nil
		}
		if behind != nil {
			behind(left)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d messages of the old lanes are not committed yet: %w", left, context.Cause(ctx))
		case <-time.After(moveLook):
		}
	}
}

// short is how many messages a lane's checkpoint is short of one.
func short(ctx context.Context, js jetstream.JetStream, store *segment.Store, a lane.After) (uint64, error) {
	c, _, err := store.CheckpointFile(a.Lane.Source(a.Incarnation)).Load(ctx)
	switch {
	case errors.Is(err, filer.ErrNotFound), err == nil && c.Sequence >= a.Sequence:
		return 0, nil
	case err != nil:
		return 0, err
	}
	info, err := lane.Look(ctx, js, a.Lane)
	if errors.Is(err, lane.ErrNoLane) || err == nil && info.Incarnation != a.Incarnation {
		return 0, nil
	}
	return a.Sequence - c.Sequence, err
}
