package inspect

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// State of a segment.
type State string

// Sealing is a live segment with its seal, or with an edit under way that will
// seal it: its children do not take records yet.
const (
	StateLive    State = "live"
	StateSealing State = "sealing"
	StateSealed  State = "sealed"
)

// Segment is what a segment holds and takes in.
type Segment struct {
	ID       topic.SegmentID   `json:"id"`
	Range    topic.Range       `json:"range"`
	State    State             `json:"state"`
	Epoch    uint64            `json:"epoch"` // of the layout that made it
	Parents  []topic.SegmentID `json:"parents"`
	Children []topic.SegmentID `json:"children"` // only where sealed ones are asked for

	Oldest  uint64 `json:"oldest"` // offset of the first record that is kept
	Next    uint64 `json:"next"`   // offset that the next record gets, or would have got
	Records uint64 `json:"records"`
	Chunks  uint64 `json:"chunks"` // with records, that is without the seal
	// Bytes is the size of the records before compression: of all chunks if
	// Exact, else estimated from the mean record of the last recentChunks.
	Bytes uint64 `json:"bytes"`
	Exact bool   `json:"bytes_exact"`

	First *time.Time `json:"first"` // append times of what is kept; nil: no records
	Last  *time.Time `json:"last"`

	// Over the window, or since the segment was made if that is less. Records
	// are counted to the chunk; bytes are estimated as above if the window
	// holds more than the last recentChunks.
	RecordRate float64 `json:"records_per_second"`
	ByteRate   float64 `json:"bytes_per_second"`
}

// Share of the key space, 0 to 1.
func (s Segment) Share() float64 { return float64(s.Range.Size()) / topic.Slots }

// Options say which segments to look at, and how.
type Options struct {
	Live, Sealed bool
	Exact        bool          // read the attributes of every chunk
	Window       time.Duration // of rates
	Now          time.Time
}

// Report is a topic's segments with the layout that they were found in.
type Report struct {
	Layout   topic.Layout
	Segments []Segment // parents before children, by range where that leaves a choice
}

// recentChunks is how many chunks of a segment are read for its mean record.
const recentChunks = 8

// lookParallel is how many segments are looked at at a time.
const lookParallel = 32

