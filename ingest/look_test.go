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

	"github.com/spillway-mq/spillway/infra/bubble"
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
		bubble.Pass(10 * time.Millisecond)
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
		bubble.Pass(2 * time.Second)
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
		<-time.After(2 * time.Millisecond) // virtual: as long as a gateway takes
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

// hanging is an endpoint that does not answer for keys that begin with hang.
var hanging = headFunc(func(ctx context.Context, n ref.Name) (object.Info, error) {
	if strings.HasPrefix(n.Key, "hang") {
		<-ctx.Done()
		return object.Info{}, ctx.Err()
	}
	return object.Info{Size: 1}, nil
})

// TestHangingLooksHoldRecordsUpOnceInAWhile: for the budget, and not with every flush,
// whatever else is answered or refused meanwhile. What is answered counts.
func TestHangingLooksHoldRecordsUpOnceInAWhile(t *testing.T) {
	for name, other := range map[string]string{"alone": "", "beside others": "s3://allowed/ok", "beside forbidden ones": "s3://forbidden/k"} {
		t.Run(name, func(t *testing.T) {
			withClerk(t, hanging, func(c *clerk) {
				usual, held := c.stored("before"), 0
				for i := range 40 {
					refs := []record.Ref{{URL: fmt.Sprintf("s3://allowed/hang%d", i), Size: 1}}
					if other != "" {
						refs = append(refs, record.Ref{URL: fmt.Sprint(other, i), Size: 1})
					}
					c.submit(refs...)
					switch took := c.stored(fmt.Sprint("v", i)) - usual; {
					case took > 2*time.Second:
						t.Errorf("a record was held up for %s", took)
					case took > 200*time.Millisecond:
						held++
					}
				}
				if held == 0 || held > 2 { // 40 flushes take some ten seconds
					t.Errorf("%d of 40 flushes were held up", held)
				}
				for _, r := range c.read("refs") {
					want := map[string]string{"allowed/hang": "pending", "allowed/ok": "verified", "forbidden/k": "reference"}
					for part, outcome := range want {
						if strings.Contains(r.Ref.URL, part) && !strings.HasPrefix(outcomeOf(r), outcome) {
							t.Errorf("%s: %s", r.Ref.URL, outcomeOf(r))
						}
					}
				}
			})
		})
	}
}

// TestPatienceComesBack: a while after an endpoint answers again, absent objects are
// waited for as before.
func TestPatienceComesBack(t *testing.T) {
	born := time.Now()
	endpoint := headFunc(func(context.Context, ref.Name) (object.Info, error) {
		if time.Since(born) < time.Second {
			return object.Info{}, object.ErrNotFound
		}
		return object.Info{Size: 1}, nil
	})
	withClerk(t, endpoint, func(c *clerk) {
		born = time.Now().Add(time.Hour) // never
		c.submit(record.Ref{URL: "s3://allowed/never", Size: 1})
		c.stored("one")
		born = time.Now()
		c.submit(record.Ref{URL: "s3://allowed/soon", Size: 1})
		c.stored("two")
		bubble.Pass(sulks)
		born = time.Now()
		c.submit(record.Ref{URL: "s3://allowed/later", Size: 1})
		c.stored("three")
		var got []string
		for _, r := range c.read("refs") {
			got = append(got, outcomeOf(r))
		}
		if fmt.Sprint(got) != "[pending pending verified]" {
			t.Errorf("%q", got)
		}
	})
}

// sulks is longer than a worker waits for nothing.
const sulks = 11 * time.Second

// TestTheForbiddenIsRefusedWithoutALook: also where looks hang.
func TestTheForbiddenIsRefusedWithoutALook(t *testing.T) {
	withClerk(t, hanging, func(c *clerk) {
		var refs []record.Ref
		for n := range 200 {
			refs = append(refs, record.Ref{URL: fmt.Sprintf("s3://allowed/hang%d", n), Size: 1})
		}
		bad := []record.Ref{{URL: "s3://secret-bucket/x", Size: 1}, {URL: "https://evil/x", Size: 1}}
		c.submit(append(refs, bad...)...)
		c.stored("one")
		c.submit(bad...)
		c.stored("two")
		for i, r := range c.read("refs") {
			if o := outcomeOf(r); i >= len(refs) && !strings.HasPrefix(o, "reference: ") {
				t.Errorf("%s: %s, want it rejected", r.Ref.URL, o)
			}
		}
	})
}

// TestHeldUpOnceNotTwice: a record that waits for the flush before its own, which
// waits for its objects, does not wait as long again for those of its own.
func TestHeldUpOnceNotTwice(t *testing.T) {
	var born time.Time
	endpoint := headFunc(func(ctx context.Context, n ref.Name) (object.Info, error) {
		if n.Key == "comes" && time.Since(born) < 1400*time.Millisecond {
			return object.Info{}, object.ErrNotFound
		}
		return hanging(ctx, n)
	})
	withClerk(t, endpoint, func(c *clerk) {
		usual := c.stored("before")
		born = time.Now()
		c.submit(record.Ref{URL: "s3://allowed/comes", Size: 1})
		bubble.Pass(150 * time.Millisecond) // its flush waits now, and not in vain
		time.AfterFunc(1300*time.Millisecond, func() { c.submit(record.Ref{URL: "s3://allowed/hang", Size: 1}) })
		if took := c.stored("victim") - usual; took > 2*time.Second {
			t.Errorf("held up for %s", took)
		}
		if o := outcomeOf(c.read("refs")[0]); o != "verified" {
			t.Errorf("the first is %s", o)
		}
	})
}
