package client

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// gateway is the S3 gateway of the shared stack.
type gateway struct {
	t      *testing.T
	config ObjectsConfig
	store  *object.Store
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	s3 := devtest.Weed(t).Info.S3
	g := &gateway{t: t, config: ObjectsConfig{Endpoint: s3.URL, Region: "us-east-1", AccessKey: s3.AccessKey, SecretKey: s3.SecretKey, Bucket: "spillway"}}
	var err error
	g.store, err = object.Open(t.Context(), object.Config{Endpoint: s3.URL, Region: "us-east-1", AccessKey: s3.AccessKey, SecretKey: s3.SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.store.Close)
	return g
}

// put puts an object into the stack's bucket and returns its URL.
func (g *gateway) put(key string, data []byte, o object.PutOptions) (string, object.Info) {
	g.t.Helper()
	n := object.Name{Bucket: "spillway", Key: key}
	info, err := g.store.Put(g.t.Context(), n, bytes.NewReader(data), int64(len(data)), o)
	if err != nil {
		g.t.Fatal(err)
	}
	return n.String(), info
}

func (g *gateway) objects(change func(*ObjectsConfig)) *Objects {
	g.t.Helper()
	c := g.config
	if change != nil {
		change(&c)
	}
	o, err := OpenObjects(g.t.Context(), c)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(o.Close)
	return o
}

// TestSubmit: what is left open is filled in from the object, what is given is
// kept, and all else of the record is as it is with Publish.
func TestSubmit(t *testing.T) {
	w, g := newWorld(t, lane.Settings{}), newGateway(t)
	data := []byte("payload")
	sum := sha256.Sum256(data)
	url, info := g.put("client/submit", data, object.PutOptions{ContentType: "text/csv", SHA256: sum[:]})
	bare, bareInfo := g.put("client/submit bare", nil, object.PutOptions{})
	p := w.producer(Options{Objects: g.objects(nil)})
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	r := Record{Key: []byte("k"), Headers: []Header{{Name: "h", Value: []byte("v")}}, EventTime: at}
	forty := int64(40)
	full := record.Ref{URL: url, Size: 7, ETag: info.ETag, ContentType: "text/csv", SHA256: sum[:]}
	batch := full
	batch.Records = &forty
	unchecked := record.Ref{URL: "s3://elsewhere/x", Size: 9, ETag: "e"}
	for _, c := range []struct {
		give Reference
		opts []PublishOption
		want record.Ref
	}{
		{Reference{URL: url}, nil, full},
		{Reference{URL: url, Size: 7, ETag: `"` + info.ETag + `"`, SHA256: sum[:], Records: 40}, nil, batch},
		{Reference{URL: bare, Version: "null"}, nil, record.Ref{URL: bare, ETag: bareInfo.ETag}},
		{Reference{URL: "s3://elsewhere/x", Size: 9, ETag: "e"}, []PublishOption{Unchecked()}, unchecked},
	} {
		pending, err := p.Submit(t.Context(), "t", c.give, r, c.opts...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pending.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := w.read(defaultLane)
		got := all[len(all)-1]
		if got.Ref != nil && c.want.ContentType == "" {
			got.Ref.ContentType = "" // the endpoint's own idea
		}
		if diff := cmp.Diff(&c.want, got.Ref); diff != "" {
			t.Error(diff)
		}
		if got.Value != nil || string(got.Key) != "k" || len(got.Headers) != 1 || !got.EventTime.Equal(at) {
			t.Errorf("record %+v", got.Record)
		}
	}
}

// TestSubmitRefuses: nothing is published, and the error says why.
func TestSubmitRefuses(t *testing.T) {
	w, g := newWorld(t, lane.Settings{}), newGateway(t)
	sum := sha256.Sum256([]byte("payload"))
	url, _ := g.put("client/refuse", []byte("payload"), object.PutOptions{SHA256: sum[:]})
	good := g.objects(nil)
	state := func(want string) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*ReferenceError](err)
			return ok && e.State == want
		}
	}
	closed := func(c *ObjectsConfig) { c.Endpoint = "http://127.0.0.1:1" }
	wrong := func(c *ObjectsConfig) { c.SecretKey = "wrong" }
	for name, c := range map[string]struct {
		objects *Objects
		ref     Reference
		r       Record
		is      func(error) bool
		word    string
	}{
		"no object":    {good, Reference{URL: url + "2"}, Record{}, state("missing"), "no such object"},
		"no bucket":    {good, Reference{URL: "s3://no-such-bucket/x"}, Record{}, state("missing"), "no such bucket"},
		"size":         {good, Reference{URL: url, Size: 8}, Record{}, state("changed"), "its size is 7, not 8"},
		"etag":         {good, Reference{URL: url, ETag: "0123"}, Record{}, state("changed"), "etag"},
		"digest":       {good, Reference{URL: url, SHA256: make([]byte, 32)}, Record{}, state("changed"), "sha256"},
		"dots":         {good, Reference{URL: "s3://spillway/../x"}, Record{}, state("missing"), "another object"},
		"presigned":    {good, Reference{URL: "https://h/b/k?X-Amz-Signature=geheim"}, Record{}, state("missing"), "presigned"},
		"empty":        {good, Reference{}, Record{}, state("missing"), "s3://bucket/key"},
		"value":        {good, Reference{URL: url}, Record{Value: []byte{}}, isType[*RecordError], "no value of its own"},
		"header":       {good, Reference{URL: url}, Record{Headers: []Header{{Name: "\xff"}}}, isType[*RecordError], "UTF-8"},
		"long digest":  {nil, Reference{URL: url, SHA256: make([]byte, 33)}, Record{}, isType[*RecordError], "sha256"},
		"keys":         {g.objects(wrong), Reference{URL: url}, Record{}, passing(false), "denied"},
		"refused":      {g.objects(closed), Reference{URL: url}, Record{}, passing(true), "unavailable"},
		"none, no way": {nil, Reference{URL: url}, Record{}, func(err error) bool { return errors.Is(err, ErrNoObjects) }, "no access"},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.producer(Options{Objects: c.objects})
			var opts []PublishOption
			if name == "long digest" {
				opts = append(opts, Unchecked())
			}
			_, err := p.Submit(t.Context(), "t", c.ref, c.r, opts...)
			if !c.is(err) || !NotStored(err) || !strings.Contains(err.Error(), c.word) || strings.Contains(err.Error(), "geheim") {
				t.Errorf("%T %v", err, err)
			}
		})
	}
	if got := w.read(defaultLane); len(got) != 0 {
		t.Errorf("%d records", len(got))
	}
}

