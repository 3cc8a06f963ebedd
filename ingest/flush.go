package ingest

import (
	"time"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// What makes a flush full. A flush is what a worker holds in memory three times
// (one fills, one is encoded, one is committed), so these bound its memory.
const (
	maxTopicBytes  = 8 << 20  // of records of one topic
	maxFlushBytes  = 16 << 20 // of records
	maxFlushCount  = 400_000  // records; each costs an index entry of 40 bytes
	storedFlushAge = 50 * time.Millisecond
)

// flush is what a worker commits together: all records of the messages after
// the previous flush, up to and including message last.
type flush struct {
	share    int
	last     uint64
	lastTime time.Time       // of a lane's message
	rows     uint32          // of a backfill: rows of the object after last that are in the flush or before it
	tally    segment.Tally   // of a backfill
	topics   []*topicRecords // in order of first appearance
	index    map[string]*topicRecords
	seen     map[string]segment.Producer
	objects  *segment.ObjectTable // of S3 events that were taken; nil: of none
	refused  map[string]bool      // topics that messages named in vain
	looks    *looks               // at what the records refer to; nil: no references, or all have their verdict
	reread   map[string]bool      // topics whose settings were read again for a reference that they did not allow
	due      time.Time            // zero: nothing waits
	counts   Counts
	groups   []*group                 // to be appended
	settled  []*group                 // of which records were committed
	touched  map[topic.SegmentID]bool // that took in records of the flush, now or before it was read again
}

// topicRecords are the records of one topic in a flush, in source order.
type topicRecords struct {
	name  string
	set   *record.Set
	tried era // the layout by which they were last divided

	expand  []int  // which of the set refer to rows that are to become records
	dropped bool   // some of the set were committed before
	made    string // the incarnation in which there are jobs for those that are verified; empty: none are

	regrouped bool // that was not the first
}

// era is a layout of a topic.
type era struct {
	incarnation string
	epoch       uint64
}

// group is the records of a flush for one segment.
type group struct {
	topic    string
	segment  *segment.Segment
	set      *record.Set
	prepared *segment.Prepared
	outcome  segment.Outcome
	sealed   bool // the segment takes no records any more
}

// newFlush returns an empty flush of a worker that shares its memory with others,
// so many in all; 0 is one.
func newFlush(share int) *flush {
	return &flush{share: max(share, 1), index: map[string]*topicRecords{}, seen: map[string]segment.Producer{}, refused: map[string]bool{}, reread: map[string]bool{}, touched: map[topic.SegmentID]bool{}}
}

func (f *flush) empty() bool { return f.last == 0 }

// of returns the records of a topic, to append to.
func (f *flush) of(name string) *topicRecords {
	t := f.index[name]
	if t == nil {
		t = &topicRecords{name: name, set: &record.Set{}}
		f.index[name] = t
		f.topics = append(f.topics, t)
	}
	return t
}

// full tells whether no more messages should be added.
func (f *flush) full() bool {
	if f.looks != nil && len(f.looks.refs) >= maxFlushRefs/f.share {
		return true
	}
	total, count := 0, 0
	for _, t := range f.topics {
		if len(t.set.Data) >= maxTopicBytes/f.share {
			return true
		}
		total += len(t.set.Data)
		count += len(t.set.Recs)
	}
	return total >= maxFlushBytes/f.share || count >= maxFlushCount/f.share
}

// wait makes the flush due at the latest at a time.
func (f *flush) wait(until time.Time) {
	if f.due.IsZero() || until.Before(f.due) {
		f.due = until
	}
}

// route divides a topic's records by the layout, each part with as much memory as it
// needs. A single live segment takes them as they are.
func route(set *record.Set, l topic.Layout) (map[topic.SegmentID]*record.Set, error) {
	if len(set.Recs) == 0 {
		return nil, nil
	}
	if len(l.Live) == 1 {
		return map[topic.SegmentID]*record.Set{l.Live[0].ID: set}, nil
	}
	type part struct {
		set            *record.Set
		bytes, records int
	}
	parts := make([]part, len(l.Live))
	for _, r := range set.Recs {
		p := &parts[l.IndexOf(r.Slot)]
		p.bytes, p.records = p.bytes+int(r.Len), p.records+1
	}
	sets := map[topic.SegmentID]*record.Set{}
	for i := range parts {
		if p := &parts[i]; p.records > 0 {
			p.set = &record.Set{Data: make([]byte, 0, p.bytes), Recs: make([]record.Rec, 0, p.records)}
			sets[l.Live[i].ID] = p.set
		}
	}
	for _, r := range set.Recs {
		if err := parts[l.IndexOf(r.Slot)].set.Copy(set, r); err != nil {
			return nil, err
		}
	}
	return sets, nil
}
