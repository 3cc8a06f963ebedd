package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// slotLoads is the load of a chunk, slot by slot.
type slotLoads struct {
	slots [topic.Slots]slotLoad
	used  []topic.Slot
}

type slotLoad struct{ records, bytes uint64 }

func (l *slotLoads) add(slot topic.Slot, bytes uint64) {
	s := &l.slots[slot]
	if s.records == 0 {
		l.used = append(l.used, slot)
	}
	s.records++
	s.bytes += bytes
}

func (l *slotLoads) reset() {
	for _, slot := range l.used {
		l.slots[slot] = slotLoad{}
	}
	l.used = l.used[:0]
}

func checkLoad(s *content) string {
	var said, took [segment.LoadBuckets]slotLoad
	for _, b := range s.c.Load {
		said[b.Index] = slotLoad{b.Records, b.Bytes}
	}
	for _, slot := range s.load.used {
		part := &took[(uint32(slot)-s.Range.Lo)*segment.LoadBuckets/s.Range.Size()]
		part.records += s.load.slots[slot].records
		part.bytes += s.load.slots[slot].bytes
	}
	for i := range said {
		if said[i] != took[i] {
			return fmt.Sprintf("%d records with %d bytes fall into part %d of its range, its attributes say %d with %d",
				took[i].records, took[i].bytes, i, said[i].records, said[i].bytes)
		}
	}
	return ""
}

// Of hot slots, a chunk names so many.
const (
	hotShare = 100
	mostHot  = 32
)

// checkHot: the slots that took more than their share are named, with what they
// took, and no others.
func checkHot(s *content) string {
	said := map[topic.Slot]slotLoad{}
	for _, h := range s.c.Hot {
		said[h.Slot] = slotLoad{h.Records, h.Bytes}
	}
	for _, slot := range s.hot() {
		took := s.load.slots[slot]
		if got := said[slot]; got != took {
			return fmt.Sprintf("slot %d took %d records with %d bytes and is hot, its attributes say %d with %d",
				slot, took.records, took.bytes, got.records, got.bytes)
		}
		delete(said, slot)
	}
	for _, h := range s.c.Hot {
		if _, ok := said[h.Slot]; ok {
			took := s.load.slots[h.Slot]
			return fmt.Sprintf("its attributes say that slot %d is hot, it took %d records with %d bytes", h.Slot, took.records, took.bytes)
		}
	}
	return ""
}

// hot is the slots that are to be named.
func (s *content) hot() (list []topic.Slot) {
	for _, slot := range s.load.used {
		if l := s.load.slots[slot]; l.records*hotShare > s.records || l.bytes*hotShare > s.bytes {
			list = append(list, slot)
		}
	}
	if len(list) > mostHot {
		share := func(slot topic.Slot) uint64 {
			return max(s.load.slots[slot].records*s.bytes, s.load.slots[slot].bytes*s.records)
		}
		slices.SortFunc(list, func(a, b topic.Slot) int { return cmp.Or(cmp.Compare(share(b), share(a)), cmp.Compare(a, b)) })
		list = list[:mostHot]
	}
	return list
}
