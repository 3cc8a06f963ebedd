package topic

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Kinds of edits. Create is the first layout of a topic; the others replace
// live segments by children that cover the same slots.
const (
	EditCreate = "create"
	EditSplit  = "split"
	EditMerge  = "merge"
	EditRoll   = "roll"
)

// MaxLive is how many live segments a topic can have. A worker creates up to one
// entry for each of them in every flush, so long before this the commits per
// second are what limits (rule 30).
const MaxLive = 4096

// ErrNotLive says that a segment does not take records: it was replaced, or
// never existed.
var ErrNotLive = errors.New("segment is not live")

// EditError says why an edit cannot be made on a layout. Nothing was changed. It
// matches ErrNotLive when the layout may just have moved on.
type EditError struct {
	Kind   string
	Reason string
	Err    error // ErrNotLive or nil
}

func (e *EditError) Error() string { return fmt.Sprintf("cannot %s: %s", e.Kind, e.Reason) }

// Unwrap gives ErrNotLive, if that is the cause.
func (e *EditError) Unwrap() error { return e.Err }

func badEdit(kind, format string, a ...any) error {
	return &EditError{Kind: kind, Reason: fmt.Sprintf(format, a...)}
}

// find returns the live segment with an id.
func (l Layout) find(kind string, id SegmentID) (Live, error) {
	i := slices.IndexFunc(l.Live, func(s Live) bool { return s.ID == id })
	if i < 0 {
		return Live{}, &EditError{kind, fmt.Sprintf("segment %s is not live at epoch %d", id, l.Epoch), ErrNotLive}
	}
	return l.Live[i], nil
}

// Split replaces a segment by children that begin at its start and at each of
// the cuts: slots inside its range, ascending.
func (l Layout) Split(id SegmentID, cuts ...uint32) (Edit, error) {
	parent, err := l.find(EditSplit, id)
	if err != nil {
		return Edit{}, err
	}
	e := Edit{Kind: EditSplit, Parents: []SegmentID{id}}
	lo := parent.Lo
	for _, cut := range append(slices.Clone(cuts), parent.Hi) {
		if cut <= lo || cut > parent.Hi {
			return Edit{}, badEdit(EditSplit, "slot %d is no place to cut %s: cuts lie inside of it, in ascending order", cut, parent.Range)
		}
		e.Children = append(e.Children, Live{Range: Range{lo, cut}})
		lo = cut
	}
	return e, nil
}

// SplitWays replaces a segment by n children of nearly equal range.
func (l Layout) SplitWays(id SegmentID, n int) (Edit, error) {
	parent, err := l.find(EditSplit, id)
	if err != nil {
		return Edit{}, err
	}
	if n < 2 || uint64(n) > uint64(parent.Size()) || n > MaxLive {
		return Edit{}, badEdit(EditSplit, "%s cannot be cut into %d: want 2 to %d", parent.Range, n, min(parent.Size(), MaxLive))
	}
	cuts := make([]uint32, n-1)
	for i := range cuts {
		cuts[i] = parent.Lo + uint32(uint64(i+1)*uint64(parent.Size())/uint64(n))
	}
	return l.Split(id, cuts...)
}

// Merge replaces neighbours by one child. The ids may come in any order.
func (l Layout) Merge(ids ...SegmentID) (Edit, error) {
	parents := make([]Live, 0, len(ids))
	for _, id := range ids {
		p, err := l.find(EditMerge, id)
		if err != nil {
			return Edit{}, err
		}
		parents = append(parents, p)
	}
	if len(parents) < 2 {
		return Edit{}, badEdit(EditMerge, "it takes two segments or more")
	}
	slices.SortFunc(parents, func(a, b Live) int { return cmp.Compare(a.Lo, b.Lo) })
	e := Edit{Kind: EditMerge}
	for i, p := range parents {
		if i > 0 && p.Lo != parents[i-1].Hi {
			return Edit{}, badEdit(EditMerge, "%s %s and %s %s are no neighbours", parents[i-1].ID, parents[i-1].Range, p.ID, p.Range)
		}
		e.Parents = append(e.Parents, p.ID)
	}
	e.Children = []Live{{Range: Range{parents[0].Lo, parents[len(parents)-1].Hi}}}
	return e, nil
}

// Roll replaces a segment by a child of the same range.
func (l Layout) Roll(id SegmentID) (Edit, error) {
	parent, err := l.find(EditRoll, id)
	if err != nil {
		return Edit{}, err
	}
	return Edit{Kind: EditRoll, Parents: []SegmentID{id}, Children: []Live{{Range: parent.Range}}}, nil
}

// Intent is the layout entry that begins an edit on l, which must be in force
// with no edit under way. It names everything that whoever finishes the edit
// writes: the children get their ids here, from the epoch of the completion and
// a random token each (rule 26).
func (l Layout) Intent(e Edit, at time.Time, token func() string) (Layout, error) {
	if l.Pending {
		return Layout{}, badEdit(e.Kind, "the edit of epoch %d is under way", l.Epoch)
	}
	e.Children = slices.Clone(e.Children)
	for i := range e.Children {
		e.Children[i].ID = NewSegmentID(l.Epoch+2, i, token())
	}
	intent := Layout{Epoch: l.Epoch + 1, At: at.UTC().Truncate(time.Microsecond), Edit: e, Live: l.Live, Pending: true}
	if err := intent.Validate(); err != nil {
		return Layout{}, err
	}
	return intent, intent.Complete().Validate()
}

// NewSegmentID names the i-th segment that an edit creates.
func NewSegmentID(epoch uint64, i int, token string) SegmentID {
	return SegmentID(fmt.Sprintf("%08d-%02d-%s", epoch, i, token))
}

// Complete is the layout entry that ends the edit of an intent: the parents are
// replaced by the children. It is a function of the intent alone.
func (l Layout) Complete() Layout {
	next := Layout{Epoch: l.Epoch + 1, At: l.At, Edit: l.Edit}
	for _, s := range l.Live {
		if !slices.Contains(l.Edit.Parents, s.ID) {
			next.Live = append(next.Live, s)
		}
	}
	next.Live = append(next.Live, l.Edit.Children...)
	slices.SortFunc(next.Live, func(a, b Live) int { return cmp.Compare(a.Lo, b.Lo) })
	return next
}

// validateIntent checks that the edit of an intent replaces live segments by
// children that cover exactly the same slots.
func (l Layout) validateIntent() error {
	e := l.Edit
	bad := func(format string, a ...any) error { return badEdit(e.Kind, format, a...) }
	if len(e.Parents) == 0 || len(e.Children) == 0 {
		return bad("it has %d parents and %d children", len(e.Parents), len(e.Children))
	}
	if n := len(l.Live) - len(e.Parents) + len(e.Children); n > MaxLive {
		return bad("it would make %d live segments, the most is %d", n, MaxLive)
	}
	var old Range
	for i, id := range e.Parents {
		p, err := l.find(e.Kind, id)
		switch {
		case err != nil:
			return err
		case i == 0:
			old = p.Range
		case p.Lo != old.Hi:
			return bad("parents are no neighbours: %s starts at slot %d, the one before ends at %d", id, p.Lo, old.Hi)
		default:
			old.Hi = p.Hi
		}
	}
	next := old.Lo
	for _, c := range e.Children {
		if !c.Valid() || c.Lo != next {
			return bad("child %s has the range %s, want one that starts at slot %d", c.ID, c.Range, next)
		}
		next = c.Hi
	}
	if next != old.Hi {
		return bad("its children end at slot %d, its parents at %d", next, old.Hi)
	}
	return nil
}
