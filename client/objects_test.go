package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
)

// shelf is objects in memory.
type shelf struct {
	mu    sync.Mutex
	held  map[string]object.Info
	heads int
	puts  int

	// before, if not nil, is called before each call; its error is the answer.
	before func(ctx context.Context, op, key string) error
}

func newShelf() *shelf { return &shelf{held: map[string]object.Info{}} }

func (s *shelf) objects() *Objects { return &Objects{store: s, bucket: "large", now: time.Now} }

func (s *shelf) Close() {}

func (s *shelf) Head(ctx context.Context, bucket, key, _ string) (object.Info, error) {
	if s.before != nil {
		if err := s.before(ctx, "head", key); err != nil {
			return object.Info{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads++
	info, ok := s.held[bucket+"/"+key]
	if !ok {
		return info, fmt.Errorf("head s3://%s/%s: %w", bucket, key, object.ErrNotFound)
	}
	return info, nil
}

func (s *shelf) Put(ctx context.Context, n object.Name, body io.ReaderAt, size int64, o object.PutOptions) (object.Info, error) {
	if s.before != nil {
		if err := s.before(ctx, "put", n.Key); err != nil {
			return object.Info{}, err
		}
	}
	b, err := io.ReadAll(io.NewSectionReader(body, 0, size))
	if err != nil {
		return object.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := n.Bucket + "/" + n.Key
	if _, ok := s.held[name]; ok && o.IfNoneMatch {
		return object.Info{}, object.ErrChanged
	}
	s.puts++
	sum := sha256.Sum256(b)
	s.held[name] = object.Info{Size: size, ETag: fmt.Sprintf("e%d", s.puts), SHA256: sum[:], Modified: time.Now(), Pins: o.Pins}
	return s.held[name], nil
}

func nameOf(topic string, value []byte) string {
	sum := sha256.Sum256(value)
	return "large/spillway/" + topic + "/" + hex.EncodeToString(sum[:])
}

// TestLargeValues: what is over the limit goes by reference, what is not goes
// itself, and a value that was uploaded before is not uploaded again.
func TestLargeValues(t *testing.T) {
	w, s := newWorld(t, lane.Settings{}), newShelf()
	p := w.producer(Options{Objects: s.objects()})
	large := bytes.Repeat([]byte("x"), MaxValue+1)
	for _, value := range [][]byte{large[:MaxValue], large, large} {
		r := Record{Key: []byte("k"), Value: value, Headers: []Header{{Name: "h", Value: []byte("v")}}}
		if _, err := p.PublishSync(t.Context(), "t", r); err != nil {
			t.Fatal(err)
		}
	}
	got := w.read(defaultLane)
	if len(got) != 3 || s.puts != 1 {
		t.Fatalf("%d records, %d uploads", len(got), s.puts)
	}
	if got[0].Ref != nil || len(got[0].Value) != MaxValue {
		t.Errorf("at the limit: %+v", got[0].Ref)
	}
	sum := sha256.Sum256(large)
	for _, g := range got[1:] {
		f := g.Ref
		if g.Value != nil || f == nil || f.URL != "s3://"+nameOf("t", large) || f.Size != MaxValue+1 ||
			f.ETag != "e1" || !bytes.Equal(f.SHA256, sum[:]) || f.Records != nil {
			t.Errorf("over the limit: %+v, value of %d bytes", f, len(g.Value))
		}
		if string(g.Key) != "k" || len(g.Headers) != 1 {
			t.Errorf("key %q, headers %v", g.Key, g.Headers)
		}
	}
}

// TestLargeValuesKeepTheirOrder: a small record does not overtake a large one of
// its key, whatever the uploads do.
func TestLargeValuesKeepTheirOrder(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	rapid.Check(t, func(rt *rapid.T) {
		s, topic := newShelf(), "t"+strings.ToLower(rapid.StringMatching("[a-z0-9]{16}").Draw(rt, "topic"))
		p, err := NewProducer(w.nc, Options{Objects: s.objects(), Linger: -1})
		if err != nil {
			rt.Fatal(err)
		}
		large := rapid.SliceOfN(rapid.Bool(), 1, 12).Draw(rt, "large")
		for i, is := range large {
			value := str(i)
			if is {
				value = append(bytes.Repeat([]byte(" "), MaxValue), value...)
			}
			if _, err := p.Publish(t.Context(), topic, Record{Key: []byte("k"), Value: value, Headers: []Header{{Name: "n", Value: str(i)}}}); err != nil {
				rt.Fatal(err)
			}
		}
		if err := p.Close(t.Context()); err != nil {
			rt.Fatal(err)
		}
		n := 0
		for _, g := range w.read(defaultLane) {
			if g.Topic != topic {
				continue
			}
			if string(g.Headers[0].Value) != string(str(n)) || (g.Ref != nil) != large[n] {
				rt.Fatalf("record %d is %s, by reference: %v", n, g.Headers[0].Value, g.Ref != nil)
			}
			n++
		}
		if n != len(large) {
			rt.Fatalf("%d records of %d", n, len(large))
		}
	})
}

// TestUploadFaults: what is in the way of an upload, and what becomes of it.
func TestUploadFaults(t *testing.T) {
	value := bytes.Repeat([]byte("y"), MaxValue+1)
	away := &object.UnavailableError{Op: "put", Err: errors.New("down")}
	for name, c := range map[string]struct {
		prepare func(*shelf)
		puts    int
		want    func(error) bool // nil: no error
	}{
		"damaged before": {prepare: func(s *shelf) { s.held[nameOf("t", value)] = object.Info{Size: 5, ETag: "old"} }, puts: 1},
		"no digest":      {prepare: func(s *shelf) { s.held[nameOf("t", value)] = object.Info{Size: MaxValue + 1} }, puts: 1},
		"another put it meanwhile": {prepare: func(s *shelf) {
			once := sync.OnceFunc(func() {
				s.before = nil
				_, _ = s.Put(context.Background(), object.Name{Bucket: "large", Key: strings.TrimPrefix(nameOf("t", value), "large/")},
					bytes.NewReader(value), MaxValue+1, object.PutOptions{})
			})
			s.before = func(_ context.Context, op, _ string) error {
				if op == "put" {
					once()
				}
				return nil
			}
		}, puts: 1},
		"others for ever": {prepare: answering("put", object.ErrChanged), want: passing(true)},
		"head fails":      {prepare: answering("head", away), want: passing(true)},
		"put fails":       {prepare: answering("put", away), want: passing(true)},
		"no rights":       {prepare: answering("put", object.ErrForbidden), want: passing(false)},
		"no bucket":       {prepare: answering("put", object.ErrNoBucket), want: passing(false)},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := newWorld(t, lane.Settings{}), newShelf()
			c.prepare(s)
			p := w.producer(Options{Objects: s.objects()})
			_, err := p.PublishSync(t.Context(), "t", Record{Value: value})
			if (err == nil) != (c.want == nil) || c.want != nil && !c.want(err) || err != nil && !NotStored(err) {
				t.Errorf("%v", err)
			}
			got := w.read(defaultLane)
			if s.puts != c.puts || (len(got) == 1) != (err == nil) {
				t.Errorf("%d uploads, %d records", s.puts, len(got))
			}
			if len(got) == 1 && got[0].Ref.ETag != "e1" {
				t.Errorf("the reference is to %+v", got[0].Ref)
			}
		})
	}
}

func answering(op string, err error) func(*shelf) {
	return func(s *shelf) {
		s.before = func(_ context.Context, called, _ string) error {
			if called == op {
				return err
			}
			return nil
		}
	}
}

func passing(passes bool) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*ObjectsError](err)
		return ok && e.Passes == passes
	}
}

