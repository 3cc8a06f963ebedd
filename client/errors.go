package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// ErrClosed is what a closed producer answers.
var ErrClosed = errors.New("the producer is closed")

// ErrNoLane tells that a lane group does not exist.
var ErrNoLane = lane.ErrNoLane

// ErrIncarnation tells that a lane was reset before a record that was in it was
// known to be stored. It comes in an [*UnknownOutcomeError].
var ErrIncarnation = lane.ErrIncarnation

// NameError tells what is wrong with a topic's or a lane group's name.
type NameError = topic.NameError

// MismatchError tells that a lane's stream has settings that no lane can have.
type MismatchError = lane.MismatchError

// ValueTooLargeError tells that a value is larger than [MaxValue] and there is no
// bucket for it, or larger than [MaxUpload].
type ValueTooLargeError struct{ Size, Limit int64 }

func (e *ValueTooLargeError) Error() string {
	if e.Limit == MaxValue {
		return fmt.Sprintf("the value has %d bytes, at most %d are allowed where no bucket is set for larger ones", e.Size, e.Limit)
	}
	return fmt.Sprintf("the value has %d bytes, at most %d are allowed", e.Size, e.Limit)
}

// ErrNoObjects tells that Submit cannot look at an object, since the producer's
// Options have no Objects.
var ErrNoObjects = errors.New("no access to objects is set up; submit without a look at them, or set Objects")

// ReferenceError tells that an object is not there, or is not as it was said to
// be, or that there can be none of that name. The record was not handed in.
type ReferenceError struct {
	URL   string // without what may be secret in it
	State string // "missing", "changed" or "deleted"
	Err   error
}

func (e *ReferenceError) Error() string {
	why := e.Err.Error()
	if strings.Contains(why, e.URL) {
		return fmt.Sprintf("the object is %s: %s", e.State, why)
	}
	return fmt.Sprintf("the object %.200q is %s: %s", e.URL, e.State, why)
}
func (e *ReferenceError) Unwrap() error { return e.Err }

// ObjectsError tells that an object could not be looked at or uploaded. The
// record was not handed in.
type ObjectsError struct {
	Op, URL string
	Passes  bool // trying again later may help: the endpoint did not answer, or the context ended
	Err     error
}

func (e *ObjectsError) Error() string { return fmt.Sprintf("%s an object: %v", e.Op, e.Err) } // which says which
func (e *ObjectsError) Unwrap() error { return e.Err }

// RecordTooLargeError tells that a record does not fit into one message with its
// key and headers. Size is what it takes at least.
type RecordTooLargeError struct{ Size, Limit int }

func (e *RecordTooLargeError) Error() string {
	return fmt.Sprintf("the record takes %d bytes with its key and headers, at most %d are allowed", e.Size, e.Limit)
}

// RecordError tells which field of a record cannot be encoded, and why: a header
// name that is not UTF-8, too many headers, an event time outside the calendar.
type RecordError = record.InvalidError

// LaneFullError tells that the lane was full for the whole retry budget: workers
// do not keep up, or none run. The record is not in the lane.
type LaneFullError struct {
	Lane   string
	Waited time.Duration // since the lane last took something, or since the record was handed in
	Err    error
}

func (e *LaneFullError) Error() string {
	return fmt.Sprintf("lane %s is full, for %v: %v", e.Lane, e.Waited.Round(time.Millisecond), e.Err)
}
func (e *LaneFullError) Unwrap() error { return e.Err }

// UnavailableError tells that the lane could not be reached for the whole retry
// budget, or that the producer was closed first. The record is not in the lane.
type UnavailableError struct {
	Lane   string
	Waited time.Duration
	Err    error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("lane %s could not be reached, for %v: %v", e.Lane, e.Waited.Round(time.Millisecond), e.Err)
}
func (e *UnavailableError) Unwrap() error { return e.Err }

// RejectedError tells that the server refused the message, for its size or for
// lack of permission, and will do so again. The record is not in the lane.
type RejectedError struct {
	Lane, Topic string
	Err         error
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("lane %s refused a message for topic %s: %v", e.Lane, e.Topic, e.Err)
}
func (e *RejectedError) Unwrap() error { return e.Err }

// UnknownOutcomeError tells that the record may be in the lane, now or in a
// while, or may never be. Publishing it again may double it. Producer and
// Sequence are those under which it stands in the topic if it arrived.
type UnknownOutcomeError struct {
	Lane     string
	Producer string
	Sequence uint64
	Err      error
}

func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("unknown outcome in lane %s (producer %s, batch %d): %v", e.Lane, e.Producer, e.Sequence, e.Err)
}
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// FailedError is what Flush and Close return if records failed since the last
// Flush. Each record's Pending has its own error.
type FailedError struct {
	Records int
	First   error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%d records failed, the first with: %v", e.Records, e.First)
}
func (e *FailedError) Unwrap() error { return e.First }

// UnconfirmedError tells that the lane has the record, and that the wait for it
// to be stored was given up. It will be stored without this producer.
type UnconfirmedError struct{ Err error }

func (e *UnconfirmedError) Error() string {
	return "in the lane, not known to be stored: " + e.Err.Error()
}
func (e *UnconfirmedError) Unwrap() error { return e.Err }

// BlockedError tells that the context ended while Publish waited for room in the
// buffer. The record was not handed in.
type BlockedError struct{ Err error }

func (e *BlockedError) Error() string { return "the producer's buffer is full: " + e.Err.Error() }
func (e *BlockedError) Unwrap() error { return e.Err }

// NotStored tells whether err, from Publish or a Pending, means for certain that
// the record is in no lane and never will be, so that publishing it again cannot
// double it.
func NotStored(err error) bool {
	if isType[*UnknownOutcomeError](err) || isType[*UnconfirmedError](err) {
		return false
	}
	return errors.Is(err, ErrClosed) || isType[*BlockedError](err) ||
		isType[*LaneFullError](err) || isType[*UnavailableError](err) || isType[*RejectedError](err) ||
		isType[*ValueTooLargeError](err) || isType[*RecordTooLargeError](err) ||
		isType[*RecordError](err) || isType[*NameError](err) ||
		isType[*ReferenceError](err) || isType[*BatchError](err) || isType[*ObjectsError](err) || errors.Is(err, ErrNoObjects)
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
