package parquet

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/spillway-mq/spillway/internal/parquet/guard"
)

// columnBatch is how many entries of a column are decoded at a time, in a large file.
const columnBatch = 1024

// scanner is a column of any type.
type scanner interface {
	open(rows *file.RowGroupReader, firsts []int64)
	finish() error
}

// column reads one column of a row group, where it is asked to: rows that are passed
// over are not decoded, and of pages that have none of the others nothing is read.
// Entries come one after the other: a value or the place of one that is not there, with
// how deep it is defined and how deep it repeats.
type column[T any] struct {
	r      *Reader
	at     int // in the file's schema
	desc   *schema.Column
	rows   *file.RowGroupReader
	chunk  file.ColumnChunkReader // nil: nothing of the row group was read yet
	pages  *guard.Pages
	firsts []int64 // the first row of each page; nil: unknown
	page   int     // that row is in, as far as firsts tell
	row    int64   // the row whose entry comes next
	buf    []T
	def    []int16 // nil: all values are there
	rep    []int16 // nil: nothing repeats
	n      int     // entries in the batch
	entry  int     // the one that comes next
	value  int     // the value that comes next
}

type batchReader[T any] interface {
	ReadBatchInPage(n int64, values []T, def, rep []int16) (int64, int, error)
}

func newColumn[T any](r *Reader, i int) *column[T] {
	at := r.index[i]
	n := min(columnBatch, max(16, r.stats.Rows))
	c := &column[T]{r: r, at: at, desc: r.file.MetaData().Schema.Column(at), buf: make([]T, n)}
	if c.desc.MaxDefinitionLevel() > 0 {
		c.def = make([]int16, n)
	}
	if c.desc.MaxRepetitionLevel() > 0 {
		c.rep = make([]int16, n)
	}
	return c
}

// open goes on to a row group, after finish.
func (c *column[T]) open(rows *file.RowGroupReader, firsts []int64) {
	c.rows, c.firsts, c.page, c.row = rows, firsts, 0, 0
	c.n, c.entry, c.value = 0, 0, 0
}

// start opens the column's chunk of the row group.
func (c *column[T]) start() error {
	inner, err := c.rows.GetColumnPageReader(c.at)
	if err != nil {
		return c.err(err)
	}
	var zero T
	c.pages = guard.NewPages(inner, c.r.mem, int64(unsafe.Sizeof(zero)))
	// The deprecated function is the one way to stand between the library and the
	// pages; what makes it unsafe is buffers of a pool that are not the reader's.
	c.chunk = file.NewColumnReader(c.desc, c.pages, c.r.mem, c.r.file.BufferPool()) //nolint:staticcheck // see above
	return nil
}

func (c *column[T]) finish() error {
	if c.chunk == nil {
		return nil
	}
	chunk := c.chunk
	c.chunk = nil
	return chunk.Close()
}

// peek makes sure that there is an entry.
func (c *column[T]) peek() error {
	if c.entry < c.n {
		return nil
	}
	if !c.chunk.HasNext() {
		if err := c.chunk.Err(); err != nil {
			return c.err(err)
		}
		return c.err(fmt.Errorf("it ends before row %d", c.row))
	}
	return c.fill()
}

func (c *column[T]) fill() error {
	batch := int64(len(c.buf))
	if n := c.pages.Batch(); n > 0 {
		batch = min(batch, n)
	}
	r, ok := c.chunk.(batchReader[T])
	if !ok {
		return c.err(fmt.Errorf("it is read by a %T", c.chunk))
	}
	entries, read, err := r.ReadBatchInPage(batch, c.buf, c.def, c.rep)
	if err != nil {
		return c.err(err)
	}
	c.n, c.entry, c.value = int(entries), 0, 0
	if want := c.present(); entries == 0 || read != want {
		return c.err(fmt.Errorf("a page has %d values where its levels promise %d", read, want))
	}
	return nil
}

// present counts the values that a batch must have.
func (c *column[T]) present() int {
	if c.def == nil {
		return c.n
	}
	n := 0
	for _, d := range c.def[:c.n] {
		if d == c.desc.MaxDefinitionLevel() {
			n++
		}
	}
	return n
}

// take gives the next entry, how deep it is defined, and its value if it is there. Only
// after peek.
func (c *column[T]) take() (v T, def int16) {
	there := true
	if c.def != nil {
		def = c.def[c.entry]
		there = def == c.desc.MaxDefinitionLevel()
	}
	if there {
		v = c.buf[c.value]
		c.value++
	}
	c.entry++
	return v, def
}

// get gives the entry of a row, in a column where nothing repeats.
func (c *column[T]) get(row int64) (v T, def int16, err error) {
	if err := c.to(row); err != nil {
		return v, 0, err
	}
	if err := c.peek(); err != nil {
		return v, 0, err
	}
	c.row++
	v, def = c.take()
	return v, def, nil
}

// more tells whether the entry that comes next is of the row that was begun.
func (c *column[T]) more() (bool, error) {
	if c.entry == c.n && !c.chunk.HasNext() {
		return false, c.chunk.Err()
	}
	if err := c.peek(); err != nil {
		return false, err
	}
	return c.rep[c.entry] > 0, nil
}

// to goes on to a row.
func (c *column[T]) to(row int64) error {
	if c.chunk == nil {
		if err := c.start(); err != nil {
			return err
		}
	}
	if row > c.row {
		if err := c.seek(row); err != nil {
			return err
		}
	}
	for c.row < row {
		if err := c.peek(); err != nil {
			return err
		}
		c.row++
		c.take()
		for c.rep != nil {
			more, err := c.more()
			if err != nil {
				return c.err(err)
			}
			if !more {
				break
			}
			c.take()
		}
	}
	return nil
}

// seek goes on to the page that a row is in, if it is another one.
func (c *column[T]) seek(row int64) error {
	page, found := slices.BinarySearch(c.firsts, row)
	if !found {
		page--
	}
	if page <= c.page {
		return nil
	}
	c.page = page
	if c.firsts[page] <= c.row {
		return nil // reading went on to it
	}
	if err := c.chunk.SeekToRow(c.firsts[page]); err != nil {
		return c.err(err)
	}
	c.row = c.firsts[page]
	c.n, c.entry, c.value = 0, 0, 0
	return nil
}

func (c *column[T]) err(err error) error { return fmt.Errorf("column %s: %w", c.desc.Path(), err) }
