package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// produce publishes batches and plain messages; a batch is sometimes sent
// again, as after a lost acknowledgement. It fills w.lost when the lane goes back.
func (w *world) produce(ctx context.Context) {
	back := int(w.dice.roll("back at") % simMessages)
	for i := range simMessages {
		time.Sleep(w.dice.span(120*time.Millisecond, "produce", i))
		if ctx.Err() != nil {
			return
		}
		m := w.message(i)
		server := w.servers[w.dice.roll("lane", i)%uint64(len(w.servers))]
		server.publish(m)
		if m.Header[lane.HeaderBatch] != nil && w.dice.chance(200, "again", i) {
			time.Sleep(w.dice.span(1500*time.Millisecond, "again after", i))
			server.publish(m)
		}
		if w.goBack && i == back {
			for _, m := range w.servers[0].goBack(1 + int(w.dice.roll("back by")%8)) {
				for _, v := range rowsOf(m) {
					w.lost[v] = true
				}
			}
			w.stats.back.Add(1)
		}
	}
}

// message is the i-th message: a batch of producer i%3, or a plain one.
func (w *world) message(i int) Message {
	m := Message{Topic: w.topics[w.dice.roll("topic", i)%4], Header: map[string][]string{}}
	key := func(row int) []byte { return fmt.Appendf(nil, "k%d", w.dice.roll("key", i, row)%simKeys) }
	switch kind := w.dice.roll("kind", i) % 10; {
	case kind < 3:
		m.Data = fmt.Appendf(nil, "m%d.0", i)
		m.Header[lane.HeaderKey] = []string{string(key(0))}
	case kind == 3:
		m.Data = fmt.Appendf(nil, "m%d.0", i)
		m.Header[lane.HeaderBatch] = []string{"7"} // rejected: no such version
		m.Header[lane.HeaderProducer] = []string{fmt.Sprintf("p%d", i)}
		m.Header[lane.HeaderSequence] = []string{"1"}
	default:
		rows := 1 + int(w.dice.roll("rows", i)%5)
		var data []byte
		for row := range rows {
			var err error
			r := record.Record{Key: key(row), Ref: w.simRef(i, row)}
			if r.Ref == nil {
				r.Value = fmt.Appendf(nil, "m%d.%d", i, row)
			}
			data, err = record.AppendMessage(data, &r)
			if err != nil {
				panic(err)
			}
		}
		var err error
		if m.Data, err = record.EncodeBatch(nil, record.CodecNull, rows, data); err != nil {
			panic(err)
		}
		m.Header[lane.HeaderBatch] = []string{"1"}
		m.Header[lane.HeaderCodec] = []string{record.CodecNull}
		m.Header[lane.HeaderProducer] = []string{fmt.Sprintf("p%d", i%3)}
		m.Header[lane.HeaderSequence] = []string{strconv.Itoa(i/3 + 1)}
	}
	return m
}

// spot is where a lane has a record.
type spot struct {
	lane int
	at   uint64
}

// accepted is what must be read: of each producer's batch the first that the
// lane holds, with the position it has there.
func (w *world) accepted() (values map[string]spot) {
	values = map[string]spot{}
	for l, server := range w.servers {
		for _, m := range server.archive {
			for row, v := range rowsOf(m) {
				if _, again := values[v]; !again {
					values[v] = spot{l, m.Sequence<<8 | uint64(row)}
				}
			}
		}
	}
	return values
}

// rowsOf lists the values of a message's records.
func rowsOf(m Message) []string {
	if v := m.Header[lane.HeaderBatch]; len(v) == 0 || v[0] != "1" {
		return []string{string(m.Data)}
	}
	records, err := record.DecodeBatch(record.Meta{Sequence: m.Sequence, Time: m.Time}, record.CodecNull, m.Data)
	if err != nil {
		panic(err)
	}
	var values []string
	for _, r := range records {
		values = append(values, simValue(r))
	}
	return values
}

type found struct {
	where string
	// order is within what the record comes after those before it: its key, or,
	// if it has none by which it is routed, its segment.
	order string
	value string
}

