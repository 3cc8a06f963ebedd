package work

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

// site is a nats-server with a queue, and its tokens to plan.
type site struct {
	*testing.T
	js     jetstream.JetStream
	queue  *Queue
	tokens *Tokens
}

var planned = Filter(Plan, 1)

func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func newSite(t *testing.T, ackWait time.Duration) *site {
	t.Helper()
	js := connect(t, devtest.NATS(t).ClientURL())
	q, err := Open(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	q.ackWait = ackWait
	s := &site{T: t, js: js, queue: q}
	s.tokens = s.open(planned)
	return s
}

func (s *site) open(filter string) *Tokens {
	s.Helper()
	tokens, err := s.queue.Tokens(s.Context(), filter)
	if err != nil {
		s.Fatal(err)
	}
	return tokens
}

func (s *site) put(topics ...string) {
	s.Helper()
	for _, topic := range topics {
		if err := s.queue.Put(s.Context(), Subject(Plan, topic)); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *site) take(topic string, tries uint64) *Token {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	token, err := s.tokens.Next(ctx)
	if err != nil {
		s.Fatal(err)
	}
	if token.Subject != Subject(Plan, topic) || !slices.Equal(token.Parts(), []string{topic}) || token.Tries != tries {
		s.Fatalf("took %s, try %d; want topic %s, try %d", token.Subject, token.Tries, topic, tries)
	}
	return token
}

func (s *site) done(token *Token) {
	s.Helper()
	if err := token.Done(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// nothing looks for a while whether a token comes.
func (s *site) nothing(span time.Duration) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), span)
	defer cancel()
	token, err := s.tokens.Next(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		s.Fatalf("took %+v, error %v; want none", token, err)
	}
}

func (s *site) waiting(want uint64) {
	s.Helper()
	info, err := s.queue.stream.Info(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	if info.State.Msgs != want {
		s.Fatalf("the queue holds %d tokens, want %d", info.State.Msgs, want)
	}
}

// short is a time without sign of life that a test can wait for, and within the
// server takes its time to notice that it is over.
const (
	short  = 400 * time.Millisecond
	within = 3 * short
)

// TestTokensCoalesce: of tokens of one subject that wait, the last is handed out,
// once.
func TestTokensCoalesce(t *testing.T) {
	s := newSite(t, short)
	s.put("orders", "clicks", "orders", "orders")
	s.waiting(2)
	s.done(s.take("clicks", 1))
	s.done(s.take("orders", 1))
	s.waiting(0)
	s.nothing(within)
	s.put("orders")
	s.done(s.take("orders", 1))
}

// TestPutWhileWorking: a token that comes while the one before is worked on is
// handed out too, and finishing the first neither removes it nor brings back
// itself.
func TestPutWhileWorking(t *testing.T) {
	s := newSite(t, short)
	s.put("orders")
	first := s.take("orders", 1)
	s.put("orders")
	s.done(first)
	s.waiting(1)
	second := s.take("orders", 1)
	s.put("orders", "orders")
	third := s.take("orders", 1) // at once, while the second is worked on
	s.done(third)
	s.done(second)
	s.waiting(0)
	s.nothing(within)
}

// TestDeadWorker: a token whose worker died is handed out again; one that was
// replaced meanwhile is not, since its successor is.
func TestDeadWorker(t *testing.T) {
	s := newSite(t, short)
	s.put("orders")
	s.take("orders", 1)
	start := time.Now()
	again := s.take("orders", 2)
	if took := time.Since(start); took < short/2 {
		t.Errorf("handed out again after %s", took)
	}
	s.put("orders")
	s.done(s.take("orders", 1)) // of again, nothing is heard any more
	s.nothing(within)
	if err := again.Progress(); err != nil {
		t.Error(err)
	}
	s.done(again) // too late, and harmless
	s.waiting(0)
}

// TestProgress: a worker that shows signs of life keeps its token.
func TestProgress(t *testing.T) {
	s := newSite(t, short)
	s.put("orders")
	token := s.take("orders", 1)
	for range 8 {
		s.nothing(short / 4)
		if err := token.Progress(); err != nil {
			t.Fatal(err)
		}
	}
	s.done(token)
	s.waiting(0)
}

// TestLater: a token that was put off comes back after the delay, others do not
// wait for it, and a new one of its subject does not either.
func TestLater(t *testing.T) {
	s := newSite(t, time.Minute)
	s.put("orders", "clicks")
	later := func(topic string) {
		t.Helper()
		if err := s.take(topic, 1).Later(short); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	later("orders")
	s.done(s.take("clicks", 1))
	s.done(s.take("orders", 2))
	if took := time.Since(start); took < short {
		t.Errorf("back after %s, want %s or more", took, short)
	}
	s.put("orders")
	later("orders")
	s.put("orders")
	s.done(s.take("orders", 1))
	s.nothing(within)
	s.waiting(0)
}

// TestManyTakers: each token goes to one of them.
func TestManyTakers(t *testing.T) {
	s := newSite(t, time.Minute)
	const topics, takers = 60, 4
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	taken := make(chan string, 2*topics)
	g, ctx := errgroup.WithContext(ctx)
	for range takers {
		g.Go(func() error {
			tokens, err := s.queue.Tokens(ctx, planned)
			if err != nil {
				return err
			}
			for {
				token, err := tokens.Next(ctx)
				if err != nil {
					return err
				}
				if err := token.Done(ctx); err != nil {
					return err
				}
				taken <- token.Parts()[0]
			}
		})
	}
	for i := range topics {
		s.put("t" + strings.Repeat("x", i))
	}
	seen := map[string]bool{}
	for range topics {
		select {
		case topic := <-taken:
			if seen[topic] {
				t.Errorf("%s was taken twice", topic)
			}
			seen[topic] = true
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	s.waiting(0)
	cancel()
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestKindsAreApart: consumers of different kinds share the queue; of one kind
// there is one, whoever opens it, and with one filter.
func TestKindsAreApart(t *testing.T) {
	s := newSite(t, time.Minute)
	consume := Subject("consume", "billing") + ".>"
	other := s.open(consume)
	if err := s.queue.Put(t.Context(), Subject("consume", "billing", "orders", "00000002-00-abcdefgh")); err != nil {
		t.Fatal(err)
	}
	s.put("orders")
	token, err := other.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"billing", "orders", "00000002-00-abcdefgh"}; !slices.Equal(token.Parts(), want) {
		t.Errorf("parts %q, want %q", token.Parts(), want)
	}
	s.done(token)
	s.done(s.take("orders", 1))

	var mismatch *MismatchError
	for _, filter := range []string{
		prefix + "plan.>",                              // the consumer "plan" has another filter
		Subject(Plan, "orders"),                        // some of what "plan" takes
		Subject("consume") + ".>",                      // all that "consume+billing" takes, and more
		Subject("consume", "billing", "orders") + ".*", // some of it
	} {
		if _, err := s.queue.Tokens(t.Context(), filter); !errors.As(err, &mismatch) {
			t.Errorf("filter %s: error %v, want a MismatchError", filter, err)
		}
	}
}
