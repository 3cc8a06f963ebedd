package parquet

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/parquet"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

type (
	longColumn = *column[int64]
	textColumn = *column[parquet.ByteArray]
)

// rowReader puts the columns of a row group together to rows. Of each row the columns
// are read that are asked for, and no column is read before.
type rowReader struct {
	segment, key, headerName, headerValue  textColumn
	url, etag, version, mediaType, sha256  textColumn
	rejected, err, source, producer, value textColumn
	offset, time, eventTime, size, records longColumn
	sequence, sourceRow, producerSequence  longColumn
	pending                                *column[bool]
	batch                                  *column[int32]
	all                                    [columnCount]scanner
	texts                                  textCache
	row                                    Row
	id                                     record.ID
	ref                                    record.Ref
	count                                  int64
	scratch                                []byte // of header values
	timeOf, keyOf                          int64  // the rows that these are of
}

func newRowReader(r *Reader) rowReader {
	text := func(i int) textColumn { return newColumn[parquet.ByteArray](r, i) }
	long := func(i int) longColumn { return newColumn[int64](r, i) }
	rr := rowReader{
		segment: text(colSegment), key: text(colKey), headerName: text(colHeaderName), headerValue: text(colHeaderValue),
		url: text(colURL), etag: text(colETag), version: text(colVersion), mediaType: text(colContentType), sha256: text(colSHA256),
		rejected: text(colRejected), err: text(colError), source: text(colSource), producer: text(colProducer), value: text(colValue),
		offset: long(colOffset), time: long(colTime), eventTime: long(colEventTime), size: long(colSize), records: long(colRecords),
		sequence: long(colSequence), sourceRow: long(colSourceRow), producerSequence: long(colProducerSequence),
		pending: newColumn[bool](r, colPending), batch: newColumn[int32](r, colRow), texts: textCache{}, scratch: []byte{},
	}
	rr.all = [columnCount]scanner{
		rr.segment, rr.offset, rr.time, rr.eventTime, rr.key, rr.headerName, rr.headerValue,
		rr.url, rr.size, rr.etag, rr.version, rr.mediaType, rr.sha256, rr.records, rr.pending,
		rr.rejected, rr.batch, rr.err, rr.source, rr.sequence, rr.sourceRow, rr.producer, rr.producerSequence, rr.value,
	}
	return rr
}

func (rr *rowReader) open(r *Reader, group int, index *pageIndex) {
	rows := r.file.RowGroup(group)
	for i, c := range rr.all {
		c.open(rows, index.firsts[i])
	}
	rr.timeOf, rr.keyOf = -1, -1
}

func (rr *rowReader) finish() error {
	for _, c := range rr.all {
		if err := c.finish(); err != nil {
			return err
		}
	}
	return nil
}

func (rr *rowReader) readOffset(n int64) (uint64, error) {
	v, _, err := rr.offset.get(n)
	if err == nil && v < 0 {
		err = fmt.Errorf("row %d has the offset %d", n, v)
	}
	rr.row.Offset = uint64(v)
	return uint64(v), err
}

func (rr *rowReader) readTime(n int64) (time.Time, error) {
	if rr.timeOf == n {
		return rr.row.Time, nil
	}
	v, _, err := rr.time.get(n)
	rr.row.Time, rr.timeOf = unixMicro(v), n
	if err == nil && !storable(rr.row.Time) {
		err = fmt.Errorf("row %d has the time %d", n, v)
	}
	return rr.row.Time, err
}

func (rr *rowReader) readKey(n int64) ([]byte, error) {
	if rr.keyOf == n {
		return rr.row.Key, nil
	}
	var err error
	rr.row.Key, err = rr.bytes(rr.key, n)
	rr.keyOf = n
	return rr.row.Key, err
}

// bytes reads an optional value: nil if it is not there.
func (rr *rowReader) bytes(c textColumn, n int64) ([]byte, error) {
	v, def, err := c.get(n)
	if err != nil || def < c.desc.MaxDefinitionLevel() {
		return nil, err
	}
	if v == nil {
		v = parquet.ByteArray{}
	}
	return v, nil
}

// text reads an optional text: empty if it is not there.
func (rr *rowReader) text(c textColumn, n int64) (string, error) {
	v, _, err := c.get(n)
	if err != nil || len(v) == 0 {
		return "", err
	}
	return rr.texts.of(v), nil
}

// read reads the rest of a row whose offset is read.
func (rr *rowReader) read(n int64, fold, values bool) (*Row, error) {
	row := &rr.row
	if _, err := rr.readTime(n); err != nil {
		return nil, err
	}
	if _, err := rr.readKey(n); err != nil {
		return nil, err
	}
	if err := rr.readSource(n); err != nil {
		return nil, err
	}
	if err := rr.readBatch(n); err != nil {
		return nil, err
	}
	if err := rr.readID(n); err != nil {
		return nil, err
	}
	if err := rr.readHeaders(n); err != nil {
		return nil, err
	}
	if err := rr.readRef(n); err != nil {
		return nil, err
	}
	var err error
	if row.Rejected, err = rr.text(rr.rejected, n); err != nil {
		return nil, err
	}
	row.Value = nil
	if fold && row.Batch >= 0 {
		row.Batch = NoBatch
		return row, nil
	}
	if row.Error, err = rr.text(rr.err, n); err != nil {
		return nil, err
	}
	if fold {
		row.Error = ""
	}
	if values {
		row.Value, err = rr.bytes(rr.value, n)
	}
	return row, err
}

