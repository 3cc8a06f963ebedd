package segment

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/record"
)

// Span is records of a chunk by their numbers in it, from 0: First to Last, both
// included.
type Span struct{ First, Last uint64 }

// MaxPending is how many spans a chunk's attributes name. Attributes are to stay
// small, and 512 spans are at most 8 KiB.
const MaxPending = 512

// IsPending tells whether the chunk's record n, from 0, is among those that were
// not verified. Only of an accepted record with a reference does it mean anything:
// a span may cover others.
func (c Chunk) IsPending(n uint64) bool {
	_, found := slices.BinarySearchFunc(c.Pending, n, func(s Span, n uint64) int {
		switch {
		case s.Last < n:
			return -1
		case s.First > n:
			return 1
		}
		return 0
	})
	return found
}

// marks counts the accepted records with a reference, and names those that were
// not verified.
func marks(recs []record.Rec) (refs uint64, pending []Span) {
	for i := range recs {
		if !recs[i].HasRef {
			continue
		}
		refs++
		if !recs[i].Pending {
			continue
		}
		n := uint64(i)
		if last := len(pending) - 1; last >= 0 && pending[last].Last+1 == n {
			pending[last].Last = n
		} else {
			pending = append(pending, Span{n, n})
		}
	}
	return refs, closeGaps(pending)
}

// closeGaps leaves at most MaxPending spans: the smallest gaps between them are
// closed, and of equal ones those that come first.
func closeGaps(list []Span) []Span {
	excess := len(list) - MaxPending
	if excess <= 0 {
		return list
	}
	gap := func(i int) uint64 { return list[i].First - list[i-1].Last }
	gaps := make([]uint64, 0, len(list)-1)
	for i := range list[1:] {
		gaps = append(gaps, gap(i+1))
	}
	slices.Sort(gaps)
	limit := gaps[excess-1]
	first, _ := slices.BinarySearch(gaps, limit)
	equal := excess - first // so many gaps of the limit's size are closed too
	out := make([]Span, 1, MaxPending)
	out[0] = list[0]
	for i := 1; i < len(list); i++ {
		g := gap(i)
		closed := g < limit
		if g == limit && equal > 0 {
			closed, equal = true, equal-1
		}
		if closed {
			out[len(out)-1].Last = list[i].Last
		} else {
			out = append(out, list[i])
		}
	}
	return out
}

// refs reads how many of a chunk's records have a reference.
func (p *attrParser) refs(count uint64) uint64 {
	if _, ok := p.attrs[attrRefs]; !ok {
		return 0
	}
	n := p.number(attrRefs)
	if n > count {
		p.fail(attrRefs)
	}
	return n
}

// pending reads "first-last number …", ascending, of the records below count.
func (p *attrParser) pending(count uint64) (list []Span) {
	next := uint64(0)
	for field := range strings.FieldsSeq(p.attrs[attrPending]) {
		s, ok := parseSpan(field)
		if !ok || s.First < next || s.Last >= count || len(list) == MaxPending {
			p.fail(attrPending)
			return nil
		}
		list, next = append(list, s), s.Last+1
	}
	return list
}

// parseSpan reads "first-last", or the number of a single record.
func parseSpan(field string) (Span, bool) {
	from, to, more := strings.Cut(field, "-")
	first, err := strconv.ParseUint(from, 10, 64)
	if !more {
		return Span{first, first}, err == nil
	}
	last, err2 := strconv.ParseUint(to, 10, 64)
	return Span{first, last}, err == nil && err2 == nil && first < last
}

func formatPending(list []Span) string {
	var b []byte
	for _, s := range list {
		if len(b) > 0 {
			b = append(b, ' ')
		}
		if b = strconv.AppendUint(b, s.First, 10); s.Last > s.First {
			b = strconv.AppendUint(append(b, '-'), s.Last, 10)
		}
	}
	return string(b)
}
