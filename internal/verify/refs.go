package verify

import (
	"fmt"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
)

// mostPending is how many ranges of pending records a chunk may name.
const mostPending = 512

// references is what a chunk's records say about references, held against the
// ranges of pending ones in its attributes while the records are read in order.
type references struct {
	count   uint64 // of accepted records that have one
	ranges  []segment.Span
	astray  uint64 // the first record at an end of a range that has none
	strayed bool
}

// take notes record n of the chunk.
func (f *references) take(n uint64, r *record.Record) {
	has := r.Ref != nil && r.Rejected == ""
	if has {
		f.count++
	}
	for len(f.ranges) > 0 && f.ranges[0].Last < n {
		f.ranges = f.ranges[1:]
	}
	if has || f.strayed || len(f.ranges) == 0 || n != f.ranges[0].First && n != f.ranges[0].Last {
		return
	}
	f.astray, f.strayed = n, true
}

func checkRefs(s *content) string {
	if s.refs.count == s.c.Refs {
		return ""
	}
	return fmt.Sprintf("%d of its records are accepted and have a reference, its attributes say %d", s.refs.count, s.c.Refs)
}

// checkPending: ranges of pending records lie within the chunk, and begin and end
// with records that can be pending. Whether they leave out one that was not verified
// nobody can tell: that is written nowhere else.
func checkPending(s *content) string {
	n := len(s.c.Pending)
	switch {
	case n == 0:
		return ""
	case n > mostPending:
		return fmt.Sprintf("it names %d ranges of pending records, more than %d", n, mostPending)
	case s.c.Pending[n-1].Last >= s.records:
		return fmt.Sprintf("record %d is said to be pending, but there are only %d, counted from 0", s.c.Pending[n-1].Last, s.records)
	case s.refs.strayed:
		return fmt.Sprintf("record %d is said to be pending, but it was refused or has no reference", s.refs.astray)
	}
	return ""
}
