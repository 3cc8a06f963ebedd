package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

// TestFailuresOfRecords: records that fail in several ways give the exit code of
// the worst, and the text tells of each way once, with how many there were.
func TestFailuresOfRecords(t *testing.T) {
	full, away := &client.LaneFullError{Lane: "x", Err: errors.New("full")}, &client.UnavailableError{Lane: "x", Err: errors.New("away")}
	refused, large := &client.RejectedError{Lane: "x", Err: errors.New("no permission")}, &client.RecordTooLargeError{}
	for _, c := range []struct {
		name  string
		errs  []error
		code  int
		words []string
	}{
		{"none", nil, 0, nil},
		{"one", []error{full}, 75, []string{"lane x is full"}},
		{"many alike", []error{full, away, full}, 75, []string{"3 records failed, the first was lane x is full"}},
		{"too large after it", []error{full, large}, 2, []string{"the record takes", "lane x is full"}},
		{"refused last", []error{full, large, refused, refused}, 78, []string{"2 records failed, the first was lane x refused", "the record takes", "lane x is full"}},
		{"a bug among them", []error{refused, errors.New("what?"), full}, 1, []string{"what?", "lane x refused", "lane x is full"}},
	} {
		l, err := newReceiptLog("", time.Minute, func() {})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range c.errs {
			l.fail(err)
		}
		failed, err := l.close()
		if got := functions.ExitCode(err); got != c.code || failed != uint64(len(c.errs)) {
			t.Errorf("%s: exit code %d of %d failures, want %d of %d", c.name, got, failed, c.code, len(c.errs))
		}
		for i, word := range c.words {
			if lines := strings.Split(err.Error(), "\n"); !strings.Contains(lines[i], word) {
				t.Errorf("%s: line %d of %q does not have %q", c.name, i, err, word)
			}
		}
	}
}

// TestPublishIsInterrupted: input that does not end does not hold up a call that
// is to end.
func TestPublishIsInterrupted(t *testing.T) {
	stack := devtest.Stack(t)
	startWorker(t, stack)
	var out strings.Builder
	in, feed := io.Pipe()
	ctx, interrupt := context.WithCancel(t.Context())
	a := &app{out: &out, errs: io.Discard, giveUp: func(error) {}}
	root := a.root()
	root.SetArgs([]string{"publish", "typed", "--stack", stack.Info.Dir, "--json", "--ack", "stored"})
	root.SetIn(in)
	go func() {
		_, _ = io.WriteString(feed, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n")
		interrupt()
	}()
	err := explain(root.ExecuteContext(ctx))
	if functions.ExitCode(err) != functions.ExitRetry || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("exit code %d, %v", functions.ExitCode(err), err)
	}
	if problem := notJSON(out.String()); problem != "" {
		t.Error(problem)
	}
	_ = feed.Close()
}

func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"nats://a:4222":                         "nats://a:4222",
		"nats://me:secret@a:4222, nats://b":     "nats://me:xxxxx@a:4222,nats://b",
		"tls://token@a:4222":                    "tls://token@a:4222",
		"::":                                    "::",
		"wss://me:secret@a,nats://you:secret@b": "wss://me:xxxxx@a,nats://you:xxxxx@b",
	} {
		if got := shown(in); got != want {
			t.Errorf("%s is shown as %s, want %s", in, got, want)
		}
	}
}
