package rig

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/internal/lane"
)

// inFlight bounds the records of a publisher that wait for their receipts.
const inFlight = 1 << 14

// Feed gives the flight to publish next. It may block; ok is false at the end,
// or when the context ends.
type Feed func(ctx context.Context) (flight int, ok bool)

// PublishPlain publishes what the feed gives as plain messages, one record each,
// without the client. What fails is noted and not sent again: who resends
// without a way to recognise a double makes doubles. It returns when every
// record has an outcome.
func PublishPlain(ctx context.Context, nc *nats.Conn, topic string, l *Ledger, feed Feed) error {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096), jetstream.WithPublishAsyncTimeout(5*time.Second))
	if err != nil {
		return err
	}
	subject := lane.ID{Group: lane.Default}.Subject(topic)
	type pending struct {
		number int
		future jetstream.PubAckFuture
	}
	sent := make(chan pending, inFlight)
	var g errgroup.Group
	g.Go(func() error {
		for p := range sent {
			select {
			case ack := <-p.future.Ok():
				l.Acknowledge(p.number, Place{Sequence: ack.Sequence})
			case err := <-p.future.Err():
				l.Fail(p.number, err)
			}
		}
		return nil
	})
	for flight, ok := feed(ctx); ok; flight, ok = feed(ctx) {
		n := l.Send(flight)
		m := nats.NewMsg(subject)
		m.Header.Set(lane.HeaderKey, l.flights[flight].Key)
		m.Header.Set(NumberHeader, strconv.Itoa(n))
		m.Data = l.flights[flight].Value
		// An attempt that is repeated later would overtake: no attempts after the first.
		future, err := js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(30*time.Second))
		if err != nil {
			l.Fail(n, err)
			continue
		}
		sent <- pending{n, future}
	}
	close(sent)
	return g.Wait()
}

// PublishBatched publishes what the feed gives through the client, which batches
// and sends again what has no answer. It returns when every record has an
// outcome, with an error only if the producer takes no records any more.
func PublishBatched(ctx context.Context, p *client.Producer, topic string, l *Ledger, feed Feed) error {
	type pending struct {
		number int
		record *client.Pending
	}
	sent := make(chan pending, 4*inFlight)
	var g errgroup.Group
	g.Go(func() error {
		for s := range sent {
			// Not ctx: each record gets its outcome within the producer's budget.
			r, err := s.record.Wait(context.WithoutCancel(ctx))
			if err != nil {
				l.Fail(s.number, err)
				continue
			}
			l.Acknowledge(s.number, Place{r.Sequence, r.Row})
		}
		return nil
	})
	var failed error
	for flight, ok := feed(ctx); ok; flight, ok = feed(ctx) {
		n := l.Send(flight)
		f := l.flights[flight]
		record, err := p.Publish(ctx, topic, client.Record{
			Key: []byte(f.Key), Value: f.Value,
			Headers: []client.Header{{Name: NumberHeader, Value: strconv.AppendInt(nil, int64(n), 10)}},
		})
		if err != nil {
			l.Fail(n, err)
			failed = err
			break
		}
		sent <- pending{n, record}
	}
	close(sent)
	_ = g.Wait() // its goroutine returns nil
	return failed
}