// TestLargeValuesOnS3: the whole way with a real gateway, in parts too.
func TestLargeValuesOnS3(t *testing.T) {
	w, g := newWorld(t, lane.Settings{}), newGateway(t)
	p := w.producer(Options{Objects: g.objects(nil)})
	values := [][]byte{bytes.Repeat([]byte("ab"), MaxValue), bytes.Repeat([]byte("abc"), object.PartSize/2)}
	for _, value := range values {
		for range 2 {
			if _, err := p.PublishSync(t.Context(), "big-ones", Record{Value: value}); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := w.read(defaultLane)
	if len(got) != 4 {
		t.Fatalf("%d records", len(got))
	}
	for i, r := range got {
		f, want := r.Ref, values[i/2]
		if diff := cmp.Diff(f, got[i/2*2].Ref); diff != "" {
			t.Errorf("twice the same value: %s", diff)
		}
		o, err := g.objects(nil).Check(t.Context(), Reference{URL: f.URL, Size: f.Size, ETag: f.ETag, SHA256: f.SHA256})
		if err != nil || o.Size != int64(len(want)) || time.Since(o.Modified) > time.Hour {
			t.Errorf("%+v, %v", o, err)
		}
	}
}

// TestLargeValuesAtOnce: publishers of one value at the same time all refer to
// one object.
func TestLargeValuesAtOnce(t *testing.T) {
	w, g := newWorld(t, lane.Settings{}), newGateway(t)
	p := w.producer(Options{Objects: g.objects(nil)})
	value := bytes.Repeat([]byte("once"), MaxValue)
	var work errgroup.Group
	for range 6 {
		work.Go(func() error {
			_, err := p.PublishSync(t.Context(), "at-once", Record{Value: value})
			return err
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	got := w.read(defaultLane)
	for _, r := range got {
		if diff := cmp.Diff(got[0].Ref, r.Ref); diff != "" {
			t.Error(diff)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d records", len(got))
	}
}

// TestOpenObjects: settings that cannot work are refused.
func TestOpenObjects(t *testing.T) {
	for name, c := range map[string]ObjectsConfig{
		"endpoint": {Endpoint: "localhost:8333"},
		"userinfo": {Endpoint: "http://user:geheim@host"},
		"half":     {Endpoint: "http://h", AccessKey: "a"},
		"bucket":   {Endpoint: "http://h", AccessKey: "a", SecretKey: "s", Bucket: "No Bucket"},
	} {
		if _, err := OpenObjects(t.Context(), c); !isType[*OptionsError](err) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIdenticalLargeValuesAtOnce: several producers publish one value at the same
// time, before it was ever uploaded. Each call is a record of its own; all refer to
// one object, which is the one that they say, whoever uploaded it.
func TestIdenticalLargeValuesAtOnce(t *testing.T) {
	w, g := newWorld(t, lane.Settings{}), newGateway(t)
	value := bytes.Repeat([]byte("twin "), MaxValue/4)
	var calls errgroup.Group
	for range 3 {
		p := w.producer(Options{Objects: g.objects(nil)})
		for range 4 {
			calls.Go(func() error {
				_, err := p.PublishSync(t.Context(), "twins", Record{Value: value})
				return err
			})
		}
	}
	if err := calls.Wait(); err != nil {
		t.Fatal(err)
	}
	got := w.read(defaultLane)
	if len(got) != 12 {
		t.Fatalf("%d records", len(got))
	}
	urls := map[string]bool{}
	for _, r := range got {
		urls[r.Ref.URL] = true
		body := ref.NewReader(t.Context(), g.store, *r.Ref)
		read, err := io.ReadAll(body)
		if err != nil || !bytes.Equal(read, value) {
			t.Errorf("%+v: %d bytes, %v", r.Ref, len(read), err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(urls) != 1 {
		t.Errorf("%v", urls)
	}
}
