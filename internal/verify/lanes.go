package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// ErrNoMessage tells that a lane does not hold the message that was asked for.
var ErrNoMessage = errors.New("no such message in the lane")

// LaneState is what a lane holds.
type LaneState struct {
	Incarnation string
	First, Last uint64 // sequences; Last may be First-1
}

// Message is one message of a lane.
type Message struct {
	Sequence uint64
	Time     time.Time
	Header   map[string][]string
	Data     []byte
}

// Lanes is how the lanes are looked at. [JetStream] is the real one.
type Lanes interface {
	// State looks a lane up; lane.ErrNoLane and *lane.MismatchError are typed.
	State(ctx context.Context, id lane.ID) (LaneState, error)
	// TimeOf is the time of a message, or ErrNoMessage.
	TimeOf(ctx context.Context, id lane.ID, sequence uint64) (time.Time, error)
	// Messages yields a topic's messages that are still in the lane, in order,
	// up to and including sequence to.
	Messages(ctx context.Context, id lane.ID, topic string, to uint64) iter.Seq2[Message, error]
}

// laneStep is a lane with its checkpoint.
type laneStep struct {
	id         lane.ID
	state      LaneState
	stateErr   error
	used       bool   // the topic has records from it
	deleted    bool   // on purpose, as the trails of its incarnations say
	since      uint64 // what lies up to it was committed in an earlier incarnation
	checkpoint segment.Checkpoint
	missing    bool // there is no checkpoint for the incarnation
	witness    time.Time
	witnessErr error
}

func checkStream(s laneStep) string {
	if s.stateErr == nil || !s.used || s.deleted && errors.Is(s.stateErr, lane.ErrNoLane) {
		return ""
	}
	return fmt.Sprintf("the topic has records from it, but %v", s.stateErr)
}

// checkIncarnation: the lane is one that a checkpoint was made for (rules 15 and
// 17).
func checkIncarnation(s laneStep) string {
	if s.stateErr != nil || !s.missing {
		return ""
	}
	return fmt.Sprintf("the lane has the incarnation %q, for which there is no checkpoint", s.state.Incarnation)
}

func (s laneStep) comparable() bool { return s.stateErr == nil && !s.missing }

// checkLaneBack: the checkpoint is not above what was ever in the lane.
func checkLaneBack(s laneStep) string {
	if !s.comparable() || s.checkpoint.Sequence <= s.state.Last {
		return ""
	}
	return fmt.Sprintf("its checkpoint is %d, but its last message is %d", s.checkpoint.Sequence, s.state.Last)
}

// checkWitness: the last committed message is still there, and the same; unless it
// is accepted that it is not.
func checkWitness(s laneStep) string {
	switch {
	case !s.comparable() || s.checkpoint.Gap || s.checkpoint.Sequence == 0 || s.checkpoint.Sequence > s.state.Last:
		return ""
	case s.witnessErr != nil:
		return fmt.Sprintf("message %d, its witness: %v", s.checkpoint.Sequence, s.witnessErr)
	case !s.witness.Equal(s.checkpoint.Witness):
		return fmt.Sprintf("message %d, its witness, has the time %s, its checkpoint says %s", s.checkpoint.Sequence, stamp(s.witness), stamp(s.checkpoint.Witness))
	}
	return ""
}

// laneOf reads a lane's id from the name of a source, "lane.group.n.incarnation".
func laneOf(source string) (lane.ID, bool) {
	parts := strings.Split(source, ".")
	if len(parts) != 4 || parts[0] != "lane" {
		return lane.ID{}, false
	}
	id, err := lane.ParseID(parts[1] + "." + parts[2])
	return id, err == nil
}

// feeds looks at every lane that has a checkpoint: any may carry any topic.
func (v *verifier) feeds(ctx context.Context) error {
	used := map[lane.ID]bool{}
	for source := range v.before {
		if id, ok := laneOf(source); ok {
			used[id] = false
		}
	}
	for source := range v.sources {
		if id, ok := laneOf(source); ok {
			used[id] = true
		}
	}
	ids := make([]lane.ID, 0, len(used))
	for id := range used {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b lane.ID) int { return strings.Compare(a.String(), b.String()) })
	for _, id := range ids {
		if err := v.feed(ctx, id, used[id]); err != nil || v.full() {
			return errors.Join(err, v.err)
		}
	}
	return nil
}

func (v *verifier) feed(ctx context.Context, id lane.ID, used bool) error {
	s, err := v.look(ctx, id)
	if err != nil {
		return err
	}
	s.used = used
	if err := v.readTrails(ctx, &s); err != nil {
		return err
	}
	ok := run(v, v.checks.lane, place{path: id.Stream()}, s)
	if !ok || !s.comparable() {
		return nil
	}
	source := id.Source(s.state.Incarnation)
	return v.messages(ctx, s, source, min(s.state.Last, v.before[source].Sequence))
}