// TestNothingIsUploadedInVain: a record that cannot be published leaves no object.
func TestNothingIsUploadedInVain(t *testing.T) {
	w, s := newWorld(t, lane.Settings{}), newShelf()
	p := w.producer(Options{Objects: s.objects()})
	large := make([]byte, MaxValue+1)
	closed := w.producer(Options{Objects: s.objects()})
	if err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		p     *Producer
		topic string
		r     Record
		is    func(error) bool
	}{
		"topic":       {p, "No Topic", Record{Value: large}, isType[*NameError]},
		"header name": {p, "t", Record{Value: large, Headers: []Header{{Name: "\xff"}}}, isType[*RecordError]},
		"headers":     {p, "t", Record{Value: large, Headers: []Header{{Name: "h", Value: make([]byte, 2<<20)}}}, isType[*RecordTooLargeError]},
		"closed":      {closed, "t", Record{Value: large}, func(err error) bool { return errors.Is(err, ErrClosed) }},
	} {
		if _, err := c.p.Publish(t.Context(), c.topic, c.r); !c.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	none := w.producer(Options{Objects: &Objects{store: s}}) // without a bucket
	if _, err := none.Publish(t.Context(), "t", Record{Value: large}); !isType[*ValueTooLargeError](err) || !strings.Contains(err.Error(), "bucket") {
		t.Errorf("without a bucket: %v", err)
	}
	if s.puts != 0 {
		t.Errorf("%d uploads", s.puts)
	}
}

