package client

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Compressions of batches.
const (
	Zstandard = record.CodecZstd
	Null      = record.CodecNull // none
)

// Defaults of [Options]. DefaultGroup is for topics that are bound to no group.
const (
	DefaultGroup       = lane.Default
	DefaultLinger      = 5 * time.Millisecond
	DefaultBatchBytes  = 256 << 10
	DefaultMaxBuffered = 64 << 20
	DefaultRetryBudget = 30 * time.Second
	DefaultAckTimeout  = 5 * time.Second
)

// Bounds of [Options].
const (
	minBatchBytes  = 1 << 10
	maxBatchBytes  = lane.MaxMessage - reserved
	minMaxBuffered = 2 << 20
)

// reserved is the room kept in a message for its headers and the batch's frame.
const reserved = 4 << 10

// Options are the settings of a [Producer]. The zero value of each field means
// its default.
type Options struct {
	// Group is the lane group to publish all topics to. By default each topic goes
	// to the group to which it is bound (spillway topic create --lanes), and moves
	// with it; topics that are bound to none go to the group "default".
	Group string

	// Linger is how long a batch that is not full waits for more records before
	// it is sent. It waits longer while the batch before it is on its way.
	// Negative: not at all. Default 5 ms.
	Linger time.Duration

	// BatchBytes is how many bytes of records, before compression, make a batch
	// full. A bigger record goes alone. Default 256 KiB, at most 1020 KiB.
	BatchBytes int

	// MaxBuffered bounds the records, in bytes, that were handed in and have no
	// answer from a lane yet. Publish blocks when it is reached. Default 64 MiB.
	MaxBuffered int64

	// Compression of batches: [Zstandard] or [Null]. Batches that do not shrink
	// are sent as they are, and most of their followers are then not tried.
	// Default Zstandard.
	Compression string

	// Ack is the level that a record's outcome stands for unless a call says
	// otherwise. Default [Buffered].
	Ack Level

	// RetryBudget is how long a batch is offered to a lane that takes nothing,
	// counted from the batch's first record or the lane's last success, whichever
	// is later. No attempt starts after it; when the last one has its answer, or
	// AckTimeout has passed, the batch's records fail. Keep the sum of the two
	// below the lane's duplicate window (2 min). Default 30 s, at most 90 s.
	RetryBudget time.Duration

	// AckTimeout is how long one attempt waits for the lane's answer before the
	// same message is sent again. Default 5 s.
	AckTimeout time.Duration

	// Objects are where values over [MaxValue] are put, and where [Producer.Submit]
	// looks at what it submits. Default: none.
	Objects *Objects

	// Logger takes warnings about what users may want to look into. Default: none.
	Logger *slog.Logger
}

// OptionsError lists everything that is wrong with [Options].
type OptionsError struct{ Problems []string }

func (e *OptionsError) Error() string {
	return "producer options: " + strings.Join(e.Problems, "; ")
}

func (o Options) withDefaults() Options {
	o.Linger = orDefault(o.Linger, DefaultLinger)
	o.BatchBytes = orDefault(o.BatchBytes, DefaultBatchBytes)
	o.MaxBuffered = orDefault(o.MaxBuffered, DefaultMaxBuffered)
	o.Compression = orDefault(o.Compression, Zstandard)
	o.RetryBudget = orDefault(o.RetryBudget, DefaultRetryBudget)
	o.AckTimeout = orDefault(o.AckTimeout, DefaultAckTimeout)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// validate checks options that have their defaults.
func (o Options) validate() error {
	var p []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			p = append(p, fmt.Sprintf(format, args...))
		}
	}
	if err := topic.CheckGroup(o.Group); err != nil && o.Group != "" {
		p = append(p, "Group: "+err.Error())
	}
	check(o.Linger <= time.Minute, "Linger: %v, at most 1m", o.Linger)
	check(o.BatchBytes >= minBatchBytes && o.BatchBytes <= maxBatchBytes,
		"BatchBytes: %d, want %d to %d", o.BatchBytes, minBatchBytes, maxBatchBytes)
	check(o.MaxBuffered >= minMaxBuffered, "MaxBuffered: %d, at least %d", o.MaxBuffered, minMaxBuffered)
	check(o.Compression == Zstandard || o.Compression == Null,
		"Compression: %q, want %q or %q", o.Compression, Zstandard, Null)
	check(o.Ack == Buffered || o.Ack == Stored, "Ack: %v, want Buffered or Stored", o.Ack)
	check(o.RetryBudget > 0 && o.RetryBudget <= 90*time.Second, "RetryBudget: %v, want up to 1m30s", o.RetryBudget)
	check(o.AckTimeout >= 10*time.Millisecond && o.AckTimeout <= 30*time.Second,
		"AckTimeout: %v, want 10ms to 30s", o.AckTimeout)
	if len(p) > 0 {
		return &OptionsError{Problems: p}
	}
	return nil
}
