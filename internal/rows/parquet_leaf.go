package rows

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// leafValues gives the values of a column, and how they look.
func leafValues(desc *schema.Column) (values, error) {
	logical := desc.LogicalType()
	if d, ok := logical.(schema.DecimalLogicalType); ok && (d.Scale() < 0 || d.Scale() > maxDecimal) {
		return nil, fmt.Errorf("a decimal with a scale of %d: from 0 to %d are taken", d.Scale(), maxDecimal)
	}
	switch desc.PhysicalType() {
	case parquet.Types.Boolean:
		return &valuesOf[bool]{size: 1, text: (*rowText).boolean}, nil
	case parquet.Types.Int32:
		return &valuesOf[int32]{size: 4, text: int32Text(logical)}, nil
	case parquet.Types.Int64:
		return &valuesOf[int64]{size: 8, text: int64Text(logical)}, nil
	case parquet.Types.Int96:
		return &valuesOf[parquet.Int96]{size: 12, text: int96Text}, nil
	case parquet.Types.Float:
		return &valuesOf[float32]{size: 4, text: func(t *rowText, v float32) { t.float(float64(v), 32) }}, nil
	case parquet.Types.Double:
		return &valuesOf[float64]{size: 8, text: func(t *rowText, v float64) { t.float(v, 64) }}, nil
	case parquet.Types.ByteArray:
		text := bytesText(logical, -1)
		return &valuesOf[parquet.ByteArray]{size: 24, text: func(t *rowText, v parquet.ByteArray) { text(t, v) }}, nil
	case parquet.Types.FixedLenByteArray:
		text := bytesText(logical, desc.TypeLength())
		if desc.ConvertedType() == schema.ConvertedTypes.Interval && desc.TypeLength() == 12 {
			text = durationText
		}
		return &valuesOf[parquet.FixedLenByteArray]{size: 24, text: func(t *rowText, v parquet.FixedLenByteArray) { text(t, v) }}, nil
	}
	return nil, fmt.Errorf("values of the type %s are not known", desc.PhysicalType())
}

func int32Text(logical schema.LogicalType) func(*rowText, int32) {
	switch l := logical.(type) {
	case schema.DateLogicalType:
		return func(t *rowText, v int32) { t.date(int64(v)) }
	case schema.TimeLogicalType:
		return func(t *rowText, v int32) { t.timeOfDay(int64(v), 3) }
	case schema.DecimalLogicalType:
		return func(t *rowText, v int32) { t.decimal(int64(v), int(l.Scale())) }
	case schema.IntLogicalType:
		if !l.IsSigned() {
			return func(t *rowText, v int32) { t.uint(uint64(uint32(v))) }
		}
	}
	return func(t *rowText, v int32) { t.int(int64(v)) }
}

func int64Text(logical schema.LogicalType) func(*rowText, int64) {
	switch l := logical.(type) {
	case schema.TimestampLogicalType:
		digits := unitDigits(l.TimeUnit())
		return func(t *rowText, v int64) { t.timestamp(v, digits) }
	case schema.TimeLogicalType:
		digits := unitDigits(l.TimeUnit())
		return func(t *rowText, v int64) { t.timeOfDay(v, digits) }
	case schema.DecimalLogicalType:
		return func(t *rowText, v int64) { t.decimal(v, int(l.Scale())) }
	case schema.IntLogicalType:
		if !l.IsSigned() {
			return func(t *rowText, v int64) { t.uint(uint64(v)) }
		}
	}
	return (*rowText).int
}

func unitDigits(unit schema.TimeUnitType) int {
	switch unit {
	case schema.TimeUnitMillis:
		return 3
	case schema.TimeUnitMicros:
		return 6
	}
	return 9
}

// int96Text writes the timestamps of old writers: nanoseconds of a Julian day.
func int96Text(t *rowText, v parquet.Int96) {
	const epoch = 2440588 // the Julian day of 1970-01-01
	nanos := binary.LittleEndian.Uint64(v[:8])
	day := int64(binary.LittleEndian.Uint32(v[8:])) - epoch
	if nanos >= 86400e9 || day*86400 < firstSecond || day*86400 > lastSecond {
		t.bytes(v[:]) // no time that one could write: nothing of it is lost
		return
	}
	t.instant(day*86400+int64(nanos/1e9), int64(nanos%1e9), 9)
}

// bytesText gives how bytes look; size is below 0 if each value has its own.
func bytesText(logical schema.LogicalType, size int) func(*rowText, []byte) {
	switch l := logical.(type) {
	case schema.DecimalLogicalType:
		return func(t *rowText, v []byte) { t.decimalBytes(v, int(l.Scale())) }
	case schema.UUIDLogicalType:
		if size == 16 {
			return (*rowText).uuid
		}
	case schema.Float16LogicalType:
		if size == 2 {
			return func(t *rowText, v []byte) { t.float(float64(half(binary.LittleEndian.Uint16(v))), 32) }
		}
	}
	return (*rowText).bytes
}

// durationText writes Parquet's intervals.
func durationText(t *rowText, v []byte) {
	t.duration(binary.LittleEndian.Uint32(v), binary.LittleEndian.Uint32(v[4:]), binary.LittleEndian.Uint32(v[8:]))
}

// half is the value of a float of 16 bits.
func half(v uint16) float32 {
	sign, exponent, fraction := uint32(v>>15)<<31, int(v>>10&31), uint32(v&1023)
	switch {
	case exponent == 31:
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	case exponent > 0:
		return math.Float32frombits(sign | uint32(exponent+112)<<23 | fraction<<13)
	}
	small := float32(fraction) / (1 << 24)
	if sign != 0 {
		small = -small
	}
	return small
}