// TestAnUploadEnds: with the context, and when the producer is closed.
func TestAnUploadEnds(t *testing.T) {
	w, s := newWorld(t, lane.Settings{}), newShelf()
	waiting := make(chan struct{})
	s.before = func(ctx context.Context, op, _ string) error {
		if op == "put" {
			waiting <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}
	p := w.producer(Options{Objects: s.objects()})
	publish := func(ctx context.Context) <-chan error {
		out := make(chan error, 1)
		go func() {
			_, err := p.Publish(ctx, "t", Record{Value: make([]byte, MaxValue+1)})
			out <- err
		}()
		<-waiting
		return out
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := publish(ctx)
	cancel()
	if err := <-out; !errors.Is(err, context.Canceled) || !NotStored(err) {
		t.Errorf("cancelled: %v", err)
	}
	out = publish(t.Context())
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-out; !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestAnUploadIsReused: a producer that ends between the upload and the record
// leaves an object, and the next one that publishes the value uses it.
func TestAnUploadIsReused(t *testing.T) {
	w, s := newWorld(t, lane.Settings{}), newShelf()
	r := Record{Value: make([]byte, MaxValue+1)}
	first := w.producer(Options{Objects: s.objects()})
	s.before = func(_ context.Context, op, _ string) error {
		if op == "put" {
			return first.Close(t.Context())
		}
		return nil
	}
	if _, err := first.Publish(t.Context(), "t", r); !errors.Is(err, ErrClosed) || !NotStored(err) || s.puts != 1 {
		t.Fatalf("%v after %d uploads", err, s.puts)
	}
	if _, err := w.producer(Options{Objects: s.objects()}).PublishSync(t.Context(), "t", r); err != nil {
		t.Fatal(err)
	}
	if got := w.read(defaultLane); len(got) != 1 || got[0].Ref.ETag != "e1" || s.puts != 1 {
		t.Errorf("%d records, %d uploads", len(got), s.puts)
	}
}

// TestAnOldUploadIsPutAgain: what refs drop may be about to delete is not named, but
// put there again, so that its age starts anew.
func TestAnOldUploadIsPutAgain(t *testing.T) {
	value := make([]byte, MaxValue+1)
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		modified time.Time
		again    bool
	}{
		"now":                  {now, false},
		"almost too old":       {now.Add(time.Second - reusable), false},
		"too old":              {now.Add(-reusable), true},
		"very old":             {now.AddDate(-1, 0, 0), true},
		"of unknown age":       {time.Time{}, true},
		"a little in future":   {now.Add(ahead / 2), false},
		"nobody knows how old": {now.Add(ahead), true},
	} {
		s := newShelf()
		o := s.objects()
		o.now = func() time.Time { return now }
		first, err := o.upload(t.Context(), "t", payloadOf(value))
		if err != nil {
			t.Fatal(err)
		}
		held := s.held[nameOf("t", value)]
		held.Modified, held.Pins = c.modified, map[string]string{"spillway-pin-a": "t"}
		s.held[nameOf("t", value)] = held
		second, err := o.upload(t.Context(), "t", payloadOf(value))
		if err != nil || (s.puts == 2) != c.again || second.URL != first.URL || (second.ETag != first.ETag) != c.again {
			t.Errorf("%s: %d uploads, %+v, %v", name, s.puts, second, err)
		}
		if pins := s.held[nameOf("t", value)].Pins; len(pins) != 1 {
			t.Errorf("%s: the pins are %v", name, pins)
		}
	}
}
