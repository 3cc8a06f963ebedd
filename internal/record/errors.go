package record

import (
	"errors"
	"fmt"
)

// ErrFormat matches everything that is wrong with bytes that were to be
// decoded: truncated, corrupt, hostile, or over a limit. Reading them again
// gives the same error.
var ErrFormat = errors.New("bad format")

// ErrSetFull is returned when a set would grow over the 4 GiB that its offsets
// can address. The set is as it was before.
var ErrSetFull = errors.New("the set is full")

// FormatError says what is wrong with encoded bytes, and where. It matches
// [ErrFormat].
type FormatError struct {
	What   string
	Offset int // in the payload, in the unpacked block, or in the file: What tells
}

func (e *FormatError) Error() string { return fmt.Sprintf("%s (at byte %d)", e.What, e.Offset) }

// Is makes it match ErrFormat.
func (e *FormatError) Is(target error) bool { return target == ErrFormat }

// CodecError names a codec that is not known here. It matches [ErrFormat].
type CodecError struct{ Codec string }

func (e *CodecError) Error() string {
	return fmt.Sprintf("codec %q is not known; use %q or %q", clip(e.Codec), CodecNull, CodecZstd)
}

// Is makes it match ErrFormat.
func (e *CodecError) Is(target error) bool { return target == ErrFormat }

// SchemaError says that an Avro file is sound as far as it was read, but holds
// something else than records of this version of the format.
type SchemaError struct {
	Name string // the full name of the file's schema, or its beginning
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the file's schema is %q, which is not the %s of this version", clip(e.Name), recordName)
}

// InvalidError says why a record cannot be encoded.
type InvalidError struct{ Field, Reason string }

func (e *InvalidError) Error() string { return e.Field + ": " + e.Reason }

func invalid(field, format string, a ...any) error {
	return &InvalidError{field, fmt.Sprintf(format, a...)}
}

// clip keeps what others wrote short in messages.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
