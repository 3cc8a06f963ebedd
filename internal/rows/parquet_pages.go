package rows

import (
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

const (
	// maxPageHeader bounds a page's header, which holds the smallest and the largest
	// value of the page.
	maxPageHeader = 1 << 20
	// maxPageValues bounds the values of a page, nulls included: a few bytes can claim
	// two thousand millions of them.
	maxPageValues = 64 << 20
	// maxPrefixed bounds what one batch of values takes that are stored without what
	// they have in common with the value before.
	maxPrefixed = 16 << 20
)

// pages gives a column's pages to the library, and refuses those for which it would
// take memory without bound: it takes some for each value that a header promises.
type pages struct {
	file.PageReader
	mem   *pageMemory
	width int64 // bytes that a value of the dictionary takes in memory
	dict  int64 // charged for the dictionary
	page  int64 // charged for the page
	batch int64 // how many values may be read from this page at once; 0: any
	err   error
}

func (p *pages) Next() bool {
	if p.err != nil {
		return false
	}
	p.mem.release(p.page)
	p.page, p.batch = 0, 0
	if !p.PageReader.Next() {
		return false
	}
	p.err = p.admit(p.Page())
	return p.err == nil
}

func (p *pages) admit(page file.Page) error {
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
	return p.mem.charge(p.page)
}

func (p *pages) admitDictionary(page file.Page) error {
	if page.Type() != file.PageTypeDictionaryPage || p.dict > 0 {
		return nil
	}
	p.dict = 2 * p.width * int64(page.NumValues()) // it grows by copying
	return p.mem.charge(p.dict)
}

func (p *pages) GetDictionaryPage() (*file.DictionaryPage, error) {
	page, err := p.PageReader.GetDictionaryPage()
	if page == nil || err != nil {
		return page, err
	}
	return page, p.admitDictionary(page)
}

func (p *pages) Err() error {
	if p.err != nil {
		return p.err
	}
	return p.PageReader.Err()
}

func (p *pages) Close() error {
	p.mem.release(p.page + p.dict)
	p.page, p.dict = 0, 0
	return p.PageReader.Close()
}