// read is everything readable of each topic, parents before children: what was
// read before it was trimmed, and what is there.
func (w *world) read(ctx context.Context, s *segment.Store) ([][]found, error) {
	var all [][]found
	for _, name := range w.topics {
		t, err := s.Topic(ctx, name)
		if errors.Is(err, segment.ErrNoTopic) && name == topic.Unrouted {
			continue
		}
		if err != nil {
			return nil, err
		}
		segments, err := t.Segments(ctx)
		if err != nil {
			return nil, err
		}
		var list []found
		for _, seg := range segments {
			records, err := w.segment(ctx, seg)
			if err != nil {
				return nil, err
			}
			for _, offset := range slices.Sorted(maps.Keys(records)) {
				if offset > 0 {
					if _, ok := records[offset-1]; !ok {
						return nil, fmt.Errorf("segment %s: offset %d is missing", seg.ID, offset-1)
					}
				}
				if err := w.checkRef(records[offset]); err != nil {
					return nil, fmt.Errorf("%s %s@%d: %w", t.Name, seg.ID, offset, err)
				}
				list = append(list, w.found(t, seg, offset, records[offset])...)
			}
		}
		all = append(all, list)
	}
	return all, nil
}

// found is the records that the producers sent as one that is read: a message
// that named no topic stands in "unrouted" as a whole.
func (w *world) found(t *segment.Topic, seg *segment.Segment, offset uint64, r record.Record) []found {
	f := found{fmt.Sprintf("%s %s@%d", t.Name, seg.ID, offset), string(seg.ID), simValue(r)}
	if t.Key != topic.KeyNone && r.Key != nil && (r.Rejected == "" || r.Ref != nil) {
		f.order = "key " + string(r.Key)
	}
	if t.Name != topic.Unrouted {
		return []found{f}
	}
	w.stats.unrouted.Add(1)
	var list []found
	for _, server := range w.servers {
		for _, m := range server.sent {
			if string(m.Data) == string(r.Value) {
				for _, v := range rowsOf(m) {
					f.value = v
					list = append(list, f)
				}
				return list
			}
		}
	}
	return []found{f}
}

func (w *world) segment(ctx context.Context, seg *segment.Segment) (map[uint64]record.Record, error) {
	records := map[uint64]record.Record{}
	maps.Copy(records, w.trimmed[string(seg.ID)])
	for c, err := range seg.Chunks(ctx, 0) {
		if err != nil {
			return nil, err
		}
		offset := c.Base
		for r, err := range seg.Records(ctx, c) {
			if err != nil {
				return nil, err
			}
			if old, ok := records[offset]; ok && simValue(old) != simValue(r) {
				return nil, fmt.Errorf("segment %s: offset %d was %q and is %q", seg.ID, offset, simValue(old), simValue(r))
			}
			records[offset] = r
			offset++
		}
	}
	return records, nil
}

// check compares what is readable with what the lane accepted: each once, and
// per key in lane order.
func (w *world) check(ctx context.Context, s *segment.Store) error {
	for _, p := range w.fs.Problems() {
		if strings.Contains(p, "discard") || strings.Contains(p, "names too") {
			return fmt.Errorf("the filer noticed: %s", p)
		}
	}
	want := w.accepted()
	excuses := w.acceptedRows(want)
	got, err := w.read(ctx, s)
	if err != nil {
		return err
	}
	seen := map[string]string{}
	for _, records := range got {
		last := map[string]spot{} // per key and lane
		for _, r := range records {
			v := r.value
			at, held := want[v]
			if !held && !w.lost[v] {
				return fmt.Errorf("%s: %q was never sent", r.where, v)
			}
			if other, twice := seen[v]; twice {
				return fmt.Errorf("%q is both at %s and at %s", v, other, r.where)
			}
			seen[v] = r.where
			if !held {
				continue // committed before the lane lost it
			}
			key := fmt.Sprint(at.lane, r.order)
			if at.at <= last[key].at {
				return fmt.Errorf("%s: %q of lane %d, %s, comes after a later one", r.where, v, at.lane, r.order)
			}
			last[key] = at
		}
	}
	for _, v := range slices.Sorted(maps.Keys(want)) {
		if excuse, excused := excuses[v]; seen[v] == "" && (!excused || excuse != "" && seen[excuse] == "") {
			return fmt.Errorf("%q was accepted by the lane and cannot be read", v)
		}
	}
	w.noteEnds(seen)
	return nil
}
