package work

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

// TestOpenTakesWhatFits: replicas and sizes are an operator's; what would lose or
// double work is refused, all of it in one message.
func TestOpenTakesWhatFits(t *testing.T) {
	js := connect(t, devtest.NATS(t).ClientURL())
	ctx := t.Context()
	var g errgroup.Group
	for range 4 {
		g.Go(func() error { _, err := Open(ctx, js); return err })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	larger := config()
	larger.MaxBytes *= 2
	larger.MaxAge = time.Minute
	if _, err := js.UpdateStream(ctx, larger); err != nil {
		t.Fatal(err)
	}
	q, err := Open(ctx, js)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := q.Tokens(ctx, planned)
	if err != nil {
		t.Fatal(err)
	}
	patient := tokens.consumer.CachedInfo().Config
	patient.AckWait = time.Hour
	if _, err := js.UpdateConsumer(ctx, Stream, patient); err != nil {
		t.Fatal(err)
	}
	if tokens, err = q.Tokens(ctx, planned); err != nil || tokens.consumer.CachedInfo().Config.AckWait != time.Hour {
		t.Errorf("consumer with other settings: %v", err)
	}
	patient.MaxDeliver = 3
	if _, err := js.UpdateConsumer(ctx, Stream, patient); err != nil {
		t.Fatal(err)
	}
	var mismatch *MismatchError
	if _, err := q.Tokens(ctx, planned); !errors.As(err, &mismatch) || !strings.Contains(err.Error(), "gives up") {
		t.Errorf("a consumer that gives up: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	js := connect(t, devtest.NATS(t).ClientURL())
	for _, c := range []struct {
		name string
		make jetstream.StreamConfig
		want []string
	}{
		{"a log", jetstream.StreamConfig{Name: Stream, Subjects: []string{prefix + ">"}}, []string{"no work queue", "more than one token"}},
		{"other subjects", jetstream.StreamConfig{Name: Stream, Subjects: []string{"mine.>"}, Retention: jetstream.WorkQueuePolicy}, []string{`subjects are ["mine.>"]`}},
		{"it refuses", jetstream.StreamConfig{
			Name: Stream, Subjects: []string{prefix + ">"}, Retention: jetstream.WorkQueuePolicy, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, NoAck: true,
		}, []string{"refuses new tokens", "does not acknowledge"}},
		{"subjects taken", jetstream.StreamConfig{Name: "mine", Subjects: []string{prefix + "plan.*"}}, []string{"another stream has its subjects"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := js.CreateStream(t.Context(), c.make); err != nil {
				t.Fatal(err)
			}
			defer js.DeleteStream(context.Background(), c.make.Name) //nolint:errcheck // the next case would fail
			_, err := Open(t.Context(), js)
			var mismatch *MismatchError
			if !errors.As(err, &mismatch) {
				t.Fatalf("error %v, want a MismatchError", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// TestServerAway: putting fails within the caller's time, taking says so or waits,
// and both go on when the server is back, with what it had.
func TestServerAway(t *testing.T) {
	dir := t.TempDir()
	server := devtest.NATSOn(t, dir, -1)
	js := connect(t, server.ClientURL())
	q, err := Open(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Put(t.Context(), Subject(Plan, "orders")); err != nil {
		t.Fatal(err)
	}
	tokens, err := q.Tokens(t.Context(), planned)
	if err != nil {
		t.Fatal(err)
	}
	port := devtest.StopNATS(server)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := q.Put(ctx, Subject(Plan, "clicks")); err == nil {
		t.Error("put without a server")
	}
	devtest.NATSOn(t, dir, port)
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		token, err := tokens.Next(ctx)
		if err == nil && token.Parts()[0] == "orders" {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestSubjects(t *testing.T) {
	for subject, want := range map[string]bool{
		Subject(Plan, "orders"):                        true,
		Subject(Backfill, "orders"):                    true,
		Subject("consume", "g_1", "orders", "0-0-abc"): true,
		Subject(Plan):                                  true,
		Subject(Plan, ""):                              false,
		Subject(Plan, "*"):                             false,
		Subject(Plan, ">"):                             false,
		Subject(Plan, "a b"):                           false,
		Subject(Plan, "a\r\nPUB x 1"):                  false,
		Subject(Plan, "Ä"):                             false,
		Subject(Plan, "\xff"):                          false,
		Subject(Plan, strings.Repeat("x", maxSubject)): false,
		"spillway.in.orders":                           false,
		"":                                             false,
	} {
		if err := check(subject, false); (err == nil) != want || err != nil && !errors.Is(err, ErrSubject) {
			t.Errorf("%.60q: %v", subject, err)
		}
	}
	for filter, want := range map[string]bool{
		planned:                   true,
		prefix + "consume.g.>":    true,
		prefix + "consume.>.g":    false,
		prefix + ">":              false,
		prefix + "*.orders":       false,
		"spillway.in.*":           false,
		Subject(Plan, "or*", "b"): false,
	} {
		if err := check(filter, true); (err == nil) != want {
			t.Errorf("filter %q: %v", filter, err)
		}
	}
}
