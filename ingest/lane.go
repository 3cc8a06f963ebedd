// Package ingest moves what arrives in lanes into segments, exactly once and in
// key order. A Worker reads one lane; everything it knows it can learn again
// from the lane and the filer.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoMessage says that the lane does not hold that sequence number.
var ErrNoMessage = errors.New("no message with that sequence number")

// ErrReconnected ends a Reader whose connection was lost and made again: the
// server may have come back with less than it had, so the lane must be checked
// before anything that was read is committed (rule 17).
var ErrReconnected = errors.New("the connection to the lane was lost and made again")

// Message is one message of a lane.
type Message struct {
	Topic    string // last token of the subject
	Event    bool   // it is an S3 event notification, by its subject
	Header   map[string][]string
	Data     []byte
	Sequence uint64
	Time     time.Time // JetStream's, nanoseconds
}

// State is what a lane holds.
type State struct {
	Incarnation string
	First, Last uint64 // sequence numbers; Last may be First-1
	Bytes       int64
	MaxBytes    int64 // 0: no limit
}

// Lane is one lane as a worker sees it. Methods try once. All may be called
// concurrently.
type Lane interface {
	State(ctx context.Context) (State, error)
	// TimeOf is the time of a message; ErrNoMessage if the lane lacks it.
	TimeOf(ctx context.Context, sequence uint64) (time.Time, error)
	// Read delivers messages in order from a sequence number on.
	Read(ctx context.Context, from uint64) (Reader, error)
	// Announce tells publishers that all of an incarnation of the lane, up to the
	// checkpoint, is committed.
	Announce(ctx context.Context, incarnation string, checkpoint uint64) error
	// Trim deletes the messages below a sequence number.
	Trim(ctx context.Context, below uint64) error
}

// Reader delivers a lane's messages. It is used by one goroutine.
type Reader interface {
	// Next blocks until there is a message. ErrReconnected and other errors end
	// the reader.
	Next(ctx context.Context) (Message, error)
	Close()
}

// LaneBackError says that a lane went back: restored, made again, or having
// lost its tail. Nothing is read until somebody has looked at it.
type LaneBackError struct {
	Lane   string
	Reason string
}

func (e *LaneBackError) Error() string {
	return fmt.Sprintf("lane %s went back: %s; its messages cannot be told from committed ones, so nothing is read from it", e.Lane, e.Reason)
}

// GapError says that messages above the checkpoint are missing from a lane.
type GapError struct {
	Lane      string
	Want, Got uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("lane %s: expected message %d and got %d: the %d in between were removed before they were committed",
		e.Lane, e.Want, e.Got, e.Got-e.Want)
}
