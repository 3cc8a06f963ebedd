package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
)

// sender brings the batches of one lane there, one at a time: a resend can then
// neither overtake nor need more than the last sequence to be recognised. Its
// fields belong to the goroutine in run.
type sender struct {
	id   lane.ID
	opts Options
	js   jetstream.JetStream
	link *link
	in   *batcher
	out  func(*batch, error) // settle a batch's records; see Producer.acked

	// Identity: unique for this process, dense from 1. A new one is taken after
	// every batch that failed once it was handed to the connection. To use a
	// sequence again would be right only if every refusal is to be trusted; were
	// one wrong, the next batch would pass for a resend of the first and be
	// dropped after it was acknowledged. A new id costs one entry in a table.
	producer string
	sequence uint64

	incarnation string // of the lane, as read at generation
	generation  uint64
	known       bool
	last        uint64    // sequence of the last answer
	progress    time.Time // when the lane last took a batch
	trouble     error     // what the last failed batch failed with
	troubleAt   time.Time
}

// errStale tells that the lane may have been replaced between reading its
// incarnation and the answer. Sending again gives the same answer.
var errStale = errors.New("the lane may have been replaced")

// newProducerID is twice as long as a token: two producers of one id would drop
// each other's records.
func newProducerID() string { return lane.Token() + lane.Token() }

// run sends until ctx ends, then fails what is left.
func (s *sender) run(ctx context.Context) {
	for {
		b, err := s.in.next(ctx)
		if err != nil {
			s.abandon(err)
			return
		}
		b.pack(s.opts.Compression)
		s.out(b, s.deliver(ctx, b))
		putBuffer(b.payload)
		b.payload = nil
	}
}

// abandon fails what was never sent.
func (s *sender) abandon(cause error) {
	s.in.close()
	s.in.releaseAll()
	s.in.flush()
	for {
		b, _ := s.in.take(time.Now())
		if b == nil {
			return
		}
		s.out(b, &UnavailableError{Lane: s.id.String(), Waited: time.Since(b.born), Err: cause})
	}
}

// delivery is the state of bringing one batch to the lane.
type delivery struct {
	batch   *batch
	since   time.Time // the budget's start
	sent    bool      // handed to the connection at least once
	doubt   bool      // an attempt may have been or may yet be stored
	full    bool      // the last answer: no room
	refused bool      // the last answer: never
	over    bool      // trying again is of no use
	last    error
}

// deliver offers a batch to the lane until it is taken, refused for good, or the
// budget is spent. On nil the batch has its receipt. When batches before it used
// up its budget it fails unsent, for the same reason.
func (s *sender) deliver(ctx context.Context, b *batch) error {
	if b.packErr != nil {
		return &RejectedError{Lane: s.id.String(), Topic: b.topic, Err: b.packErr}
	}
	d := &delivery{batch: b, since: b.born}
	if b.ready.After(d.since) {
		d.since = b.ready
	}
	if s.progress.After(d.since) {
		d.since = s.progress
	}
	if s.troubleAt.After(d.since) {
		d.last, d.full = s.trouble, isType[errFull](s.trouble)
	}
	limited, cancel := context.WithDeadline(ctx, d.since.Add(s.opts.RetryBudget))
	defer cancel()
	b.producer, b.sequence = s.producer, s.sequence+1
	msg := s.message(b)
	for try := 0; limited.Err() == nil || d.last == nil && ctx.Err() == nil; try++ {
		err := s.try(ctx, limited, d, msg)
		if err == nil {
			s.sequence, s.progress = b.sequence, time.Now()
			return nil
		}
		s.judge(ctx, limited, d, err)
		if d.over {
			break
		}
		pause(limited, try)
	}
	return s.failure(ctx, d)
}

// message is what every attempt sends, the same each time.
func (s *sender) message(b *batch) *nats.Msg {
	h := nats.Header{
		lane.HeaderBatch:    {"1"},
		lane.HeaderCodec:    {b.codec},
		lane.HeaderProducer: {b.producer},
		lane.HeaderSequence: {strconv.FormatUint(b.sequence, 10)},

		jetstream.MsgIDHeader:          {fmt.Sprintf("%s.%d", b.producer, b.sequence)},
		jetstream.ExpectedStreamHeader: {s.id.Stream()},
	}
	if b.stored != nil {
		h[lane.HeaderAck] = []string{Stored.String()}
	}
	if b.after != "" {
		h[lane.HeaderAfter] = []string{b.after}
	}
	return &nats.Msg{Subject: s.id.Subject(b.topic), Header: h, Data: b.payload}
}

