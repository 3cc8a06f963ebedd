package record

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// Meta is what the records of one batch have in common.
type Meta struct {
	Time     time.Time
	Sequence uint64
	ID       *ID
	Source   string // the source's name, for the caller's slotOf; not encoded
}

// EncodeBatch appends a lane batch: the block that holds rows messages, whose
// bytes are data (results of [AppendMessage] one after the other, which it
// trusts). On an error dst is returned as it was.
func EncodeBatch(dst []byte, codec string, rows int, data []byte) ([]byte, error) {
	if err := checkCodec(codec); err != nil {
		return dst, err
	}
	if rows < 1 || rows > MaxBatchRows {
		return dst, invalid("batch", "it has %d rows, allowed are 1 to %d", rows, MaxBatchRows)
	}
	if len(data) > MaxBatchBytes {
		return dst, invalid("batch", "it has %d bytes, at most %d are allowed", len(data), MaxBatchBytes)
	}
	return appendBlock(dst, codec, rows, data), nil
}

// appendBlock appends an Avro block without its sync marker.
func appendBlock(dst []byte, codec string, rows int, data []byte) []byte {
	dst = binary.AppendVarint(dst, int64(rows))
	if codec == CodecNull {
		return appendBytes(dst, data)
	}
	packed := getBuffer()
	defer putBuffer(packed)
	*packed = encoder.EncodeAll(data, *packed)
	return appendBytes(dst, *packed)
}

// openBatch checks a batch's frame and unpacks it into scratch, or gives the
// part of the payload that is the data. Every row of the result still has to be
// checked.
func openBatch(scratch *[]byte, codec string, payload []byte) (rows int, data []byte, err error) {
	if err := checkCodec(codec); err != nil {
		return 0, nil, err
	}
	c := cursor{data: payload, field: "batch row count"}
	n := c.long()
	if c.err == nil && (n < 1 || n > MaxBatchRows) {
		c.fail("%d is not within 1 to %d", n, MaxBatchRows)
	}
	c.field = "batch data"
	packed := c.bytes()
	if c.err == nil && c.pos != len(payload) {
		c.fail("%d bytes follow it", len(payload)-c.pos)
	}
	if c.err != nil {
		return 0, nil, c.err
	}
	data, bad := unpack(scratch, codec, packed, MaxBatchBytes)
	if bad != nil {
		return 0, nil, bad
	}
	if int(n) > len(data)/minMessage {
		return 0, nil, &FormatError{fmt.Sprintf("batch row count: %d rows cannot be in %d bytes", n, len(data)), 0}
	}
	return int(n), data, nil
}

// rowError adds the row to what went wrong in it.
func rowError(row int, err *FormatError) error {
	return &FormatError{fmt.Sprintf("row %d: %s", row, err.What), err.Offset}
}

// endOfBatch checks that the rows used up the data.
func (c *cursor) endOfBatch(rows int) error {
	if rest := len(c.data) - c.pos; rest != 0 {
		return &FormatError{fmt.Sprintf("%d bytes follow the last of %d rows", rest, rows), c.pos}
	}
	return nil
}

// DecodeBatch decodes a batch that the lane delivered under m. It accepts
// exactly what [Set.AppendBatch] accepts. The records share memory with each
// other (and m.ID), not with the payload.
func DecodeBatch(m Meta, codec string, payload []byte) ([]Record, error) {
	if codec == CodecNull {
		payload = slices.Clone(payload)
	}
	rows, data, err := openBatch(new([]byte), codec, payload)
	if err != nil {
		return nil, err
	}
	if _, err := m.prefix(); err != nil {
		return nil, err
	}
	recs := make([]Record, rows)
	c := cursor{data: data, names: map[string]string{}}
	for i := range recs {
		m.fill(&recs[i], uint32(i))
		if c.message(&recs[i]); c.err != nil {
			return nil, rowError(i, c.err)
		}
	}
	if err := c.endOfBatch(rows); err != nil {
		return nil, err
	}
	return recs, nil
}
