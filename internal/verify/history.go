package verify

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/topic"
)

// child is a segment as the layout that made it describes it.
type child struct {
	topic.Live
	by   *topic.Layout // without its live segments
	last bool          // of those that the edit makes
}

// history is what the layout's log says.
type history struct {
	segments []child // all that there ever were, parents before children
	inForce  *topic.Layout
	live     map[topic.SegmentID]bool // by inForce
	intent   *topic.Layout            // the last entry, if it is one
	// named are the segments that edits make, or intend to make, and ended those
	// that they end, with the times of the edits.
	named   map[topic.SegmentID]bool
	ended   map[topic.SegmentID]time.Time
	pending map[topic.SegmentID]bool // parents of an edit under way
	made    map[topic.SegmentID]bool // the ids of segments
	next    uint64                   // number of the entry to come
	trimmed uint64                   // number of the first entry, if there were some before
	broken  bool                     // a layout could not be read
}

func checkInForce(h *history) string {
	switch {
	case h.trimmed > 0:
		return fmt.Sprintf("it was trimmed: the layouts before %d are gone, and with them what is known of segments", h.trimmed)
	case h.inForce == nil && !h.broken:
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
	h := &history{
		named: map[topic.SegmentID]bool{}, ended: map[topic.SegmentID]time.Time{},
		pending: map[topic.SegmentID]bool{}, made: map[topic.SegmentID]bool{},
	}
	log := v.layoutLog()
	var prev *topic.Layout
	for l, err := range v.walk(ctx, log, ".json", place{}) {
		if err != nil {
			return nil, err
		}
		if l.prev == nil {
			h.trimmed = l.expect
		}
		if l.e.N != l.expect {
			prev = nil
		}
		step := layoutStep{n: l.e.N, prev: prev, first: l.e.N == 0, made: h.made}
		if step.Layout, step.err = v.layout(ctx, l.e); step.err != nil && !definite(step.err) {
			return nil, step.err
		}
		run(v, v.checks.layout, place{path: l.e.Path}, step)
		h.next = l.e.N + 1
		if prev = nil; step.err != nil {
			h.broken, h.intent = true, nil
			continue
		}
		h.take(step.Layout, l.e.N)
		prev = &step.Layout
	}
	run(v, v.checks.history, place{path: log.Dir()}, h)
	v.broken = v.broken || h.broken || h.trimmed > 0
	if h.inForce == nil {
		return nil, nil
	}
	h.live = make(map[topic.SegmentID]bool, len(h.inForce.Live))
	for _, l := range h.inForce.Live {
		h.live[l.ID] = true
	}
	return h, nil
}

// take goes on to the entry with number n, which is the epoch whatever it says.
func (h *history) take(l topic.Layout, n uint64) {
	clear(h.pending)
	for _, id := range l.Edit.Parents {
		if _, before := h.ended[id]; !before {
			h.ended[id] = l.At
		}
		h.pending[id] = l.Pending
	}
	for _, c := range l.Edit.Children {
		h.named[c.ID] = true
	}
	if l.Pending {
		h.intent = &l
		return
	}
	h.inForce, h.intent = &l, nil
	by := &topic.Layout{Epoch: n, At: l.At, Edit: l.Edit}
	for _, c := range l.Edit.Children {
		if !h.made[c.ID] {
			h.made[c.ID] = true
			h.segments = append(h.segments, child{Live: c, by: by})
		}
	}
	if n := len(h.segments); n > 0 {
		h.segments[n-1].last = true
	}
}

// later reads what has been added to the layout's log since, without judging it.
func (v *verifier) later(ctx context.Context, h *history) error {
	for e, err := range v.entries(ctx, v.layoutLog(), ".json", h.next) {
		if err != nil {
			return err
		}
		h.next = e.N + 1
		l, err := v.layout(ctx, e)
		if err != nil && !definite(err) {
			return err
		}
		for _, id := range l.Edit.Parents {
			h.pending[id] = true
		}
		h.intent = nil
	}
	return nil
}

// folders lists the segments that have a folder. It is called before the layout
// is read: an edit makes folders only after it has named them there, so all that
// are there now are named by then.
func (v *verifier) folders(ctx context.Context) (ids []topic.SegmentID, err error) {
	dir := path.Join(v.topic.Dir(), "segments")
	for after := ""; ; {
		page, err := v.list(ctx, dir, after)
		if err != nil || len(page) == 0 {
			return ids, err
		}
		for _, e := range page {
			if e.IsDir {
				ids = append(ids, topic.SegmentID(e.Name()))
			}
		}
		after = page[len(page)-1].Name()
	}
}

// stray is a segment's folder.
type stray struct {
	id    topic.SegmentID
	named bool
}

// checkStray: an edit names what it makes before it makes it, and is finished
// whoever crashes, so there is no segment that no layout names.
func checkStray(s stray) string {
	if s.named {
		return ""
	}
	return fmt.Sprintf("no layout names segment %s", s.id)
}

func (v *verifier) strays(h *history, ids []topic.SegmentID) {
	if v.broken {
		return // what cannot be read may name them
	}
	for _, id := range ids {
		if v.full() {
			return
		}
		run(v, v.checks.stray, place{path: v.segmentDir(id), segment: id}, stray{id, h.named[id]})
	}
}

// early is the child of an edit that is under way.
type early struct {
	id    topic.SegmentID
	entry string // the first in its log, if there is one
}

// checkEarly: children take records only after the completion (rule 27).
func checkEarly(s early) string {
	if s.entry == "" {
		return ""
	}
	return fmt.Sprintf("segment %s has the entry %s, but the edit that makes it is not completed", s.id, s.entry)
}

// underWay looks at the children of an edit that was under way when the layout
// was read, and still is.
func (v *verifier) underWay(ctx context.Context, h *history) error {
	if h.intent == nil || v.full() {
		return nil
	}
	var found []early
	for _, c := range h.intent.Edit.Children {
		if h.made[c.ID] {
			continue
		}
		log := commitlog.New(v.store.Filer, v.segmentDir(c.ID), ".avro")
		for e, err := range v.entries(ctx, log, ".avro", 0) {
			if err != nil {
				return err
			}
			found = append(found, early{c.ID, path.Base(e.Path)})
			break
		}
	}
	if err := v.later(ctx, h); err != nil || h.intent == nil {
		return err
	}
	for _, s := range found {
		run(v, v.checks.early, place{path: v.segmentDir(s.id), segment: s.id}, s)
	}
	return nil
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
// read, so that is read on before a seal is called wrong.
func (v *verifier) end(ctx context.Context, h *history, id topic.SegmentID, sealed bool) error {
	s := segmentEnd{live: h.live[id], pending: h.pending[id] || h.broken, sealed: sealed}
	if s.live && s.sealed && !s.pending {
		if err := v.later(ctx, h); err != nil {
			return err
		}
		s.pending = h.pending[id]
	}
	run(v, v.checks.end, place{path: v.segmentDir(id), segment: id}, s)
	return nil
}
