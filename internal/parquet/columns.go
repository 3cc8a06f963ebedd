package parquet

import (
	"slices"
	"sync"
)

// levels say which entries of a column are there (Dremel's definition levels). A column
// of nulls takes nothing.
type levels struct{ def []int16 }

// set says how deep row is defined. Rows that were left out are null.
func (l *levels) set(row int, def int16) {
	l.fill(row)
	l.def = append(l.def, def)
}

func (l *levels) fill(rows int) {
	if n := rows - len(l.def); n > 0 {
		l.def = slices.Grow(l.def, n)
		clear(l.def[len(l.def):rows])
		l.def = l.def[:rows]
	}
}

// numbers are the values of a column of fixed width.
type numbers[T any] struct {
	levels
	values []T
}

func (n *numbers[T]) reset() { n.values, n.def = n.values[:0], n.def[:0] }

// put sets an optional value.
func (n *numbers[T]) put(row int, def int16, v T) {
	n.set(row, def)
	n.values = append(n.values, v)
}

// blockSize is how much memory a column of texts takes at a time. Nothing in it moves
// when it grows, and what one column gave back serves another.
const blockSize = 128 << 10

var blocks = sync.Pool{New: func() any { b := make([]byte, 0, blockSize); return &b }}

// texts are the values of a column of bytes, one after the other.
type texts struct {
	levels
	blocks []*[]byte
	firsts []int    // of each block: its first value
	ends   []uint32 // of each value: where it ends in its block
}

func (t *texts) reset() {
	for i, b := range t.blocks {
		if cap(*b) == blockSize {
			*b = (*b)[:0]
			blocks.Put(b)
		}
		t.blocks[i] = nil
	}
	t.blocks, t.firsts, t.ends, t.def = t.blocks[:0], t.firsts[:0], t.ends[:0], t.def[:0]
}

// room gives the block that the next value goes to.
func (t *texts) room(n int) *[]byte {
	if k := len(t.blocks); k > 0 {
		if b := t.blocks[k-1]; cap(*b)-len(*b) >= n {
			return b
		}
	}
	b := &[]byte{}
	if n > blockSize {
		*b = make([]byte, 0, n)
	} else {
		b = blocks.Get().(*[]byte)
	}
	t.blocks, t.firsts = append(t.blocks, b), append(t.firsts, len(t.ends))
	return b
}

func add[T ~string | ~[]byte](t *texts, v T) {
	b := t.room(len(v))
	*b = append(*b, v...)
	t.ends = append(t.ends, uint32(len(*b)))
}

func put[T ~string | ~[]byte](t *texts, row int, def int16, v T) {
	t.set(row, def)
	add(t, v)
}

// textsIter goes over the values.
type textsIter struct {
	t     *texts
	i     int
	block int // that has the value before
	start uint32
}

// next gives the next value; there must be one.
func (it *textsIter) next() []byte {
	for it.block+1 < len(it.t.firsts) && it.t.firsts[it.block+1] <= it.i {
		it.block, it.start = it.block+1, 0
	}
	end := it.t.ends[it.i]
	v := (*it.t.blocks[it.block])[it.start:end:end]
	it.i, it.start = it.i+1, end
	return v
}

const (
	mostWords = 1024 // from then on a dictionary is the library's business
	longWord  = 1024 // bytes
)

// words are the values of a column of few texts that come again and again, by their
// numbers. Once it turns out that there are too many, they are texts.
type words struct {
	levels
	list    []string
	numbers map[string]int32
	entries []int32
	last    int32
	texts   texts
	many    bool
}

func (w *words) reset() {
	w.list, w.entries, w.last, w.many, w.def = w.list[:0], w.entries[:0], 0, false, w.def[:0]
	clear(w.numbers)
	w.texts.reset()
}

func (w *words) add(v string) {
	switch {
	case w.many:
		add(&w.texts, v)
		return
	case len(w.list) > 0 && w.list[w.last] == v:
		w.entries = append(w.entries, w.last)
		return
	}
	n, known := w.numbers[v]
	if !known && (len(w.list) == mostWords || len(v) > longWord) {
		w.spell()
		add(&w.texts, v)
		return
	}
	if !known {
		if w.numbers == nil {
			w.numbers = map[string]int32{}
		}
		n = int32(len(w.list))
		v = string([]byte(v)) // the caller keeps his
		w.list = append(w.list, v)
		w.numbers[v] = n
	}
	w.last = n
	w.entries = append(w.entries, n)
}

// spaced gives the entries with room for nulls, and which are none. In an optional column
// nulls have room; in a required or repeated one there are none.
func (w *words) spaced(def []int16, repeated bool) (entries []int32, there []byte) {
	if def == nil || repeated || len(def) == len(w.entries) {
		return w.entries, nil
	}
	entries, there = make([]int32, len(def)), make([]byte, (len(def)+7)/8)
	next := 0
	for i, d := range def {
		if d > 0 {
			entries[i] = w.entries[next]
			there[i/8] |= 1 << (i % 8)
			next++
		}
	}
	return entries, there
}

// spell makes texts of the words.
func (w *words) spell() {
	w.many = true
	for _, n := range w.entries {
		add(&w.texts, w.list[n])
	}
	w.entries = w.entries[:0]
}
