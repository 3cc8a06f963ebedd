package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/topic"
)

// layoutStep is an entry of the layout's log with the layout in force before it.
type layoutStep struct {
	topic.Layout
	err    error         // it cannot be read as a layout
	before *topic.Layout // nil: none that is known
}

func checkLayout(s layoutStep) string { return describe(s.err) }

// checkEdit: a layout changes by its edit and by nothing else, and keeps every
// slot where its segment or that segment's child is.
func checkEdit(s layoutStep) string {
	if s.err != nil || s.before == nil {
		return ""
	}
	if s.Pending {
		if !slices.Equal(s.Live, s.before.Live) {
			return "it is an intent, but its live segments are not those in force"
		}
		return ""
	}
	for _, live := range s.Live {
		if !slices.Contains(s.Edit.Children, live) && !slices.Contains(s.before.Live, live) {
			return fmt.Sprintf("segment %s with range %s is live, but no edit made it so", live.ID, live.Range)
		}
	}
	for _, old := range s.before.Live {
		if !slices.Contains(s.Live, old) && !slices.Contains(s.Edit.Parents, old.ID) {
			return fmt.Sprintf("segment %s is no longer live, but no edit ended it", old.ID)
		}
	}
	return ""
}

// child is a segment as the layout that made it describes it.
type child struct {
	topic.Live
	parents []topic.SegmentID
}

// history is what the layout's log says.
type history struct {
	segments []child // all that there ever were, by id
	inForce  *topic.Layout
	pending  map[topic.SegmentID]bool // parents of an edit under way
	broken   bool                     // a layout could not be read
}

func checkInForce(h *history) string {
	if h.inForce == nil && !h.broken {
		return "there is no layout in force"
	}
	return ""
}

func (v *verifier) layoutLog() *commitlog.Log {
	return commitlog.New(v.store.Filer, path.Join(v.topic.Dir(), "layout"), ".json")
}

// history reads and checks the layout's log. It is nil if there is nothing to
// go on with.
func (v *verifier) history(ctx context.Context) (*history, error) {
	h := &history{pending: map[topic.SegmentID]bool{}}
	log := v.layoutLog()
	for l, err := range v.walk(ctx, log, ".json", place{}) {
		if err != nil {
			return nil, err
		}
		step := layoutStep{before: h.inForce}
		if h.broken || l.e.N != l.expect {
			step.before = nil
		}
		if step.Layout, step.err = v.layout(ctx, l.e); step.err != nil && !definite(step.err) {
			return nil, step.err
		}
		run(v, v.checks.layout, place{path: l.e.Path}, step)
		h.take(step)
	}
	run(v, v.checks.history, place{path: log.Dir()}, h)
	v.broken = v.broken || h.broken
	if h.inForce == nil {
		return nil, nil
	}
	slices.SortFunc(h.segments, func(a, b child) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return h, nil
}

func (h *history) take(s layoutStep) {
	if s.err != nil {
		h.broken = true
		return
	}
	clear(h.pending)
	if s.Pending {
		for _, id := range s.Edit.Parents {
			h.pending[id] = true
		}
		return
	}
	h.inForce = &s.Layout
	for _, live := range s.Edit.Children {
		h.segments = append(h.segments, child{live, s.Edit.Parents})
	}
}

// layout reads one entry. Errors about the data match filer.ErrCorrupt.
func (v *verifier) layout(ctx context.Context, e commitlog.Entry) (l topic.Layout, err error) {
	data, err := v.content(ctx, e.Entry)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return l, fmt.Errorf("%w: %w", filer.ErrCorrupt, err)
	}
	if err := l.Validate(); err != nil {
		return l, fmt.Errorf("%w: %w", filer.ErrCorrupt, err)
	}
	return l, nil
}

// maxLayout bounds what is read of a layout.
const maxLayout = 64 << 20

func (v *verifier) content(ctx context.Context, e filer.Entry) (data []byte, err error) {
	if len(e.Blobs) == 0 {
		return e.Content, nil
	}
	err = filer.Retry(ctx, func(ctx context.Context) error {
		r, err := v.store.Filer.Open(ctx, e, 0)
		if err != nil {
			return err
		}
		defer r.Close() //nolint:errcheck // read-only
		data, err = io.ReadAll(io.LimitReader(r, maxLayout))
		return err
	})
	return data, err
}

// segmentFile is a segment.json with what the layout says of the segment.
type segmentFile struct {
	child
	got topic.Segment
	err error
}

// checkSegmentFile: the description is there and says what the layout says.
func checkSegmentFile(s segmentFile) string {
	switch {
	case s.err != nil:
		return s.err.Error()
	case s.got.ID != s.ID:
		return fmt.Sprintf("it describes segment %q", s.got.ID)
	case s.got.Range != s.Range:
		return fmt.Sprintf("its range is %s, the layout says %s", s.got.Range, s.Range)
	}
	for _, p := range s.got.Parents {
		if !slices.Contains(s.parents, p) {
			return fmt.Sprintf("it has the parent %s, which the layout does not know", p)
		}
	}
	return ""
}

// describedAs reads and checks a segment.json. Where it is wrong, what the
// layout says is gone on with.
func (v *verifier) describedAs(ctx context.Context, c child) (topic.Segment, error) {
	file := cursor.At[topic.Segment](v.store.Filer, path.Join(v.segmentDir(c.ID), "segment.json"))
	got, _, err := file.Load(ctx)
	if err != nil && !definite(err) {
		return got, err
	}
	s := segmentFile{c, got, err}
	run(v, v.checks.segment, place{path: file.Path(), segment: c.ID}, s)
	if checkSegmentFile(s) != "" {
		got = topic.Segment{Parents: c.parents}
	}
	got.ID, got.Range = c.ID, c.Range
	return got, nil
}

func (v *verifier) segmentDir(id topic.SegmentID) string {
	return path.Join(v.topic.Dir(), "segments", string(id))
}

// segmentEnd is a segment that has been read to its end.
type segmentEnd struct {
	live, pending, sealed bool
}

func checkSealLive(s segmentEnd) string {
	if s.sealed && s.live && !s.pending {
		return "it is sealed, but the layout has it live and no edit is under way"
	}
	return ""
}

func checkSealMissing(s segmentEnd) string {
	if !s.sealed && !s.live {
		return "it is not live any more, but it is not sealed either"
	}
	return ""
}

// end checks how a segment ends. An edit may have sealed it since the layout was
// read, so that is read again before a seal is called wrong.
func (v *verifier) end(ctx context.Context, h *history, id topic.SegmentID, sealed bool) error {
	isLive := func(l topic.Live) bool { return l.ID == id }
	s := segmentEnd{live: slices.ContainsFunc(h.inForce.Live, isLive), pending: h.pending[id], sealed: sealed}
	if s.live && s.sealed && !s.pending {
		l, err := v.topic.Layouts(ctx)
		if err != nil && !definite(err) {
			return err
		}
		for _, l := range l {
			s.pending = s.pending || slices.Contains(l.Edit.Parents, id)
		}
	}
	run(v, v.checks.end, place{path: v.segmentDir(id), segment: id}, s)
	return nil
}
