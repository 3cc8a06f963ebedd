package backfill

import (
	"context"
	"slices"
	"strings"
)

// takenScan goes through the blocks of a ledger file that are wanted, in order,
// reading up to readBytes at a time.
type takenScan struct {
	file *takenFile
	want func(takenBlock, string) bool // the block, and the first key of the next; nil: all
	next int                           // block
	data []byte                        // read ahead, from block next on
	list []takenEntry
	raw  []byte // room for a block
}

// entry gives the next entry, or false at the end.
func (s *takenScan) entry(ctx context.Context) (takenEntry, bool, error) {
	for len(s.list) == 0 {
		if s.skip(); s.next == len(s.file.blocks) {
			return takenEntry{}, false, nil
		}
		if err := s.load(ctx); err != nil {
			return takenEntry{}, false, err
		}
	}
	e := s.list[0]
	s.list = s.list[1:]
	return e, true, nil
}

func (s *takenScan) wanted(i int) bool {
	if s.want == nil {
		return true
	}
	behind := ""
	if i+1 < len(s.file.blocks) {
		behind = s.file.blocks[i+1].first
	}
	return s.want(s.file.blocks[i], behind)
}

func (s *takenScan) skip() {
	for s.next < len(s.file.blocks) && !s.wanted(s.next) {
		s.next++
		s.data = nil
	}
}

// load decodes the next block, having read it and what follows if it must.
func (s *takenScan) load(ctx context.Context) error {
	b := s.file.blocks[s.next]
	if len(s.data) == 0 {
		n := b.size
		for i := s.next + 1; i < len(s.file.blocks) && n+s.file.blocks[i].size <= readBytes && s.wanted(i); i++ {
			n += s.file.blocks[i].size
		}
		data, err := s.file.read(ctx, b.at, n)
		if err != nil {
			return err
		}
		s.data = data
	}
	raw, err := blockDecoder.DecodeAll(s.data[:b.size], s.raw[:0])
	if err != nil {
		return s.file.corrupt(err.Error())
	}
	s.raw, s.data, s.next = raw, s.data[b.size:], s.next+1
	s.list, err = s.file.decode(b, raw)
	return err
}

// strike marks those of the entries, which are in order, that the file holds.
func (f *takenFile) strike(ctx context.Context, entries []takenEntry, taken []bool) error {
	byKey := func(e takenEntry, key string) int { return strings.Compare(e.key, key) }
	scan := &takenScan{file: f, want: func(b takenBlock, behind string) bool {
		i, _ := slices.BinarySearchFunc(entries, b.first, byKey)
		return i < len(entries) && (behind == "" || entries[i].key <= behind)
	}}
	e, more, err := scan.entry(ctx)
	for i := 0; i < len(entries) && more && err == nil; {
		switch c := e.compare(entries[i]); {
		case c < 0:
			e, more, err = scan.entry(ctx)
		case c > 0:
			i++
		default:
			taken[i] = true
			i++
		}
	}
	return err
}

// mergeTaken writes the entries of all files, in order, each once.
func mergeTaken(ctx context.Context, files []*takenFile, w *takenWriter) error {
	type head struct {
		scan  *takenScan
		entry takenEntry
	}
	var heads []head
	advance := func(h head) error { // and puts it where it belongs
		e, more, err := h.scan.entry(ctx)
		if err != nil || !more {
			return err
		}
		h.entry = e
		i, _ := slices.BinarySearchFunc(heads, h, func(a, b head) int { return a.entry.compare(b.entry) })
		heads = slices.Insert(heads, i, h)
		return nil
	}
	for _, f := range files {
		if err := advance(head{scan: &takenScan{file: f}}); err != nil {
			return err
		}
	}
	for len(heads) > 0 {
		h := heads[0]
		heads = slices.Delete(heads, 0, 1)
		if err := w.add(ctx, h.entry); err != nil {
			return err
		}
		if err := advance(h); err != nil {
			return err
		}
	}
	return nil
}
