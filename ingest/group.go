package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// CreateGroup makes the lanes of a group that are missing, s.Lanes in all, each
// with its checkpoint first, as OpenLane does. Any number may race, and an
// interrupted call is finished by another: lane 0, which is made first, decides
// how many there are. *lane.SizeError: it decided otherwise.
func CreateGroup(ctx context.Context, nc *nats.Conn, store *segment.Store, group string, s lane.Settings) ([]*JetStream, error) {
	if err := lane.CheckSize(group, s.Lanes); err != nil {
		return nil, err
	}
	var lanes []*JetStream
	for n := range s.Lanes {
		l, err := OpenLane(ctx, nc, store, lane.ID{Group: group, N: n}, s)
		if err != nil {
			return nil, err
		}
		if l.Lanes != s.Lanes {
			return nil, &lane.SizeError{Group: group, Want: s.Lanes, Has: l.Lanes}
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

// OpenGroup opens the lanes of a group that exists. lane.ErrNoLane and
// *lane.IncompleteError say that CreateGroup is needed.
func OpenGroup(ctx context.Context, nc *nats.Conn, group string) ([]*JetStream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	infos, err := lane.OpenGroup(ctx, js, group)
	if err != nil {
		return nil, err
	}
	if err := lane.EnsureCommitStream(ctx, js); err != nil {
		return nil, err
	}
	lanes := make([]*JetStream, len(infos))
	for i, info := range infos {
		lanes[i] = newJetStream(nc, js, info)
	}
	return lanes, nil
}

// ErrDefaultGroup says that the default group stays: topics use it unless they
// are told otherwise.
var ErrDefaultGroup = errors.New("the default lane group cannot be deleted")

// GroupInUseError says that topics are bound to a group.
type GroupInUseError struct {
	Group  string
	Topics []string
}

func (e *GroupInUseError) Error() string {
	shown := e.Topics[:min(len(e.Topics), 10)]
	return fmt.Sprintf("%d topics are bound to lane group %s (%s)", len(e.Topics), e.Group, strings.Join(shown, ", "))
}

// UncommittedError says that a lane holds messages that are not in files yet.
type UncommittedError struct {
	Lane     string
	Messages uint64
}

func (e *UncommittedError) Error() string {
	return fmt.Sprintf("lane %s holds %d messages that are not committed", e.Lane, e.Messages)
}

// DeleteGroup deletes the lanes of a group, unless a topic is bound to it
// (*GroupInUseError) or anything in it is not committed (*UncommittedError). It
// first makes the lanes refuse messages, so that none is acknowledged and then
// deleted; a call that was interrupted is finished by another. Checkpoints stay,
// with a note: segments name their sources for ever.
func DeleteGroup(ctx context.Context, js jetstream.JetStream, store *segment.Store, group, by string) error {
	if group == lane.Default {
		return ErrDefaultGroup
	}
	ids, err := lane.List(ctx, js, group)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return fmt.Errorf("lane group %s: %w", group, lane.ErrNoLane)
	}
	if err := unbound(ctx, js, store, group); err != nil {
		return err
	}
	for _, look := range []func(context.Context, jetstream.JetStream, lane.ID) (lane.Info, error){lane.Look, lane.Close} {
		if err := allCommitted(ctx, js, store, ids, look); err != nil {
			return err
		}
	}
	for _, id := range slices.Backward(ids) { // lane 0, which says how many there are, last
		info, err := lane.Look(ctx, js, id)
		if err != nil {
			return err
		}
		event := Event{At: time.Now(), By: by, What: EventDeleted, From: info.Last, To: info.Last}
		if err := addEvent(ctx, store, id.Source(info.Incarnation), event); err != nil {
			return err
		}
		if err := lane.Remove(ctx, js, id); err != nil {
			return err
		}
	}
	return nil
}

// unbound checks that no topic uses the group, by its definition or by what
// producers are told.
func unbound(ctx context.Context, js jetstream.JetStream, store *segment.Store, group string) error {
	used := map[string]bool{}
	defs, err := store.Topics(ctx)
	if err != nil {
		return err
	}
	for _, d := range defs {
		if d.Lanes == group {
			used[d.Name] = true
		}
	}
	bindings, err := lane.Bindings(ctx, js)
	if err != nil {
		return err
	}
	for name, b := range bindings {
		if b.Group != group || used[name] {
			continue
		}
		_, err := store.Topic(ctx, name)
		switch {
		case errors.Is(err, segment.ErrNoTopic): // what a deleted topic left behind
			if err := lane.Unbind(ctx, js, name); err != nil {
				return err
			}
		case err != nil && !errors.Is(err, segment.ErrDeleting):
			return err
		default:
			used[name] = true
		}
	}
	if len(used) == 0 {
		return nil
	}
	e := &GroupInUseError{Group: group}
	for name := range used {
		e.Topics = append(e.Topics, name)
	}
	slices.Sort(e.Topics)
	return e
}

// allCommitted compares lanes with their checkpoints, and opens them again if one
// holds more.
func allCommitted(ctx context.Context, js jetstream.JetStream, store *segment.Store, ids []lane.ID, look func(context.Context, jetstream.JetStream, lane.ID) (lane.Info, error)) error {
	for _, id := range ids {
		info, err := look(ctx, js, id)
		if err == nil {
			err = committed(ctx, store, info)
		}
		if err == nil {
			continue
		}
		for _, id := range ids {
			_, again := lane.Reopen(ctx, js, id)
			err = errors.Join(err, again)
		}
		return err
	}
	return nil
}

func committed(ctx context.Context, store *segment.Store, info lane.Info) error {
	c, _, err := store.CheckpointFile(info.ID.Source(info.Incarnation)).Load(ctx)
	if err != nil && !errors.Is(err, filer.ErrNotFound) {
		return err
	}
	if info.Last > c.Sequence {
		return &UncommittedError{info.ID.String(), info.Last - c.Sequence}
	}
	return nil
}