// Segments looks at a topic's segments. segment.ErrNoTopic and
// segment.ErrDeleting: it was deleted meanwhile.
func (t *Topic) Segments(ctx context.Context, o Options) (Report, error) {
	members, layout, err := t.members(ctx, o)
	if err != nil {
		return Report{}, t.gone(ctx, err)
	}
	r := Report{Layout: layout, Segments: make([]Segment, len(members))}
	g, looking := errgroup.WithContext(ctx)
	g.SetLimit(lookParallel)
	for i, m := range members {
		g.Go(func() error {
			return whileTrimmed(func() (err error) {
				r.Segments[i], err = t.look(looking, m, o)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return Report{}, t.gone(ctx, err)
	}
	for i := range r.Segments {
		s := &r.Segments[i]
		if s.State == StateLive && layout.Pending && slices.Contains(layout.Edit.Parents, s.ID) {
			s.State = StateSealing
		}
	}
	return r, nil
}

// members lists the segments that are asked for. The history of layouts is read
// only if sealed ones are.
func (t *Topic) members(ctx context.Context, o Options) (list []segment.Member, layout topic.Layout, err error) {
	if !o.Sealed {
		layout, err := t.Layout(ctx)
		for _, live := range layout.Live {
			list = append(list, segment.Member{Live: live})
		}
		return list, layout, err
	}
	l, err := t.Lineage(ctx)
	if err != nil {
		return nil, layout, err
	}
	for _, m := range l.Members {
		if o.Live || len(m.Children) > 0 {
			list = append(list, m)
		}
	}
	return list, l.Layout, nil
}

// look reads one segment: its description, its tail, its first chunk and its
// last ones.
func (t *Topic) look(ctx context.Context, m segment.Member, o Options) (Segment, error) {
	s, err := t.near.Segment(ctx, m.ID)
	if err != nil {
		return Segment{}, err
	}
	tail, err := s.Tail(ctx)
	if err != nil {
		return Segment{}, err
	}
	out := Segment{
		ID: s.ID, Range: s.Range, Epoch: s.Epoch, Parents: s.Parents, Children: m.Children,
		State: StateLive, Next: tail.End(), Exact: true,
	}
	switch {
	case len(m.Children) > 0:
		out.State = StateSealed
	case tail.Sealed:
		out.State = StateSealing
	}
	if out.Children == nil {
		out.Children = []topic.SegmentID{}
	}
	if tail.Entry.ID == "" {
		return out, nil // nothing was ever appended
	}
	head, err := chunkAt(ctx, s, 0)
	if err != nil {
		return Segment{}, err
	}
	out.Oldest, out.Records, out.Chunks = head.Base, tail.End()-head.Base, tail.Entry.N-head.Entry.N+1
	if tail.Sealed {
		out.Chunks--
	}
	if out.Records == 0 {
		return out, nil
	}
	err = t.measure(ctx, s, span{head, tail}, o, &out)
	return out, err
}

// span is a segment's first and last entry.
type span struct{ head, tail segment.Chunk }

// measure fills in bytes, times and rates.
func (t *Topic) measure(ctx context.Context, s *segment.Segment, sp span, o Options, out *Segment) error {
	from := sp.head.Entry.N
	if !o.Exact && sp.tail.Entry.N-from >= recentChunks {
		from = sp.tail.Entry.N - recentChunks + 1
	}
	all, err := t.tally(ctx, s, from, sp.tail.Entry.N)
	if err != nil {
		return err
	}
	out.Bytes, out.Exact = all.bytes, from == sp.head.Entry.N
	if !out.Exact && all.records > 0 {
		out.Bytes = scale(all.bytes, out.Records, all.records)
	}
	out.First = &sp.head.First
	if n := len(all.recent); n > 0 {
		out.Last = &all.recent[n-1].Last
	}
	w := window{o.Now.Add(-o.Window), o.Now}.since(s.Created)
	records, bytes, err := taken(ctx, s, sp.head.Entry.N, all.recent, w)
	out.RecordRate, out.ByteRate = float64(records)/w.seconds(), float64(bytes)/w.seconds()
	return err
}

// tally is what chunks hold together, and the last of them.
type tally struct {
	records, bytes uint64
	recent         []segment.Chunk
}

// tally reads the chunks with records from..to.
func (t *Topic) tally(ctx context.Context, s *segment.Segment, from, to uint64) (all tally, err error) {
	if to-from > 4*recentChunks {
		if s, err = t.Segment(ctx, s.ID); err != nil { // long pages
			return all, err
		}
	}
	for c, err := range s.Chunks(ctx, from) {
		if err != nil {
			return tally{}, err
		}
		if !c.Sealed && c.Entry.N <= to {
			c.Entry.Content = nil
			all.records += c.Count
			all.bytes += c.Bytes
			all.recent = append(all.recent[max(0, len(all.recent)-recentChunks+1):], c)
		}
		if c.Entry.N >= to {
			break
		}
	}
	return all, nil
}

func sum(chunks []segment.Chunk) (records, bytes uint64) {
	for _, c := range chunks {
		records += c.Count
		bytes += c.Bytes
	}
	return records, bytes
}

// scale is bytes * records / of, without overflow.
func scale(bytes, records, of uint64) uint64 {
	return uint64(float64(bytes) / float64(of) * float64(records))
}

// window is a stretch of time.
type window struct{ from, to time.Time }

// since is the window without what lies before a segment was made.
func (w window) since(created time.Time) window {
	if created.After(w.from) {
		w.from = created
	}
	return w
}

// seconds is the window's length, at least 1.
func (w window) seconds() float64 { return max(1, w.to.Sub(w.from).Seconds()) }

// taken counts what a segment took in within a window. Chunks from head on are
// looked at one by one only where the recent ones do not reach back to its start.
func taken(ctx context.Context, s *segment.Segment, head uint64, recent []segment.Chunk, w window) (records, bytes uint64, err error) {
	within := func(c segment.Chunk) bool { return !c.Last.Before(w.from) }
	inside := recent
	for len(inside) > 0 && !within(inside[0]) {
		inside = inside[1:]
	}
	records, bytes = sum(inside)
	if len(inside) == 0 || len(inside) < len(recent) || inside[0].Entry.N == head {
		return records, bytes, nil
	}
	first, ok, err := firstWhere(ctx, s, head, inside[0].Entry.N-1, within)
	if err != nil || !ok {
		return records, bytes, err
	}
	all := recent[len(recent)-1].End() - first.Base
	return all, scale(bytes, all, records), nil
}
