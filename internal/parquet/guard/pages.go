package guard

import (
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

const (
	// MaxPageHeader bounds a page's header, which holds the smallest and the largest
	// value of the page.
	MaxPageHeader = 1 << 20
	// maxPageValues bounds the values of a page, nulls included: a few bytes can claim
	// two thousand millions of them.
	maxPageValues = 64 << 20
	// maxPrefixed bounds what one batch of values takes that are stored without what
	// they have in common with the value before.
	maxPrefixed = 16 << 20
)

// Pages gives a column's pages to the library, and refuses those for which it would
// take memory without bound: it takes some for each value that a header promises.
// It is for one goroutine.
type Pages struct {
	file.PageReader
	mem   *Memory
	width int64 // bytes that a value of the dictionary takes in memory
	dict  int64 // charged for the dictionary
	page  int64 // charged for the page
	batch int64 // how many values may be read from this page at once; 0: any
	err   error
}

// NewPages stands before inner. A value of the column's dictionary takes width bytes in
// memory, beside what it points to.
func NewPages(inner file.PageReader, mem *Memory, width int64) *Pages {
	inner.SetMaxPageHeaderSize(MaxPageHeader)
	return &Pages{PageReader: inner, mem: mem, width: width}
}

// Batch is how many values may be read of the page at once; 0: any.
func (p *Pages) Batch() int64 { return p.batch }

// SeekToPageWithRow implements file.PageReader.
func (p *Pages) SeekToPageWithRow(row int64) error {
	if p.err != nil {
		return p.err
	}
	p.leave()
	if err := p.PageReader.SeekToPageWithRow(row); err != nil {
		return err
	}
	if page := p.Page(); page != nil {
		p.err = p.admit(page)
	}
	return p.err
}

// leave gives back what the page took.
func (p *Pages) leave() {
	p.mem.Release(p.page)
	p.page, p.batch = 0, 0
}

// Next implements file.PageReader.
func (p *Pages) Next() bool {
	if p.err != nil {
		return false
	}
	p.leave()
	if !p.PageReader.Next() {
		return false
	}
	p.err = p.admit(p.Page())
	return p.err == nil
}

func (p *Pages) admit(page file.Page) error {
	n := int64(page.NumValues())
	if n > maxPageValues {
		return fmt.Errorf("a page of %d values: at most %d are taken", n, maxPageValues)
	}
	data, ok := page.(file.DataPage)
	if !ok {
		return p.admitDictionary(page)
	}
	switch parquet.Encoding(data.Encoding()) {
	case parquet.Encodings.DeltaByteArray:
		p.batch = max(1, maxPrefixed/max(1, int64(data.UncompressedSize())))
		p.page = 12 * n
	case parquet.Encodings.DeltaLengthByteArray:
		p.page = 4 * n
	default:
		return nil
	}
	return p.mem.Charge(p.page)
}

func (p *Pages) admitDictionary(page file.Page) error {
	if page.Type() != file.PageTypeDictionaryPage || p.dict > 0 {
		return nil
	}
	p.dict = 2 * p.width * int64(page.NumValues()) // it grows by copying
	return p.mem.Charge(p.dict)
}

// GetDictionaryPage implements file.PageReader.
func (p *Pages) GetDictionaryPage() (*file.DictionaryPage, error) {
	page, err := p.PageReader.GetDictionaryPage()
	if page == nil || err != nil {
		return page, err
	}
	return page, p.admitDictionary(page)
}

// Err implements file.PageReader.
func (p *Pages) Err() error {
	if p.err != nil {
		return p.err
	}
	return p.PageReader.Err()
}

// Close implements file.PageReader.
func (p *Pages) Close() error {
	p.mem.Release(p.page + p.dict)
	p.page, p.dict = 0, 0
	return p.PageReader.Close()
}
