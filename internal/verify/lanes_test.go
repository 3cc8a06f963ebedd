package verify

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
)

// fakeLanes are lanes in memory.
type fakeLanes struct {
	state    map[lane.ID]LaneState
	missing  map[lane.ID]error
	messages map[lane.ID][]Message // of the topic
	times    map[uint64]time.Time  // of any message; else as the fixture makes them
	gone     map[uint64]bool
}

var laneA, laneB = lane.ID{Group: "default", N: 0}, lane.ID{Group: "big", N: 1}

// feed gives the fixture the lanes that its rows came from.
func (f *fixture) feed() *fakeLanes {
	f.lanes = &fakeLanes{
		state:    map[lane.ID]LaneState{laneA: {"aaaaaaaa", 2, 14}, laneB: {"bbbbbbbb", 1, 6}},
		missing:  map[lane.ID]error{},
		messages: map[lane.ID][]Message{},
		times:    map[uint64]time.Time{}, gone: map[uint64]bool{},
	}
	for id, last := range map[lane.ID]int{laneA: 14, laneB: 6} {
		source := map[lane.ID]string{laneA: sourceA, laneB: sourceB}[id]
		for seq := 2; seq <= last; seq++ {
			if id == laneA && seq == 5 {
				continue // for another topic
			}
			f.lanes.send(id, source, seq)
		}
	}
	return f.lanes
}

func (l *fakeLanes) send(id lane.ID, source string, seq int) {
	m := Message{Sequence: uint64(seq), Time: began.Add(time.Duration(seq) * time.Second), Header: map[string][]string{}, Data: []byte("plain")}
	if seq%4 != 3 {
		m.Data = binary.AppendVarint(nil, 6)
		m.Header["Spillway-Batch"] = []string{"1"}
		m.Header["Spillway-Producer"] = []string{"producer-" + source}
		m.Header["Spillway-Sequence"] = []string{fmt.Sprint(seq)}
	}
	l.messages[id] = append(l.messages[id], m)
	slices.SortFunc(l.messages[id], func(a, b Message) int { return cmp.Compare(a.Sequence, b.Sequence) })
}

func (l *fakeLanes) State(_ context.Context, id lane.ID) (LaneState, error) {
	return l.state[id], l.missing[id]
}

func (l *fakeLanes) TimeOf(_ context.Context, _ lane.ID, seq uint64) (time.Time, error) {
	if l.gone[seq] {
		return time.Time{}, ErrNoMessage
	}
	if at, ok := l.times[seq]; ok {
		return at, nil
	}
	return began.Add(time.Duration(seq) * time.Second), nil
}

func (l *fakeLanes) Messages(_ context.Context, id lane.ID, topic string, to uint64) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for _, m := range l.messages[id] {
			if m.Sequence > to || topic != "flights" || !yield(m, nil) {
				return
			}
		}
	}
}
