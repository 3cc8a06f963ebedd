package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/topic"
)

// layoutStep is an entry of the layout's log with what comes before it.
type layoutStep struct {
	topic.Layout
	err error  // it cannot be read as a layout
	n   uint64 // its number in the log
	// prev is the entry before, if that is known. An intent repeats the live
	// segments in force, so prev's are those in force in any case.
	prev  *topic.Layout
	first bool // there is none before
	// made are the segments that earlier layouts made.
	made map[topic.SegmentID]bool
}

// checkLayout: it is a layout, and its live segments cover each slot once.
func checkLayout(s layoutStep) string { return describe(s.err) }

// checkEpoch: the epoch is the number of the entry.
func checkEpoch(s layoutStep) string {
	if s.err != nil || s.Epoch == s.n {
		return ""
	}
	return fmt.Sprintf("it is entry %d, but says that it is epoch %d", s.n, s.Epoch)
}

// checkTurns: after a layout comes an intent, and after an intent its completion,
// as exactly the next entry (rule 25). That the last entry is an intent is fine.
func checkTurns(s layoutStep) string {
	switch {
	case s.err != nil || s.prev == nil && !s.first:
		return ""
	case s.first && s.Pending:
		return "the first layout is an intent"
	case s.first:
		return ""
	case s.Pending && s.prev.Pending:
		return "it is an intent, but so is the entry before, and that was never completed"
	case s.Pending:
		return ""
	case !s.prev.Pending:
		return "it completes an edit, but the entry before is no intent"
	case s.Edit.Kind != s.prev.Edit.Kind || s.Edit.Reason != s.prev.Edit.Reason || !s.At.Equal(s.prev.At) ||
		!slices.Equal(s.Edit.Parents, s.prev.Edit.Parents) || !slices.Equal(s.Edit.Children, s.prev.Edit.Children):
		return "it completes another edit than the one that the entry before intends"
	}
	return ""
}

// checkEdit: a layout changes by its edit and by nothing else, and an edit makes
// segments that never were before.
func checkEdit(s layoutStep) string {
	if s.err != nil || s.prev == nil && !s.first {
		return ""
	}
	want := map[topic.SegmentID]topic.Range{}
	if s.prev != nil {
		for _, live := range s.prev.Live {
			want[live.ID] = live.Range
		}
	}
	if s.Pending {
		for _, c := range s.Edit.Children {
			if s.made[c.ID] {
				return fmt.Sprintf("it makes segment %s, which was made before", c.ID)
			}
		}
		return sameLive(s.Live, want, "it is an intent, but its live segments are not those in force: ")
	}
	if s.prev != nil && !s.prev.Pending {
		return "" // it completes nothing
	}
	for _, id := range s.Edit.Parents {
		delete(want, id)
	}
	for _, c := range s.Edit.Children {
		want[c.ID] = c.Range
	}
	return sameLive(s.Live, want, "")
}

// sameLive compares live segments with what they must be.
func sameLive(live []topic.Live, want map[topic.SegmentID]topic.Range, why string) string {
	for _, l := range live {
		if r, ok := want[l.ID]; !ok || r != l.Range {
			return fmt.Sprintf("%ssegment %s with range %s is live, but no edit made it so", why, l.ID, l.Range)
		}
		delete(want, l.ID)
	}
	if len(want) > 0 {
		id := slices.Min(slices.Collect(maps.Keys(want)))
		return fmt.Sprintf("%ssegment %s with range %s is not live, but no edit ended it", why, id, want[id])
	}
	return ""
}

// checkCover: an edit replaces live neighbours by children that cover exactly
// their slots.
func checkCover(s layoutStep) string {
	if s.err != nil || !s.Pending {
		return ""
	}
	live := make(map[topic.SegmentID]topic.Range, len(s.Live))
	for _, l := range s.Live {
		live[l.ID] = l.Range
	}
	var parents, children []topic.Range
	for _, id := range s.Edit.Parents {
		r, ok := live[id]
		if !ok {
			return fmt.Sprintf("it ends segment %s, which is not live", id)
		}
		delete(live, id)
		parents = append(parents, r)
	}
	for _, c := range s.Edit.Children {
		children = append(children, c.Range)
	}
	old, gap := joined(parents)
	if gap != "" {
		return "its parents are no neighbours: " + gap
	}
	next, gap := joined(children)
	if gap != "" {
		return "its children are no neighbours: " + gap
	}
	if old != next {
		return fmt.Sprintf("its parents cover the slots %s, its children %s", old, next)
	}
	return ""
}

// joined is the range that neighbours cover together, or why they do not.
func joined(list []topic.Range) (all topic.Range, gap string) {
	if len(list) == 0 {
		return all, "there are none"
	}
	for i, r := range list {
		switch {
		case !r.Valid():
			return all, fmt.Sprintf("%s is no range", r)
		case i == 0:
			all = r
		case r.Lo != all.Hi:
			return all, fmt.Sprintf("%s follows %s", r, list[i-1])
		}
		all.Hi = r.Hi
	}
	return all, ""
}

// sensible tells of a segment whose id cannot be the name of a folder, or whose
// range is none.
func sensible(segments []topic.Live) error {
	for _, s := range segments {
		if s.ID == "" || s.ID == "." || s.ID == ".." || strings.Contains(string(s.ID), "/") {
			return fmt.Errorf("%.80q is no id of a segment", s.ID)
		}
		if !s.Range.Valid() {
			return fmt.Errorf("segment %s has the range %s", s.ID, s.Range)
		}
	}
	return nil
}

// ring tells why live segments do not cover each slot once, in order.
func ring(live []topic.Live) error {
	seen := make(map[topic.SegmentID]bool, len(live))
	ranges := make([]topic.Range, len(live))
	for i, l := range live {
		if seen[l.ID] {
			return fmt.Errorf("segment %s is listed twice", l.ID)
		}
		seen[l.ID], ranges[i] = true, l.Range
	}
	all, gap := joined(ranges)
	if gap != "" {
		return fmt.Errorf("its live segments do not cover each slot once: %s", gap)
	}
	if all != (topic.Range{Lo: 0, Hi: topic.Slots}) {
		return fmt.Errorf("its live segments cover the slots %s", all)
	}
	return nil
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
	err = sensible(l.Edit.Children)
	if err == nil {
		err = ring(l.Live)
	}
	if err != nil {
		return l, fmt.Errorf("%w: %w", filer.ErrCorrupt, err)
	}
	return l, nil
}

// maxContent bounds what is read of a file that is not inline: more than any
// chunk, layout or description has.
const maxContent = 64 << 20

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
		data, err = io.ReadAll(io.LimitReader(r, maxContent))
		return err
	})
	return data, err
}