// look compares a lane with its checkpoint. While messages are committed and
// trimmed the witness moves on, so a look that a move spoils is repeated.
func (v *verifier) look(ctx context.Context, id lane.ID) (laneStep, error) {
	for s := (laneStep{id: id}); ; {
		s.state, s.stateErr = v.lanes.State(ctx, id)
		var unfit *lane.MismatchError
		if s.stateErr != nil {
			if errors.Is(s.stateErr, lane.ErrNoLane) || errors.As(s.stateErr, &unfit) {
				return s, nil
			}
			return s, s.stateErr
		}
		source := id.Source(s.state.Incarnation)
		var err error
		s.checkpoint, err = v.loadCheckpoint(ctx, source)
		s.missing = errors.Is(err, filer.ErrNotFound)
		if err != nil && !definite(err) || s.missing || s.checkpoint.Sequence == 0 {
			return s, ifUnknown(err)
		}
		s.witness, s.witnessErr = v.lanes.TimeOf(ctx, id, s.checkpoint.Sequence)
		if s.witnessErr != nil && !errors.Is(s.witnessErr, ErrNoMessage) {
			return s, s.witnessErr
		}
		if now := v.fresh(ctx, source); v.err != nil || now == s.checkpoint.Position() {
			return s, v.err
		}
	}
}

// ifUnknown drops errors that are about the data.
func ifUnknown(err error) error {
	if err == nil || definite(err) {
		return nil
	}
	return err
}

// messageStep is a message at or below the checkpoint that is still in its lane.
type messageStep struct {
	m         Message
	source    string
	committed uint64 // rows that are in the topic
	rejected  bool   // the first one is
	excused   bool   // it need not be there
}

// checkCommitted: the checkpoint is not above what is committed.
func checkCommitted(s messageStep) string {
	if s.committed > 0 || s.excused {
		return ""
	}
	return fmt.Sprintf("message %d of source %s lies below the checkpoint, but none of it is in the topic", s.m.Sequence, s.source)
}

// checkRowCount: all rows of a message are there, or the one that rejects it.
func checkRowCount(s messageStep) string {
	want := rowsIn(s.m)
	if s.committed == 0 || s.committed == want || s.committed == 1 && s.rejected {
		return ""
	}
	return fmt.Sprintf("message %d of source %s has %d rows, %d are in the topic", s.m.Sequence, s.source, want, s.committed)
}

// rowsIn is how many rows a message has, by the first number of its batch.
func rowsIn(m Message) uint64 {
	if m.Header[lane.HeaderBatch] == nil {
		return 1
	}
	n, size := binary.Varint(m.Data)
	if size <= 0 || n < 1 {
		return 1
	}
	return uint64(n)
}

// messages holds what is still in the lane against what is in the topic.
func (v *verifier) messages(ctx context.Context, in laneStep, name string, to uint64) error {
	if to == 0 {
		return nil
	}
	src := v.sources[name]
	if src == nil {
		src = &source{name: name}
	}
	var open []Message // that are not in the topic, without their data
	at, next := place{path: v.topic.Dir()}, 0
	for m, err := range v.lanes.Messages(ctx, in.id, v.topic.Name, to) {
		if err != nil {
			return err
		}
		if m.Sequence <= max(src.known, in.since) {
			continue // some of its records were trimmed, or have another source
		}
		s := messageStep{m: m, source: name}
		s.committed, next = src.rowsOf(m.Sequence, next)
		if _, s.rejected = slices.BinarySearch(src.rejected, m.Sequence); s.committed == 0 {
			if !v.excused(src, m) {
				open = append(open, Message{Sequence: m.Sequence, Time: m.Time, Header: m.Header})
			}
			continue
		}
		if run(v, v.checks.message, at, s); v.full() {
			return nil
		}
	}
	return v.uncommitted(ctx, name, open)
}

// uncommitted judges messages that are not in the topic.
func (v *verifier) uncommitted(ctx context.Context, source string, open []Message) error {
	if len(open) == 0 {
		return nil
	}
	sequences, batches, err := v.unrouted(ctx, source)
	if err != nil {
		return err
	}
	for _, m := range open {
		s := messageStep{m: m, source: source, excused: sequences[m.Sequence]}
		if hash, ok := identity(m.Header); ok {
			s.excused = s.excused || batches[hash]
		}
		if run(v, v.checks.message, place{path: v.topic.Dir()}, s); v.full() {
			return nil
		}
	}
	return nil
}

// excused tells whether a message need not be in this topic: it was sent before
// the topic was made (an earlier one of its name may have had it), or it was a
// batch's second copy.
func (v *verifier) excused(s *source, m Message) bool {
	if m.Time.Before(v.topic.Created) {
		return true
	}
	hash, ok := identity(m.Header)
	if !ok {
		return false
	}
	_, copied := slices.BinarySearch(s.batches, hash)
	return copied
}

// unrouted finds a source's messages, and the identities of their batches, that
// were committed to the system topic for those that named no topic: this one did
// not exist yet, or was seen so late. What cannot be read of it excuses nothing.
func (v *verifier) unrouted(ctx context.Context, source string) (sequences, batches map[uint64]bool, err error) {
	sequences, batches = map[uint64]bool{}, map[uint64]bool{}
	if v.topic.Name == topic.Unrouted {
		return sequences, batches, nil
	}
	t, err := v.store.Topic(ctx, topic.Unrouted)
	if errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrDeleting) {
		return sequences, batches, nil
	}
	if err != nil {
		return sequences, batches, ifUnknown(err)
	}
	segments, err := t.Segments(ctx)
	if err != nil {
		return sequences, batches, ifUnknown(err)
	}
	collect := func(r *record.Record) {
		sequences[r.Position.Sequence] = true
		for _, hash := range identities(r) {
			batches[hash] = true
		}
	}
	for _, seg := range segments {
		if err := ifUnknown(recordsOf(ctx, seg, source, collect)); err != nil {
			return nil, nil, fmt.Errorf("topic %q: %w", topic.Unrouted, err)
		}
	}
	return sequences, batches, nil
}
