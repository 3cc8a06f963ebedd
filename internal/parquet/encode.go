package parquet

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
)

// Bounds of what is given to the library at a time, which looks only then whether a page
// is full.
const (
	batchBytes = 64 << 10
	batchRows  = 1024
)

// encodeGroup writes a row group.
func encodeGroup(f *file.Writer, g *group) (err error) {
	defer recovered(&err)
	rows, err := f.AppendRowGroupChecked()
	if err != nil {
		return err
	}
	e := &encoder{rows: rows, n: g.rows}
	one := &levels{} // of columns that are never null
	e.words(nil, &g.segment)
	e.indexed(&g.offset)
	e.indexed(&g.time)
	e.longs(&g.eventTime.levels, &g.eventTime)
	e.bytes(&g.key.levels, nil, &g.key)
	e.words(g.headerRep, &g.headerName)
	e.bytes(&g.headerName.levels, g.headerRep, &g.headerValue)
	e.bytes(&g.url.levels, nil, &g.url)
	e.longs(&g.url.levels, &g.size)
	for _, t := range []*texts{&g.etag, &g.version, &g.mediaType, &g.sha256} {
		e.bytes(&t.levels, nil, t)
	}
	e.longs(&g.records.levels, &g.records)
	e.booleans(&g.url.levels, &g.pending)
	e.bytes(&g.rejected.levels, nil, &g.rejected)
	e.ints(&g.row)
	e.bytes(&g.err.levels, nil, &g.err)
	e.words(nil, &g.source)
	e.longs(one, &g.sequence)
	e.longs(one, &g.sourceRow)
	e.words(nil, &g.producer)
	e.longs(&g.producerSequence.levels, &g.producerSequence)
	e.bytes(&g.value.levels, nil, &g.value)
	if e.err != nil {
		return e.err
	}
	return rows.Close()
}

// encoder writes the columns of a row group one after the other, until the first error.
type encoder struct {
	rows   file.SerialRowGroupWriter
	n      int
	column int
	batch  []parquet.ByteArray
	err    error
}

// next is the writer of the next column, if it is of the type.
func next[W file.ColumnChunkWriter](e *encoder) (w W, ok bool) {
	if e.err != nil {
		return w, false
	}
	column, err := e.rows.NextColumn()
	if err != nil {
		e.err = fmt.Errorf("column %s: %w", paths()[e.column], err)
		return w, false
	}
	if w, ok = column.(W); !ok {
		e.err = fmt.Errorf("column %s is written by a %T", paths()[e.column], column)
	}
	e.column++
	return w, ok
}

func (e *encoder) wrote(err error) {
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("column %s: %w", paths()[e.column-1], err)
	}
}

// def gives the definition levels of all rows; a required column has none.
func (e *encoder) def(l *levels, column interface{ LevelInfo() file.LevelInfo }) []int16 {
	if column.LevelInfo().DefLevel == 0 {
		return nil
	}
	if column.LevelInfo().RepLevel == 0 {
		l.fill(e.n)
	}
	return l.def
}

// indexed writes a column of which the page index tells where a row is.
func (e *encoder) indexed(c *numbers[int64]) {
	w, ok := next[*file.Int64ColumnChunkWriter](e)
	for values := c.values; ok && len(values) > 0 && e.err == nil; {
		n := min(len(values), indexedRows)
		_, err := w.WriteBatch(values[:n], nil, nil)
		if err == nil && n < len(values) {
			err = w.FlushCurrentPage()
		}
		e.wrote(err)
		values = values[n:]
	}
}

func (e *encoder) longs(l *levels, c *numbers[int64]) {
	if w, ok := next[*file.Int64ColumnChunkWriter](e); ok {
		_, err := w.WriteBatch(c.values, e.def(l, w), nil)
		e.wrote(err)
	}
}

func (e *encoder) ints(c *numbers[int32]) {
	if w, ok := next[*file.Int32ColumnChunkWriter](e); ok {
		_, err := w.WriteBatch(c.values, e.def(&c.levels, w), nil)
		e.wrote(err)
	}
}

func (e *encoder) booleans(l *levels, c *numbers[bool]) {
	if w, ok := next[*file.BooleanColumnChunkWriter](e); ok {
		_, err := w.WriteBatch(c.values, e.def(l, w), nil)
		e.wrote(err)
	}
}

// bytes writes a column of texts in batches of whole rows.
func (e *encoder) bytes(l *levels, rep []int16, t *texts) {
	w, ok := next[*file.ByteArrayColumnChunkWriter](e)
	if !ok {
		return
	}
	def, deepest := e.def(l, w), w.LevelInfo().DefLevel
	entries := e.n
	if def != nil {
		entries = len(def)
	}
	values := textsIter{t: t}
	for at := 0; at < entries && e.err == nil; {
		begin, size := at, 0
		e.batch = e.batch[:0]
		for at < entries && (at == begin || len(rep) > 0 && rep[at] > 0 || at-begin < batchRows && size < batchBytes) {
			if len(def) == 0 || def[at] == deepest {
				v := values.next()
				e.batch = append(e.batch, v)
				size += len(v)
			}
			at++
		}
		_, err := w.WriteBatch(e.batch, part(def, begin, at), part(rep, begin, at))
		e.wrote(err)
	}
}

// dictionary is what the library's encoder of words can do.
type dictionary interface {
	PutDictionary(arrow.Array) error
}

// words writes a column by its dictionary. The library would look up each value again.
func (e *encoder) words(rep []int16, c *words) {
	if c.many {
		e.bytes(&c.levels, rep, &c.texts)
		return
	}
	w, ok := next[*file.ByteArrayColumnChunkWriter](e)
	if !ok {
		return
	}
	d, ok := w.CurrentEncoder().(dictionary)
	if !ok {
		e.wrote(fmt.Errorf("it is encoded by a %T", w.CurrentEncoder()))
		return
	}
	list := arrayOf(c.list)
	defer list.Release()
	if err := d.PutDictionary(list); err != nil {
		e.wrote(err)
		return
	}
	if s, ok := w.PageStatistics().(*metadata.ByteArrayStatistics); ok {
		for _, word := range c.list {
			s.Update([]parquet.ByteArray{parquet.ByteArray(word)}, 0)
		}
	}
	def := e.def(&c.levels, w)
	indices := indicesOf(c.spaced(def, rep != nil))
	defer indices.Release()
	e.wrote(w.WriteDictIndices(indices, def, rep))
}

func arrayOf(list []string) *array.String {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(list, nil)
	return b.NewStringArray()
}

// indicesOf makes an array of indices; a nil there says that none is null.
func indicesOf(indices []int32, there []byte) *array.Int32 {
	buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(indices))}
	nulls := 0
	if there != nil {
		buffers[0], nulls = memory.NewBufferBytes(there), array.UnknownNullCount
	}
	data := array.NewData(arrow.PrimitiveTypes.Int32, len(indices), buffers, nil, nulls, 0)
	defer data.Release()
	return array.NewInt32Data(data)
}

func part(levels []int16, i, j int) []int16 {
	if levels == nil {
		return nil
	}
	return levels[i:j]
}
