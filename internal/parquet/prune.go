package parquet

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	"github.com/spillway-mq/spillway/internal/parquet/guard"
)

// maxIndex bounds the page indexes of a row group's columns together: ours have a few
// KiB.
const maxIndex = 4 << 20

// wanted tells whether a row group can have what a filter takes.
func (r *Reader) wanted(group int, f *Filter) (bool, error) {
	first, last, _ := r.bounds(group, colOffset) // known since Open
	if uint64(last) < f.From || f.To > 0 && uint64(first) >= f.To {
		return false, nil
	}
	if _, latest, _ := r.bounds(group, colTime); !f.Since.IsZero() && latest < f.Since.UnixMicro() {
		return false, nil
	}
	if !f.HasKey || f.Key == nil {
		return true, nil
	}
	return r.mayHaveKey(group, f.Key)
}

// mayHaveKey asks the bloom filter.
func (r *Reader) mayHaveKey(group int, key []byte) (bool, error) {
	chunk, err := r.meta(group, colKey)
	if err != nil || chunk.BloomFilterOffset() <= 0 {
		return true, err
	}
	filters, err := r.file.GetBloomFilterReader().RowGroup(group)
	if err != nil {
		return false, err
	}
	may := true
	err = filters.VisitColumnBloomFilter(r.index[colKey], func(f metadata.BloomFilter) error {
		may = f.CheckHash(f.Hasher().Sum64(key))
		return nil
	})
	return may, err
}

// pageIndex is where the pages of a row group begin.
type pageIndex struct {
	firsts [columnCount][]int64 // the first row of each page; nil: unknown
	rows   int64                // of the row group
}

// pageIndex reads the page index of a row group. Only what is worth looking for is:
// a row group that is read from its first row to its last needs none.
func (r *Reader) pageIndex(group int) (*pageIndex, error) {
	index := &pageIndex{rows: r.file.MetaData().RowGroup(group).NumRows()}
	chunks := make([]*metadata.ColumnChunkMetaData, r.file.MetaData().Schema.NumColumns())
	low, high := r.in.size, int64(0)
	for i := range chunks {
		c, err := r.file.MetaData().RowGroup(group).ColumnChunk(i)
		if err != nil {
			return nil, err
		}
		at := c.GetOffsetIndexLocation()
		if at == nil {
			return index, nil
		}
		if !r.in.has(at.Offset, int64(at.Length)) {
			return nil, fmt.Errorf("the page index of row group %d is not in the file", group)
		}
		chunks[i], low, high = c, min(low, at.Offset), max(high, at.Offset+int64(at.Length))
	}
	if high-low > maxIndex {
		return nil, fmt.Errorf("the page index of row group %d has %d bytes: at most %d are taken", group, high-low, maxIndex)
	}
	data := make([]byte, high-low) // the library reads the same bytes again, all of them
	if _, err := r.in.ReadAt(data, low); err != nil {
		return nil, err
	}
	// All columns are looked at: the library takes any that is asked for.
	firsts := make([][]int64, len(chunks))
	for i, c := range chunks {
		at := c.GetOffsetIndexLocation()
		var err error
		if firsts[i], err = firstRows(data[at.Offset-low:][:at.Length], index.rows); err != nil {
			return nil, fmt.Errorf("the page index of row group %d, column %s: %w", group, r.file.MetaData().Schema.Column(i).Path(), err)
		}
	}
	for i, at := range r.index {
		index.firsts[i] = firsts[at]
	}
	return index, nil
}

// firstRows decodes the index of a column's pages.
func firstRows(data []byte, rows int64) ([]int64, error) {
	if err := guard.OffsetIndex(data); err != nil {
		return nil, err
	}
	pages := metadata.NewOffsetIndex(data, nil, nil).GetPageLocations()
	firsts := make([]int64, len(pages))
	for i, p := range pages {
		firsts[i] = p.GetFirstRowIndex()
		if i == 0 && firsts[i] != 0 || i > 0 && firsts[i] <= firsts[i-1] || firsts[i] >= rows {
			return nil, fmt.Errorf("page %d of %d rows begins at row %d", i, rows, firsts[i])
		}
	}
	if len(firsts) == 0 {
		return nil, fmt.Errorf("it has no pages")
	}
	return firsts, nil
}

// span gives the rows of a row group, from one to before another, that can be what a
// filter takes, as far as the bounds of pages tell.
func (r *Reader) span(group int, index *pageIndex, f *Filter) (from, to int64, err error) {
	to = index.rows
	low, high, err := r.pageBounds(group, colOffset, index)
	if err != nil || high == nil {
		return from, to, err
	}
	// Offsets ascend, so what is wanted is a span of them.
	if i := firstAtLeast(high, min(f.From, 1<<63-1)); i == len(high) {
		return to, to, nil
	} else {
		from = index.firsts[colOffset][i]
	}
	if f.To > 0 {
		if i := firstAtLeast(low, min(f.To, 1<<63-1)); i < len(low) {
			to = index.firsts[colOffset][i]
		}
	}
	if f.Since.IsZero() {
		return from, to, nil
	}
	// Times need not ascend: pages are passed over up to the first that can be meant.
	_, latest, err := r.pageBounds(group, colTime, index)
	if err != nil || latest == nil {
		return from, to, err
	}
	i := slices.IndexFunc(latest, func(t int64) bool { return t >= f.Since.UnixMicro() })
	if i < 0 {
		return to, to, nil
	}
	return max(from, index.firsts[colTime][i]), to, nil
}

func firstAtLeast(ascending []int64, n uint64) int {
	i, _ := slices.BinarySearch(ascending, int64(n))
	return i
}

// pageBounds gives the smallest and the largest number of each page of a column, nil
// where they are not there.
func (r *Reader) pageBounds(group, column int, index *pageIndex) (low, high []int64, err error) {
	chunk, err := r.meta(group, column)
	if err != nil {
		return nil, nil, err
	}
	at, pages := chunk.GetColumnIndexLocation(), len(index.firsts[column])
	if at == nil || pages == 0 {
		return nil, nil, nil
	}
	if !r.in.has(at.Offset, int64(at.Length)) || at.Length > maxIndex {
		return nil, nil, fmt.Errorf("the bounds of the pages of %s in row group %d are not in the file", paths()[column], group)
	}
	data := make([]byte, at.Length)
	if _, err := r.in.ReadAt(data, at.Offset); err != nil {
		return nil, nil, err
	}
	if err := guard.ColumnIndex(data); err != nil {
		return nil, nil, fmt.Errorf("the bounds of the pages of %s in row group %d: %w", paths()[column], group, err)
	}
	bounds, ok := metadata.NewColumnIndex(fileSchema().Column(column), data, parquet.NewReaderProperties(r.mem), nil).(*metadata.TypedColumnIndex[int64])
	if !ok {
		return nil, nil, fmt.Errorf("the bounds of the pages of %s in row group %d are no numbers", paths()[column], group)
	}
	low, high = bounds.MinValues(), bounds.MaxValues()
	if len(low) != pages || len(high) != pages || !slices.IsSorted(low) && column == colOffset || !slices.IsSorted(high) && column == colOffset {
		return nil, nil, fmt.Errorf("the bounds of %d pages of %s in row group %d are not in order", pages, paths()[column], group)
	}
	return low, high, nil
}
