package ingest_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// headFunc is an endpoint of a test.
type headFunc func(ctx context.Context, n ref.Name) (object.Info, error)

func (f headFunc) Head(ctx context.Context, bucket, key, version string) (object.Info, error) {
	return f(ctx, ref.Name{Bucket: bucket, Key: key, Version: version})
}

// clerk is a worker in virtual time, on a lane and a filer in memory, with two
// topics: "refs", of which records may refer to bucket "allowed", and "plain".
type clerk struct {
	t      *testing.T
	lane   *quietLane
	store  *segment.Store
	sent   int
	follow []string // topics that a follow-up was asked for
}

// withClerk runs do while the worker does.
func withClerk(t *testing.T, objects verdict.Objects, do func(c *clerk)) {
	synctest.Test(t, func(t *testing.T) {
		c := &clerk{t: t, lane: newQuietLane()}
		c.store = segment.NewStore(memfs.New().Client("worker", nil), "test")
		if err := c.store.CreateCheckpoint(t.Context(), laneID.Source("i")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"refs", "plain"} {
			def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(100 * time.Millisecond), Lanes: laneID.Group}
			if name == "refs" {
				def.Buckets = []string{"allowed"}
			}
			if _, err := c.store.CreateTopic(t.Context(), def, 1, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		w := ingest.NewWorker(ingest.Options{
			Lane: c.lane, ID: laneID, Store: c.store, Judge: &verdict.Judge{Objects: objects},
			FollowUp: nudgerFunc(func(_ context.Context, topic string) error {
				mu.Lock()
				defer mu.Unlock()
				c.follow = append(c.follow, topic)
				return nil
			}),
		})
		stop, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(t.Context(), stop) }()
		do(c)
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// submit publishes references as one batch.
func (c *clerk) submit(refs ...record.Ref) {
	c.t.Helper()
	var data []byte
	for i := range refs {
		var err error
		if data, err = record.AppendMessage(data, &record.Record{Key: []byte(refs[i].URL), Ref: &refs[i]}); err != nil {
			c.t.Fatal(err)
		}
	}
	batch, err := record.EncodeBatch(nil, record.CodecNull, len(refs), data)
	if err != nil {
		c.t.Fatal(err)
	}
	c.sent++
	c.lane.publishWith("refs", batch, map[string][]string{
		lane.HeaderBatch: {"1"}, lane.HeaderCodec: {record.CodecNull}, lane.HeaderProducer: {"p"}, lane.HeaderSequence: {strconv.Itoa(c.sent)},
	})
}

// pass lets virtual time pass: only in a bubble is nobody kept waiting.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// read is what a topic holds.
func (c *clerk) read(name string) (list []record.Record) {
	c.t.Helper()
	t, err := c.store.Topic(c.t.Context(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := t.Read(c.t.Context(), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for item, err := range r.Next(c.t.Context()) {
		if err != nil {
			c.t.Fatal(err)
		}
		list = append(list, item.Record)
	}
	return list
}

// stored publishes a value to the plain topic and returns how long it takes until
// it can be read.
func (c *clerk) stored(value string) time.Duration {
	c.t.Helper()
	start := time.Now()
	c.lane.publish("plain", []byte(value))
	for {
		for _, r := range c.read("plain") {
			if string(r.Value) == value {
				return time.Since(start)
			}
		}
		if time.Since(start) > time.Minute {
			c.t.Fatalf("%s is not stored after a minute", value)
		}
		pass(10 * time.Millisecond)
	}
}

func outcomeOf(r record.Record) string {
	switch {
	case r.Rejected != "":
		return r.Rejected
	case r.Pending:
		return "pending"
	}
	return "verified"
}

// TestVerdicts: each kind of reference gets its own, in one batch; the records keep
// their order, keys and references whatever the verdict.
func TestVerdicts(t *testing.T) {
	born := time.Now()
	endpoint := headFunc(func(ctx context.Context, n ref.Name) (object.Info, error) {
		switch n.Key {
		case "comes":
			if time.Since(born) < time.Second {
				return object.Info{}, object.ErrNotFound
			}
		case "gone":
			return object.Info{}, object.ErrDeleted
		case "missing":
			return object.Info{}, object.ErrNotFound
		case "secret":
			return object.Info{}, object.ErrForbidden
		case "broken":
			return object.Info{}, &object.UnavailableError{Op: "head", Name: n, Status: 500}
		case "never":
			<-ctx.Done()
			return object.Info{}, ctx.Err()
		}
		return object.Info{Size: 5, ETag: "e"}, nil
	})
	withClerk(t, endpoint, func(c *clerk) {
		born = time.Now()
		var refs []record.Ref
		want := map[string]string{
			"there": "verified", "comes": "verified", "gone": "pending", "missing": "pending", "secret": "pending",
			"broken": "pending", "never": "pending",
			"size": "reference: the object is another one: its size is 5, not 6",
			"etag": "reference: the object is another one: its etag is e, not f",
		}
		for _, key := range []string{"there", "comes", "gone", "missing", "secret", "broken", "never", "size", "etag", "there"} {
			f := record.Ref{URL: "s3://allowed/" + key, Size: 5, ETag: "e"}
			switch key {
			case "size":
				f.Size = 6
			case "etag":
				f.ETag = "f"
			}
			refs = append(refs, f)
		}
		refs = append(refs, record.Ref{URL: "s3://other/there", Size: 5}, record.Ref{URL: "http://host/there"}, record.Ref{URL: "s3://allowed/../x"})
		want["s3://other/there"] = "allows no references"
		want["http://host/there"] = "it names a host"
		want["s3://allowed/../x"] = `a segment ".."`
		start := time.Now()
		c.submit(refs...)
		c.stored("after")
		if took := time.Since(start); took > 2500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		got := c.read("refs")
		if len(got) != len(refs) {
			t.Fatalf("%d records, want %d", len(got), len(refs))
		}
		for i, r := range got {
			if r.Ref == nil || r.Ref.URL != refs[i].URL || string(r.Key) != refs[i].URL || int(r.Position.Row) != i {
				t.Errorf("record %d is %+v", i, r)
				continue
			}
			w := want[strings.TrimPrefix(refs[i].URL, "s3://allowed/")]
			if o := outcomeOf(r); o != w && (len(o) < 15 || !strings.Contains(o, w)) {
				t.Errorf("%s: %q, want %q", refs[i].URL, o, w)
			}
		}
		pass(2 * time.Second)
		if len(c.follow) != 1 || c.follow[0] != "refs" {
			t.Errorf("a follow-up was asked for %q", c.follow)
		}
	})
}

// TestMissingObjectsDelayNothing: ten thousand references to objects that are not
// there do not hold a record of another topic up by more than the budget, and
// those that follow hardly at all.
func TestMissingObjectsDelayNothing(t *testing.T) {
	endpoint := headFunc(func(context.Context, ref.Name) (object.Info, error) {
		time.Sleep(2 * time.Millisecond) // virtual: as long as a gateway takes
		return object.Info{}, object.ErrNotFound
	})
	withClerk(t, endpoint, func(c *clerk) {
		usual := c.stored("before")
		for i := range 10 {
			var refs []record.Ref
			for n := range 1000 {
				refs = append(refs, record.Ref{URL: fmt.Sprintf("s3://allowed/%d/%d", i, n), Size: 1})
			}
			c.submit(refs...)
		}
		if took := c.stored("beside") - usual; took > 2*time.Second {
			t.Errorf("a record was held up for %s", took)
		}
		for i := range 5 {
			c.submit(record.Ref{URL: fmt.Sprintf("s3://allowed/more/%d", i), Size: 1})
			if took := c.stored(fmt.Sprint("after", i)) - usual; took > 100*time.Millisecond {
				t.Errorf("a later record was held up for %s", took)
			}
		}
		refs := c.read("refs")
		for _, r := range refs {
			if !r.Pending {
				t.Fatalf("%+v is not pending", r)
			}
		}
		if len(refs) != 10_005 {
			t.Errorf("%d references are there", len(refs))
		}
	})
}

// TestASilentEndpointIsNotAsked: after some looks without an answer; but now and
// then it is, and when it answers again all is as before.
func TestASilentEndpointIsNotAsked(t *testing.T) {
	var mu sync.Mutex
	asked, silent := 0, true
	endpoint := headFunc(func(ctx context.Context, _ ref.Name) (object.Info, error) {
		mu.Lock()
		asked++
		quiet := silent
		mu.Unlock()
		if quiet {
			<-ctx.Done()
			return object.Info{}, ctx.Err()
		}
		return object.Info{Size: 1}, nil
	})
	submit := func(c *clerk, round int) {
		var refs []record.Ref
		for n := range 20 {
			refs = append(refs, record.Ref{URL: fmt.Sprintf("s3://allowed/%d/%d", round, n), Size: 1})
		}
		c.submit(refs...)
	}
	withClerk(t, endpoint, func(c *clerk) {
		usual := c.stored("before")
		submit(c, 0)
		if took := c.stored("first") - usual; took > 2*time.Second {
			t.Errorf("the first was held up for %s", took)
		}
		first := asked
		for i := range 3 {
			submit(c, 1+i)
			if took := c.stored(fmt.Sprint("later", i)) - usual; took > 50*time.Millisecond {
				t.Errorf("later ones were held up for %s", took)
			}
		}
		if asked != first {
			t.Errorf("a silent endpoint was asked %d more times", asked-first)
		}
		pass(11 * time.Second)
		submit(c, 10)
		c.stored("probed")
		if asked != first+1 {
			t.Errorf("it was asked %d times, want once", asked-first)
		}
		mu.Lock()
		silent = false
		mu.Unlock()
		pass(11 * time.Second)
		submit(c, 11)
		c.stored("back")
		submit(c, 12)
		c.stored("as before")
		all := c.read("refs")
		for _, r := range all[len(all)-20:] {
			if r.Pending {
				t.Fatalf("%s is pending, though the endpoint answers", r.Ref.URL)
			}
		}
	})
}

// TestAllowedAMomentAgo: a worker that knows an older definition does not refuse
// what has been allowed since.
func TestAllowedAMomentAgo(t *testing.T) {
	endpoint := headFunc(func(context.Context, ref.Name) (object.Info, error) { return object.Info{Size: 1}, nil })
	withClerk(t, endpoint, func(c *clerk) {
		c.submit(record.Ref{URL: "s3://allowed/a", Size: 1}, record.Ref{URL: "s3://later/a", Size: 1})
		c.stored("one")
		if _, _, err := c.store.ChangeTopic(c.t.Context(), "refs", func(d *topic.Definition) error {
			d.Buckets = []string{"later"}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		c.submit(record.Ref{URL: "s3://later/b", Size: 1})
		c.stored("two")
		pass(11 * time.Second)
		c.submit(record.Ref{URL: "s3://allowed/b", Size: 1})
		c.stored("three")
		var got []string
		for _, r := range c.read("refs") {
			got = append(got, strings.Fields(outcomeOf(r))[0])
		}
		if fmt.Sprint(got) != "[verified reference: verified reference:]" {
			t.Errorf("%q", got)
		}
	})
}

// TestAllowedWhileTheFlushWaits: nothing is refused by a list that has changed
// before the flush is decided about, however long that waits for more records.
func TestAllowedWhileTheFlushWaits(t *testing.T) {
	endpoint := headFunc(func(context.Context, ref.Name) (object.Info, error) { return object.Info{Size: 1}, nil })
	withClerk(t, endpoint, func(c *clerk) {
		change := func(do func(*topic.Definition)) {
			t.Helper()
			if _, _, err := c.store.ChangeTopic(c.t.Context(), "refs", func(d *topic.Definition) error { do(d); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		change(func(d *topic.Definition) { d.FlushAge = topic.Duration(5 * time.Second) })
		c.submit(record.Ref{URL: "s3://later/a", Size: 1}, record.Ref{URL: "s3://never/a", Size: 1})
		pass(2 * time.Second)
		change(func(d *topic.Definition) { d.Buckets = []string{"later"} })
		c.submit(record.Ref{URL: "s3://later/b", Size: 1})
		pass(6 * time.Second)
		var got []string
		for _, r := range c.read("refs") {
			got = append(got, strings.Fields(outcomeOf(r))[0])
		}
		if fmt.Sprint(got) != "[pending reference: pending]" {
			t.Errorf("%q", got)
		}
	})
}