// try makes one attempt. The budget's end, that of limited, does not cut short
// one that is on its way: its outcome would be unknown for want of moments.
func (s *sender) try(ctx, limited context.Context, d *delivery, msg *nats.Msg) error {
	if err := s.link.up(limited); err != nil {
		return errUnsent{err}
	}
	if err := s.refresh(limited); err != nil {
		return errUnsent{err}
	}
	d.sent = true
	ack, err := s.attempt(ctx, msg)
	if err != nil {
		return err
	}
	if ack.Sequence <= s.last || s.link.generation() != s.generation {
		s.known = false
		return errStale
	}
	s.last = ack.Sequence
	d.batch.receipt = Receipt{
		Topic:       d.batch.topic,
		Lane:        s.id.String(),
		Incarnation: s.incarnation,
		Sequence:    ack.Sequence,
	}
	return nil
}

// refresh reads the lane's incarnation, unless nothing happened since the last
// time that could have changed it.
func (s *sender) refresh(ctx context.Context) error {
	gen := s.link.generation()
	if s.known && gen == s.generation {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.AckTimeout)
	defer cancel()
	info, err := lane.Open(ctx, s.js, s.id)
	if err != nil {
		return fmt.Errorf("read the lane's incarnation: %w", err)
	}
	if s.incarnation != "" && info.Incarnation != s.incarnation {
		s.opts.Logger.Warn("the lane was reset", "lane", s.id, "was", s.incarnation, "incarnation", info.Incarnation)
	} else if !s.known && info.Last < s.last {
		s.opts.Logger.Warn("the lane went back", "lane", s.id, "had", s.last, "has", info.Last)
	}
	s.incarnation, s.generation, s.known, s.last = info.Incarnation, gen, true, 0
	return nil
}

// judge notes what a failed attempt means.
func (s *sender) judge(ctx, limited context.Context, d *delivery, err error) {
	unsent, full, refused := isType[errUnsent](err), isType[errFull](err), isType[errRefused](err)
	if !unsent && !full && !refused {
		d.doubt = true
	}
	d.over = refused || errors.Is(err, nats.ErrConnectionClosed)
	if limited.Err() != nil && ctx.Err() == nil && d.last != nil && unsent {
		return // the budget ended it; what happened before says more
	}
	d.last, d.full, d.refused = err, full, refused
}

// failure makes the error of a batch that was not delivered.
func (s *sender) failure(ctx context.Context, d *delivery) error {
	s.trouble, s.troubleAt = d.last, time.Now()
	switch cause := context.Cause(ctx); {
	case cause != nil && d.last != nil:
		d.last = fmt.Errorf("%w (%w)", cause, d.last)
	case cause != nil:
		d.last = cause
	}
	err := s.failureKind(d)
	s.opts.Logger.Warn("a batch failed", "topic", d.batch.topic, "lane", s.id,
		"records", d.batch.rows, "producer", d.batch.producer, "sequence", d.batch.sequence, "error", err)
	if d.sent {
		s.producer, s.sequence = newProducerID(), 0
	}
	return err
}

func (s *sender) failureKind(d *delivery) error {
	name, waited := s.id.String(), time.Since(d.since)
	switch {
	case d.doubt:
		return &UnknownOutcomeError{Lane: name, Producer: d.batch.producer, Sequence: d.batch.sequence, Err: d.last}
	case d.refused:
		return &RejectedError{Lane: name, Topic: d.batch.topic, Err: d.last}
	case d.full:
		return &LaneFullError{Lane: name, Waited: waited, Err: d.last}
	}
	return &UnavailableError{Lane: name, Waited: waited, Err: d.last}
}

const (
	firstPause = 25 * time.Millisecond
	doublings  = 6 // up to 1.6 s
)

// pause waits between attempts: longer each time, with jitter.
func pause(ctx context.Context, try int) {
	d := firstPause << min(try, doublings)
	t := time.NewTimer(d/2 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
