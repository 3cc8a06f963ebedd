package functions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

func (b *bench) create(t *testing.T, name string) *segment.Topic {
	t.Helper()
	def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(topic.DefaultFlushAge), Lanes: laneID.Group}
	top, err := b.Store.CreateTopic(t.Context(), def, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// TestTopicAgain: a topic is deleted and made again under its name while records
// flow. What was committed goes with the old one; what is sent once the new one
// is there is in it; nothing is in both, and the worker goes on.
func TestTopicAgain(t *testing.T) {
	t.Parallel()
	fs := memfs.New()
	b := newBenchOn(t, devtest.NATS(t), fs.Client("worker", nil))
	old := b.create(t, "t")
	w := b.resident(t, IngestOptions{})
	f := b.flood(t)
	for range 3 {
		b.awaitCommitted(t, 300)
		gone := len(b.read(t, "t"))
		if err := b.Store.DeleteTopic(t.Context(), "t", time.Now()); err != nil {
			t.Fatal(err)
		}
		made := b.create(t, "t")
		since := f.sent.Load()
		if made.Incarnation == old.Incarnation {
			t.Fatal("the new topic has the old one's incarnation")
		}
		old = made
		b.awaitCommitted(t, 300)
		first := number(t, b.read(t, "t")[0])
		if first < gone || first > int(since) {
			t.Errorf("the new topic begins with record %d; %d were in the old one, %d were sent before it was made", first, gone, since)
		}
	}
	want := f.end(t)
	w.end(t)
	items := b.read(t, "t")
	from := number(t, items[0])
	for i, item := range items {
		if n := number(t, item); n != from+i {
			t.Fatalf("record %d follows %d", n, from+i-1)
		}
	}
	if last := from + len(items); last != want {
		t.Errorf("the records end at %d, %d were sent", last, want)
	}
	b.verify(t, "t")
	for _, path := range fs.Paths() {
		if strings.Contains(path, "/topics/t/") && !strings.HasPrefix(path, old.Dir()+"/") && !strings.HasSuffix(path, "/t/topic.json") {
			t.Errorf("%s is left of a deleted topic", path)
		}
	}
	if n := fs.Blobs(); n > 0 {
		t.Errorf("%d uploads are left that no file names", n)
	}
	if p := fs.Problems(); len(p) > 0 {
		t.Errorf("problems: %q", p)
	}
}

func number(t *testing.T, item segment.Item) int {
	t.Helper()
	n, err := strconv.Atoi(string(item.Value))
	if err != nil || item.Rejected != "" {
		t.Fatalf("record %q, rejected: %q", item.Value, item.Rejected)
	}
	return n
}

// TestThousandTopics: a flush may touch very many segments.
func TestThousandTopics(t *testing.T) {
	t.Parallel()
	const topics, rounds = 1000, 3
	b := newBench(t, 0)
	name := func(i int) string { return fmt.Sprintf("topic-%03d", i) }
	for i := range topics {
		b.create(t, name(i))
	}
	for round := range rounds {
		for i := range topics {
			if _, err := b.js.PublishAsync(laneID.Subject(name(i)), fmt.Append(nil, round)); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-b.js.PublishAsyncComplete():
	case <-time.After(patience):
		t.Fatal("the lane does not answer")
	}
	sum, err := b.once(t, 0)
	if err != nil || sum.Committed != topics*rounds || sum.Rejected != 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	var errs []error
	for i := range topics {
		items := b.read(t, name(i))
		for round := range rounds {
			if len(items) != rounds || string(items[round].Value) != fmt.Sprint(round) {
				errs = append(errs, fmt.Errorf("%s holds %d records: %v", name(i), len(items), items))
				break
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
