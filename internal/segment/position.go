package segment

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/topic"
)

// ReadPosition is how far a reader has got: the offset of the next record in
// each segment that it can read now. Ancestors of the segments named are taken as
// read; segments that are not named and are no ancestors are read from their
// start. So it stays valid, and exact, whatever edits come after it.
type ReadPosition map[topic.SegmentID]uint64

// String is the printable form, "v1" for the start of everything or
// "v1,segment=offset,…"; [ParseReadPosition] reads it.
func (p ReadPosition) String() string {
	parts := make([]string, 0, len(p))
	for id, off := range p {
		parts = append(parts, fmt.Sprintf(",%s=%d", id, off))
	}
	sort.Strings(parts)
	return "v1" + strings.Join(parts, "")
}

// ParseReadPosition reads what [ReadPosition.String] prints.
func ParseReadPosition(s string) (ReadPosition, error) {
	version, rest, _ := strings.Cut(s, ",")
	if version != "v1" {
		return nil, fmt.Errorf("position %q: want one that spillway printed, starting with v1", s)
	}
	p := ReadPosition{}
	for _, part := range strings.Split(rest, ",") {
		if part == "" {
			continue
		}
		id, off, _ := strings.Cut(part, "=")
		n, err := strconv.ParseUint(off, 10, 64)
		if err != nil || id == "" {
			return nil, fmt.Errorf("position %q: %q is not segment=offset", s, part)
		}
		p[topic.SegmentID(id)] = n
	}
	return p, nil
}

// ErrForeignPosition says that a position names a segment that this topic does not have,
// because it belongs to another topic or to an earlier one of the same name.
var ErrForeignPosition = errors.New("the position does not belong to this topic")

// TrimmedError says that records which the reader has not read are gone: the
// segment was trimmed past its position, or an operator gave them up when it was
// compacted. Reading can go on at Next, which is for the caller to decide (rule 31);
// see [Reader.Skip].
type TrimmedError struct {
	Segment topic.SegmentID
	At      uint64 // offset of the record that the reader wants
	Next    uint64 // offset of the first record that there is
	Reason  string // why they were given up; empty: they were trimmed
}

func (e *TrimmedError) Error() string {
	how := "were trimmed before they were read"
	if e.Reason != "" {
		how = fmt.Sprintf("were given up (%s)", e.Reason)
	}
	return fmt.Sprintf("segment %s: records %d to %d %s; the next one there is has offset %d", e.Segment, e.At, e.Next-1, how, e.Next)
}
