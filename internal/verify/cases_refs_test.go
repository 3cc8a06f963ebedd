package verify

import (
	"fmt"
	"strings"
)

// referenceFaults are those of what a chunk says about its references.
func referenceFaults() []fault {
	// The last chunk of a segment, with its attribute made from its records: those
	// that are accepted references, and the others.
	pending := func(name string, mark func(refs, others []int) string) fault {
		return fault{name, one("chunk.pending"), func(f *fixture) {
			c := f.segs[1].last()
			var refs, others []int
			for i, r := range c.rows {
				if r.Ref != nil && r.Rejected == nil {
					refs = append(refs, i)
				} else {
					others = append(others, i)
				}
			}
			c.with("Pending", mark(refs, others))
		}, nil}
	}
	return []fault{
		pending("a record without a reference is pending", func(_, others []int) string { return fmt.Sprint(others[0]) }),
		pending("a range begins too soon", func(refs, _ []int) string { return fmt.Sprintf("%d-%d", refs[0]-1, refs[0]) }),
		pending("a range ends too late", func(refs, _ []int) string { return fmt.Sprintf("%d-%d", refs[0], refs[0]+1) }),
		pending("there are too many ranges", func(_, _ []int) string { return numbers(0, 513) }),
		{"a refused reference is pending", one("chunk.pending"), func(f *fixture) {
			c := f.segs[1].last()
			for i := range c.rows {
				if r := &c.rows[i]; r.Ref != nil {
					r.Rejected = ptr("no such object")
					c.with("Pending", fmt.Sprint(i))
					return
				}
			}
		}, nil},
		{"a refused reference is counted", one("chunk.refs"), func(f *fixture) {
			c := f.segs[1].last()
			n := 0
			for i := range c.rows {
				if r := &c.rows[i]; r.Ref != nil {
					n++
					if r.Ref.Size%2 == 0 {
						r.Rejected = ptr("no such object")
					}
				}
			}
			c.with("Refs", fmt.Sprint(n))
		}, nil},
		{"of a message, only the row that is refused for its reference is there", one("lane.rows"), func(f *fixture) {
			f.feed()
			c := f.segs[1].last()
			c.rows = c.rows[:5] // it ends with row 0 of message 12
			c.rows[4].Rejected = ptr("no such object")
			f.segs[2].last().rows = f.segs[2].last().rows[:3]
		}, nil},
	}
}

// numbers lists from..to-1.
func numbers(from, to int) string {
	var list []string
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprint(i))
	}
	return strings.Join(list, " ")
}
