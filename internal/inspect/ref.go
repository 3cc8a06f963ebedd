package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// RefError says why a reference names no live segment.
type RefError struct{ Ref, Reason string }

func (e *RefError) Error() string { return fmt.Sprintf("segment %.80q: %s", e.Ref, e.Reason) }

// Resolve finds the live segment that a person means: by its id, its short name
// ("4-1"), the beginning of its id if only one begins so, "slot:1234", or
// "key:TEXT" (the segment where records of a key go). Errors are *RefError.
func Resolve(l topic.Layout, ref string) (topic.Live, error) {
	kind, arg, typed := strings.Cut(ref, ":")
	switch {
	case typed && kind == "slot":
		n, err := strconv.ParseUint(arg, 10, 16)
		if err != nil {
			return topic.Live{}, &RefError{ref, fmt.Sprintf("want a slot from 0 to %d", topic.Slots-1)}
		}
		return owner(l, topic.Slot(n)), nil
	case typed && kind == "key":
		return owner(l, topic.SlotOf([]byte(arg))), nil
	}
	i, err := pick(l.Live, ref, func(s topic.Live) topic.SegmentID { return s.ID })
	if err != nil {
		return topic.Live{}, err
	}
	if i < 0 {
		return topic.Live{}, &RefError{ref, fmt.Sprintf("no live segment has this name at epoch %d", l.Epoch)}
	}
	return l.Live[i], nil
}

// WhyNot adds to the error of a reference what became of the segment, if it was
// live once.
func WhyNot(err *RefError, l *segment.Lineage) *RefError {
	i, _ := pick(l.Members, err.Ref, func(m segment.Member) topic.SegmentID { return m.ID })
	if i < 0 || len(l.Members[i].Children) == 0 {
		return err
	}
	m := l.Members[i]
	names := make([]string, len(m.Children))
	for i, id := range m.Children {
		names[i] = string(id)
	}
	const most = 8
	if n := len(names); n > most {
		names = append(names[:most], fmt.Sprintf("and %d more", n-most))
	}
	child, _ := l.Member(m.Children[0])
	return &RefError{err.Ref, fmt.Sprintf("it is not live: epoch %d replaced %s by %s", child.Epoch, m.ID, strings.Join(names, ", "))}
}

func owner(l topic.Layout, s topic.Slot) topic.Live {
	id := l.Route(s)
	return l.Live[slices.IndexFunc(l.Live, func(live topic.Live) bool { return live.ID == id })]
}

// pick finds what a name means in a list, -1 for nothing.
func pick[T any](list []T, ref string, id func(T) topic.SegmentID) (int, error) {
	for i, s := range list {
		if string(id(s)) == ref || Short(id(s)) == ref {
			return i, nil
		}
	}
	found := -1
	for i, s := range list {
		switch {
		case ref == "" || !strings.HasPrefix(string(id(s)), ref):
		case found >= 0:
			return -1, &RefError{ref, fmt.Sprintf("both %s and %s begin so", id(list[found]), id(s))}
		default:
			found = i
		}
	}
	return found, nil
}
