package parquet

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/parquet"
)

// checkEvery is after how many rows a scan looks whether its context has ended.
const checkEvery = 256

// Rows gives the rows that a filter takes, in order. A row is valid until the next one:
// [record.Record.Clone] keeps its record. The first error ends it.
func (r *Reader) Rows(ctx context.Context, f Filter) iter.Seq2[*Row, error] {
	return r.iterate(ctx, f, false)
}

// Records gives the records that a filter takes, as the log had them: of the rows of a
// batch the one record that refers to it, without a value. Else it is as Rows.
func (r *Reader) Records(ctx context.Context, f Filter) iter.Seq2[*Row, error] {
	return r.iterate(ctx, f, true)
}

func (r *Reader) iterate(ctx context.Context, f Filter, fold bool) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		s, err := r.newScan(f, fold)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = s.finish() }() // it was only read
		for {
			row, err := s.next(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if row == nil || !yield(row, nil) {
				return
			}
		}
	}
}

// scan goes over the rows of a file.
type scan struct {
	r      *Reader
	filter Filter
	fold   bool
	group  int   // that comes next
	at, to int64 // the rows of the open row group that come next
	seen   bool  // there was a row, with this offset:
	last   uint64
	row    rowReader
}

func (r *Reader) newScan(f Filter, fold bool) (s *scan, err error) {
	defer r.border(&err)
	r.in.err = nil
	return &scan{r: r, filter: f, fold: fold, row: newRowReader(r)}, nil
}

// next gives the next row that the filter takes, nil at the end.
func (s *scan) next(ctx context.Context) (*Row, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if row, end, err := s.steps(); row != nil || end || err != nil {
			return row, err
		}
	}
}

// steps looks at some rows, up to the next that the filter takes.
func (s *scan) steps() (row *Row, end bool, err error) {
	defer s.r.border(&err)
	for range checkEvery {
		if s.at == s.to {
			more, err := s.nextGroup()
			if err != nil || !more {
				return nil, true, err
			}
		}
		n := s.at
		s.at++
		take, err := s.takes(n)
		if err != nil {
			return nil, false, err
		}
		if take {
			row, err = s.row.read(n, s.fold, !s.filter.NoValues)
			return row, false, err
		}
	}
	return nil, false, nil
}

// nextGroup opens the next row group that can have something.
func (s *scan) nextGroup() (bool, error) {
	if err := s.finish(); err != nil {
		return false, err
	}
	for s.group < s.r.stats.Groups {
		group := s.group
		s.group++
		wanted, err := s.r.wanted(group, &s.filter)
		if err != nil {
			return false, err
		}
		if !wanted {
			continue
		}
		index := &pageIndex{rows: s.r.file.MetaData().RowGroup(group).NumRows()}
		s.at, s.to = 0, index.rows
		if s.narrow(group) {
			if index, err = s.r.pageIndex(group); err != nil {
				return false, err
			}
			if s.at, s.to, err = s.r.span(group, index, &s.filter); err != nil {
				return false, err
			}
		}
		if s.at >= s.to {
			s.at, s.to = 0, 0
			continue
		}
		s.row.open(s.r, group, index)
		return true, nil
	}
	return false, nil
}

// narrow tells whether the page index can save something: not where all rows of a row
// group are taken.
func (s *scan) narrow(group int) bool {
	first, last, _ := s.r.bounds(group, colOffset)
	earliest, _, _ := s.r.bounds(group, colTime)
	f := &s.filter
	return f.HasKey || f.From > uint64(first) || f.To > 0 && f.To <= uint64(last) || !f.Since.IsZero() && earliest < f.Since.UnixMicro()
}

// takes looks at the columns that the filter is about.
func (s *scan) takes(n int64) (bool, error) {
	offset, err := s.row.readOffset(n)
	if err != nil {
		return false, err
	}
	again := s.seen && offset == s.last
	if s.seen && offset < s.last {
		return false, fmt.Errorf("offset %d comes after %d", offset, s.last)
	}
	s.seen, s.last = true, offset
	f := &s.filter
	switch {
	case s.fold && again, offset < f.From:
		return false, nil
	case f.To > 0 && offset >= f.To:
		s.at, s.group = s.to, s.r.stats.Groups
		return false, nil
	}
	if !f.Since.IsZero() {
		t, err := s.row.readTime(n)
		if err != nil || t.Before(f.Since) {
			return false, err
		}
	}
	if !f.HasKey {
		return true, nil
	}
	key, err := s.row.readKey(n)
	return err == nil && (key == nil) == (f.Key == nil) && bytes.Equal(key, f.Key), err
}

func (s *scan) finish() (err error) {
	defer s.r.border(&err)
	return s.row.finish()
}

// maxTexts bounds the texts that a rowReader keeps.
const maxTexts = 4096

// textCache makes strings of texts that come again and again only once.
type textCache map[string]string

func (c textCache) of(v parquet.ByteArray) string {
	s, known := c[string(v)]
	if !known {
		s = string(v)
		if len(s) <= longWord {
			if len(c) >= maxTexts {
				clear(c)
			}
			c[s] = s
		}
	}
	return s
}
