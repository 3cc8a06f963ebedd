package main

import (
	"context"
	"errors"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
)

// How much a dry run reads.
const (
	sampleObjects = 8
	sampleBytes   = 1 << 20
	// sampleParquet is more, as the first row is spread over all columns.
	sampleParquet = 8 << 20
	sampleRows    = 3 // that are shown, of an object
	sampleValue   = 100
)

// sample is what the beginnings of some objects tell of all.
type sample struct {
	Objects  int             `json:"objects"`
	Bytes    uint64          `json:"bytes"` // of the objects, that were read
	Rows     uint64          `json:"rows"`
	Values   uint64          `json:"value_bytes"`
	Rejected uint64          `json:"rejected"`
	Filtered uint64          `json:"filtered"`
	NoKey    uint64          `json:"without_key"`
	NoTime   uint64          `json:"without_time"`
	Failed   []sampledObject `json:"failed"`
	First    []sampledRow    `json:"first"`
}

// sampledObject is one that cannot be read as the job would.
type sampledObject struct {
	Object string `json:"object"`
	Error  string `json:"error"`
}

// sampledRow is a row as the job would take it.
type sampledRow struct {
	Object   string     `json:"object"`
	Row      uint64     `json:"row"`
	Key      *string    `json:"key"`
	Time     *time.Time `json:"time"`
	Value    string     `json:"value"` // its beginning
	Rejected string     `json:"rejected,omitempty"`
	Filtered bool       `json:"filtered,omitempty"`
}

// sampler reads the beginnings of objects.
type sampler struct {
	sample
	read backfill.Read
	pick *rows.Picker
	s3   *object.Store // nil: there are only files
}

// sampleOf reads the beginnings of the first objects of a job. Its error ends it; what is
// wrong with an object is in the sample.
func sampleOf(ctx context.Context, s3 *object.Store, j backfill.Job) (sample, error) {
	pick, err := j.Read.Picker()
	if err != nil {
		return sample{}, err
	}
	s := sampler{sample{Failed: []sampledObject{}, First: []sampledRow{}}, j.Read, pick, s3}
	for n := 0; s.Objects < sampleObjects; n++ {
		more := false
		for _, source := range j.Sources {
			if n >= len(source.Objects) || s.Objects == sampleObjects {
				continue
			}
			more = true
			if err := s.object(ctx, source.Objects[n]); err != nil {
				return s.sample, err
			}
		}
		if !more {
			break
		}
	}
	return s.sample, nil
}

// errSampled says that enough was read of a file.
var errSampled = errors.New("enough was read")

// beginning is as much of a file as a sample reads. It is for one goroutine.
type beginning struct {
	rows.File
	left int
	cut  bool
}

// ReadAt ends with errSampled.
func (b *beginning) ReadAt(p []byte, off int64) (int, error) {
	if len(p) <= b.left {
		n, err := b.File.ReadAt(p, off)
		b.left -= n
		return n, err
	}
	n, err := b.File.ReadAt(p[:b.left], off)
	b.left -= n
	if err == nil {
		b.cut, err = true, errSampled
	}
	return n, err
}

// object samples one. What only concerns it is noted.
func (s *sampler) object(ctx context.Context, o backfill.Object) error {
	s.Objects++
	file, done, err := s.open(ctx, o)
	if err == nil {
		defer done()
		err = s.rows(o, file)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
	case is[*object.UnavailableError](err), errors.Is(err, object.ErrForbidden):
		return err
	default:
		s.Failed = append(s.Failed, sampledObject{o.String(), err.Error()})
	}
	return nil
}

func (s *sampler) open(ctx context.Context, o backfill.Object) (rows.File, func(), error) {
	if o.Path == "" {
		f := s.s3.File(ctx, o.Name(), o.Size, o.ETag)
		return f, func() { _ = f.Close() }, nil // read-only
	}
	f, err := backfill.OpenLocal(o.Path, o.ETag)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { _ = f.Close() }, nil // read-only
}

// rows reads the first rows of an object.
func (s *sampler) rows(o backfill.Object, file rows.File) error {
	how := s.read.Options(o)
	head := make([]byte, min(rows.HeadSize, file.Size()))
	if n, err := file.ReadAt(head, 0); n < len(head) {
		return err
	}
	if err := rows.Check(o.String(), how.Format, how.Compression, head); err != nil {
		return err
	}
	most := sampleBytes
	if how.Format == rows.Parquet {
		most = sampleParquet
	}
	in := &beginning{File: file, left: most}
	r, err := rows.Open(in, how)
	if err == nil {
		defer r.Close() //nolint:errcheck // read-only
		err = s.take(o, r)
	}
	switch {
	case in.cut && errors.Is(err, errSampled):
		s.Bytes += uint64(most - in.left)
		return nil
	case err == io.EOF: //nolint:errorlint // the contract is io.EOF itself
		s.Bytes += uint64(file.Size())
		return nil
	}
	s.Bytes += uint64(file.Size())
	return err
}

// take looks at rows until an error ends them.
func (s *sampler) take(o backfill.Object, r rows.Reader) error {
	for shown := 0; ; shown++ {
		row, err := r.Next()
		if err != nil {
			return err
		}
		seen := s.row(row)
		if shown < sampleRows && len(s.First) < sampleObjects*sampleRows {
			seen.Object = o.String()
			s.First = append(s.First, seen)
		}
	}
}

// row counts a row.
func (s *sampler) row(row rows.Row) sampledRow {
	s.Rows++
	s.Values += uint64(len(row.Value))
	seen := sampledRow{Row: row.N, Value: beginningOf(row.Value), Rejected: row.Rejected}
	var picked rows.Picked
	if row.Rejected == "" {
		var err error
		if picked, err = s.pick.Pick(row.Value); err != nil {
			seen.Rejected = err.Error()
		}
	}
	if seen.Rejected != "" {
		s.Rejected++
		return seen
	}
	if picked.Key == nil {
		s.NoKey++
	} else {
		key := string(picked.Key)
		seen.Key = &key
	}
	if seen.Time = timeOrNil(picked.Time); seen.Time == nil {
		s.NoTime++
	}
	if seen.Filtered = !s.read.Within(picked.Time); seen.Filtered {
		s.Filtered++
	}
	return seen
}

// beginningOf is the beginning of a value, as text.
func beginningOf(value []byte) string {
	if len(value) <= sampleValue {
		return string(value)
	}
	cut := sampleValue
	for cut > 0 && !utf8.RuneStart(value[cut]) {
		cut--
	}
	return string(value[:cut]) + "…"
}
