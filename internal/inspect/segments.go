package inspect

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
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
	Bytes   uint64 `json:"bytes"`  // of the records, before compression

	// Data is what a compacted segment has become; nil: it is not. Its records are
	// counted above, also those whose chunks are gone.
	Data *Data `json:"data,omitempty"`

	First *time.Time `json:"first"` // append times of what is kept; nil: no records
	Last  *time.Time `json:"last"`

	// What was committed within the window, by the clocks of the workers that
	// did, over the window's length, or the time since the segment was made if
	// that is less.
	RecordRate float64 `json:"records_per_second"`
	ByteRate   float64 `json:"bytes_per_second"`
}

// Data is the data files of a compacted segment.
type Data struct {
	Files   int       `json:"files"`
	Rows    uint64    `json:"rows"`
	Bytes   int64     `json:"bytes"`   // of the files
	Records uint64    `json:"records"` // less than the segment's if some were given up
	Created time.Time `json:"created"`
	Table   string    `json:"table,omitempty"` // that names them, as the segment remembers
}

// Share of the key space, 0 to 1.
func (s Segment) Share() float64 { return float64(s.Range.Size()) / topic.Slots }

// Options say which segments to look at, and how.
type Options struct {
	Live, Sealed bool
	Window       time.Duration // of rates
	Now          time.Time
}

// Report is a topic's segments with the layout that they were found in.
type Report struct {
	Layout   topic.Layout
	Segments []Segment // parents before children, by range where that leaves a choice
}

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

// look reads one segment: its description, its first and last chunk, and where
// the window begins.
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
		State: StateLive, Next: tail.End(),
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
	data, err := compacted(ctx, s, tail)
	if err != nil {
		return out, err
	}
	if data != nil {
		if out.Data, err = dataOf(ctx, s, data); err != nil {
			return out, err
		}
		out.Oldest = min(data.Base, out.Oldest)
		out.Records = tail.End() - out.Oldest
	}
	if out.Records == 0 {
		return out, nil
	}
	err = measure(ctx, s, span{head, tail}, o, &out)
	if data != nil && err == nil {
		out.Bytes, out.First, out.Last = data.Bytes, &data.First, &data.Last
	}
	return out, err
}

// compacted is a segment's manifest, nil if it has none.
func compacted(ctx context.Context, s *segment.Segment, tail segment.Chunk) (*segment.Manifest, error) {
	if !tail.Sealed {
		return nil, nil
	}
	m, err := s.Manifest(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		return nil, nil
	}
	return &m, err
}

func dataOf(ctx context.Context, s *segment.Segment, m *segment.Manifest) (*Data, error) {
	d := &Data{Files: len(m.Files), Rows: m.Rows, Records: m.Records, Created: m.Created}
	for _, f := range m.Files {
		d.Bytes += f.Size
	}
	in, _, err := s.InTable(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		err = nil
	}
	d.Table = in.Table
	return d, err
}

// span is a segment's first and last entry.
type span struct{ head, tail segment.Chunk }

// measure fills in bytes, times and rates of a segment that has records. Chunks
// count on over the segment's life, so two of them tell what lies between.
func measure(ctx context.Context, s *segment.Segment, sp span, o Options, out *Segment) error {
	out.Bytes = sp.tail.ByteEnd() - sp.head.ByteBase
	last := sp.tail
	if last.Sealed && last.Entry.N > sp.head.Entry.N { // else no chunk is left
		var err error
		if last, err = numbered(ctx, s, sp.tail.Entry.N-1); err != nil {
			return err
		}
	}
	out.First, out.Last = &sp.head.First, &last.Last
	w := window{o.Now.Add(-o.Window), o.Now}.since(s.Created)
	within := func(c segment.Chunk) bool { return !c.Entry.MTime.Before(w.from) }
	if !within(sp.tail) {
		return nil
	}
	first, ok, err := firstWhere(ctx, s, sp.head.Entry.N, sp.tail.Entry.N, within)
	if err != nil || !ok {
		return err
	}
	out.RecordRate = float64(sp.tail.End()-first.Base) / w.seconds()
	out.ByteRate = float64(sp.tail.ByteEnd()-first.ByteBase) / w.seconds()
	return nil
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
