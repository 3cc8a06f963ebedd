package parquet

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// NoBatch as a row's Batch says that the row is a record, and not a row of the object
// that a batch reference refers to.
const NoBatch = -1

// Row is one row of a data file: a record, or one row of the object of a batch
// reference, with all that the reference's own record has, but its value.
type Row struct {
	Segment topic.SegmentID
	Offset  uint64
	Source  string // of Position
	Batch   int32  // which row of the object, from 0; NoBatch: an ordinary record
	Error   string // why a batch, or a row of it, could not be read; empty: none
	record.Record
}

// Filter chooses rows. The zero value takes all. Rows are left out, never reordered.
type Filter struct {
	From   uint64    // the first offset
	To     uint64    // the offset after the last; 0: no bound
	Since  time.Time // rows with an earlier append time are left out; zero: no bound
	Key    []byte    // with HasKey: only rows with this key; nil: those without a key
	HasKey bool
	// NoValues leaves the column of values unread: Value is nil in all rows.
	NoValues bool
}

// Stats is what a file holds.
type Stats struct {
	Rows    uint64
	Records uint64    // offsets
	First   uint64    // the lowest offset
	Last    uint64    // the highest
	From    time.Time // the earliest append time
	To      time.Time // the latest
	Groups  int       // row groups
}

// ErrFormat matches all that is wrong with the bytes of a file. Reading them again
// gives the same error.
var ErrFormat = errors.New("bad data file")

// FileError says what is wrong with a file. It matches [ErrFormat].
type FileError struct {
	What string
	Err  error // nil: What says all
}

func (e *FileError) Error() string {
	if e.Err == nil {
		return "data file: " + e.What
	}
	return fmt.Sprintf("data file: %s: %v", e.What, e.Err)
}

// Is makes it match ErrFormat.
func (e *FileError) Is(target error) bool { return target == ErrFormat }

func (e *FileError) Unwrap() error { return e.Err }

// RowError says why a row cannot be written. Nothing of it was.
type RowError struct {
	Offset uint64
	Reason string
}

func (e *RowError) Error() string { return fmt.Sprintf("row at offset %d: %s", e.Offset, e.Reason) }