func (rr *rowReader) readSource(n int64) error {
	row := &rr.row
	segment, err := rr.text(rr.segment, n)
	if err != nil {
		return err
	}
	row.Segment = topic.SegmentID(segment)
	if row.Source, err = rr.text(rr.source, n); err != nil {
		return err
	}
	sequence, _, err := rr.sequence.get(n)
	if err != nil {
		return err
	}
	at, _, err := rr.sourceRow.get(n)
	if err == nil && (at < 0 || at > math.MaxUint32) {
		err = fmt.Errorf("row %d is row %d of its source's message", n, at)
	}
	row.Position = topic.Position{Sequence: uint64(sequence), Row: uint32(at)}
	return err
}

func (rr *rowReader) readBatch(n int64) error {
	row := &rr.row
	batch, def, err := rr.batch.get(n)
	if err != nil {
		return err
	}
	row.Batch, row.Error = NoBatch, ""
	if def > 0 {
		if batch < 0 {
			return fmt.Errorf("row %d is row %d of a batch", n, batch)
		}
		row.Batch = batch
	}
	event, def, err := rr.eventTime.get(n)
	if err != nil {
		return err
	}
	row.EventTime = time.Time{}
	if def > 0 {
		row.EventTime = unixMicro(event)
		if !storable(row.EventTime) {
			return fmt.Errorf("row %d has the event time %d", n, event)
		}
	}
	return nil
}

func (rr *rowReader) readID(n int64) error {
	producer, def, err := rr.producer.get(n)
	if err != nil {
		return err
	}
	sequence, has, err := rr.producerSequence.get(n)
	if err != nil {
		return err
	}
	if def != has {
		return fmt.Errorf("row %d has half of a producer's identity", n)
	}
	rr.row.ID = nil
	if def > 0 {
		rr.id = record.ID{Producer: rr.texts.of(producer), Sequence: uint64(sequence)}
		rr.row.ID = &rr.id
	}
	return nil
}

// readHeaders copies the values: the page that one is in may end within a row.
func (rr *rowReader) readHeaders(n int64) error {
	row := &rr.row
	row.Headers, rr.scratch = row.Headers[:0], rr.scratch[:0]
	for _, c := range [...]textColumn{rr.headerName, rr.headerValue} {
		if err := c.to(n); err != nil {
			return err
		}
		c.row++
	}
	for more := true; more; {
		if err := rr.headerName.peek(); err != nil {
			return err
		}
		if err := rr.headerValue.peek(); err != nil {
			return err
		}
		name, def := rr.headerName.take()
		value, valueDef := rr.headerValue.take()
		if def != valueDef || len(row.Headers) == record.MaxHeaders {
			return fmt.Errorf("row %d has half of a header, or more than %d of them", n, record.MaxHeaders)
		}
		if def == inOptional {
			begin := len(rr.scratch)
			rr.scratch = append(rr.scratch, value...)
			row.Headers = append(row.Headers, record.Header{Name: rr.texts.of(name), Value: rr.scratch[begin:len(rr.scratch):len(rr.scratch)]})
		}
		var err error
		if more, err = rr.headerName.more(); err != nil {
			return err
		}
		if also, err := rr.headerValue.more(); err != nil || also != more {
			return cmp.Or(err, fmt.Errorf("row %d has half of a header", n))
		}
	}
	if len(row.Headers) == 0 {
		row.Headers = nil
	}
	return nil
}

func (rr *rowReader) readRef(n int64) error {
	row := &rr.row
	url, def, err := rr.url.get(n)
	if err != nil {
		return err
	}
	row.Ref, row.Pending = nil, false
	if def == 0 {
		return nil
	}
	f := &rr.ref
	*f = record.Ref{URL: string(url)}
	var sizeDef, pendingDef int16
	if f.Size, sizeDef, err = rr.size.get(n); err != nil {
		return err
	}
	if row.Pending, pendingDef, err = rr.pending.get(n); err != nil {
		return err
	}
	if sizeDef != def || pendingDef != def {
		return fmt.Errorf("row %d has half of a reference", n)
	}
	for _, t := range [...]struct {
		column textColumn
		to     *string
	}{{rr.etag, &f.ETag}, {rr.version, &f.Version}, {rr.mediaType, &f.ContentType}} {
		if *t.to, err = rr.text(t.column, n); err != nil {
			return err
		}
	}
	if f.SHA256, err = rr.bytes(rr.sha256, n); err == nil && f.SHA256 != nil && len(f.SHA256) != sha256.Size {
		err = fmt.Errorf("row %d has a SHA-256 of %d bytes", n, len(f.SHA256))
	}
	if err != nil {
		return err
	}
	count, def, err := rr.records.get(n)
	if def == inOptional {
		rr.count = count
		f.Records = &rr.count
	}
	row.Ref = f
	return err
}
