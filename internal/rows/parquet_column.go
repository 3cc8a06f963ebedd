package rows

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

const (
	mostBatch   = 1024      // values of a column that are read at a time
	batchesSize = 128 << 10 // values of all columns together
)

// column reads one column, a batch of values at a time, and gives its entries one
// after the other: a value or the place of one that is not there, with how deep it is
// defined and how deep it repeats (Dremel's levels).
type column struct {
	desc   *schema.Column
	index  int
	maxDef int16
	values values
	pages  *pages
	chunk  file.ColumnChunkReader // nil: no row group is open
	def    []int16                // nil: all values are there
	rep    []int16                // nil: nothing repeats
	batch  int64
	n      int // entries in the batch
	at     int // the entry that comes next
	value  int // the value that comes next
}

// values holds a batch of the values of one physical type.
type values interface {
	// fill reads up to n entries of a page. They are valid until the next fill.
	fill(chunk file.ColumnChunkReader, n int64, def, rep []int16) (entries int64, read int, err error)
	write(t *rowText, i int)
	width() int64
}

type batchReader[T any] interface {
	ReadBatchInPage(n int64, values []T, def, rep []int16) (int64, int, error)
}

// valuesOf are values of a Go type, with the way to write them.
type valuesOf[T any] struct {
	buf  []T
	size int64 // of a T, what it points to not included
	text func(t *rowText, v T)
}

func (v *valuesOf[T]) fill(chunk file.ColumnChunkReader, n int64, def, rep []int16) (entries int64, read int, err error) {
	r, ok := chunk.(batchReader[T])
	if !ok {
		return 0, 0, fmt.Errorf("its values are of another type than its schema says: %T", chunk)
	}
	if int64(len(v.buf)) < n {
		v.buf = make([]T, n)
	}
	return r.ReadBatchInPage(n, v.buf, def, rep)
}

func (v *valuesOf[T]) write(t *rowText, i int) { v.text(t, v.buf[i]) }
func (v *valuesOf[T]) width() int64            { return v.size }

func newColumn(desc *schema.Column, index, columns int) (*column, error) {
	c := &column{desc: desc, index: index, maxDef: desc.MaxDefinitionLevel()}
	c.batch = int64(max(16, min(mostBatch, batchesSize/columns)))
	if n := desc.TypeLength(); desc.PhysicalType() == parquet.Types.FixedLenByteArray {
		if n < 1 || n > MostMaxRow {
			return nil, fmt.Errorf("column %q has values of %d bytes each: from 1 to %d are taken", desc.Path(), n, MostMaxRow)
		}
		c.batch = max(1, min(c.batch, maxPrefixed/int64(n)))
	}
	if c.maxDef > 0 {
		c.def = make([]int16, c.batch)
	}
	if desc.MaxRepetitionLevel() > 0 {
		c.rep = make([]int16, c.batch)
	}
	var err error
	if c.values, err = leafValues(desc); err != nil {
		return nil, fmt.Errorf("column %q: %w", desc.Path(), err)
	}
	return c, nil
}

// open begins with the column's chunk of a row group.
func (c *column) open(f *file.Reader, group *file.RowGroupReader, mem *pageMemory) error {
	inner, err := group.GetColumnPageReader(c.index)
	if err != nil {
		return c.err(err)
	}
	inner.SetMaxPageHeaderSize(maxPageHeader)
	c.pages = &pages{PageReader: inner, mem: mem, width: c.values.width()}
	// The deprecated function is the one way to stand between the library and the
	// pages; what makes it unsafe is buffers of a pool that are not the reader's.
	c.chunk = file.NewColumnReader(c.desc, c.pages, mem, f.BufferPool()) //nolint:staticcheck // see above
	c.n, c.at, c.value = 0, 0, 0
	return nil
}

func (c *column) close() error {
	if c.chunk == nil {
		return nil
	}
	chunk := c.chunk
	c.chunk = nil
	return chunk.Close()
}

// errColumnEnds tells that there is no entry left.
var errColumnEnds = errors.New("it ends before the row group's last row")

// peek makes sure that there is an entry.
func (c *column) peek() error {
	if c.at < c.n {
		return nil
	}
	if !c.chunk.HasNext() {
		if err := c.chunk.Err(); err != nil {
			return c.err(err)
		}
		return c.err(errColumnEnds)
	}
	batch := c.batch
	if c.pages.batch > 0 {
		batch = min(batch, c.pages.batch)
	}
	entries, read, err := c.values.fill(c.chunk, batch, c.def, c.rep)
	if err != nil {
		return c.err(err)
	}
	c.n, c.at, c.value = int(entries), 0, 0
	if want := c.present(); entries == 0 || read != want {
		return c.err(fmt.Errorf("a page has %d values where its levels promise %d", read, want))
	}
	return nil
}

// present counts the values that a batch must have.
func (c *column) present() int {
	if c.def == nil {
		return c.n
	}
	n := 0
	for _, d := range c.def[:c.n] {
		if d == c.maxDef {
			n++
		}
	}
	return n
}

// defined says how deep the entry is defined. Only after peek.
func (c *column) defined() int16 {
	if c.def == nil {
		return 0
	}
	return c.def[c.at]
}

// repeats says how deep the next entry repeats, and 0 at the end.
func (c *column) repeats() (int16, error) {
	if c.rep == nil {
		return 0, nil
	}
	switch err := c.peek(); {
	case errors.Is(err, errColumnEnds):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return c.rep[c.at], nil
}

// next goes on to the next entry.
func (c *column) next() {
	if c.defined() == c.maxDef {
		c.value++
	}
	c.at++
}

// skipRows passes over whole rows.
func (c *column) skipRows(n int64) error {
	for range n {
		if err := c.peek(); err != nil {
			return err
		}
		c.next()
		for c.rep != nil {
			depth, err := c.repeats()
			if err != nil {
				return err
			}
			if depth == 0 {
				break
			}
			c.next()
		}
	}
	return nil
}

func (c *column) err(err error) error { return fmt.Errorf("column %q: %w", c.desc.Path(), err) }
