package seaweed_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

func TestScopes(t *testing.T) {
	for s, ok := range map[seaweed.Scope]bool{
		{Bucket: "bkt"}: true, {Bucket: "bkt", Prefix: "a"}: true, {Bucket: "bkt", Prefix: "a/"}: true, {Bucket: "bkt", Prefix: "a/b c%2"}: true,
		{}: false, {Bucket: "b"}: false, {Bucket: ".uploads"}: false, {Bucket: "bkt/a"}: false, {Bucket: "bkt/.."}: false,
		{Bucket: "bkt", Prefix: "/"}: false, {Bucket: "bkt", Prefix: "/a"}: false, {Bucket: "bkt", Prefix: "a//"}: false, {Bucket: "bkt", Prefix: "a//b"}: false,
		{Bucket: "bkt", Prefix: "../x"}: false, {Bucket: "bkt", Prefix: "a/../../x"}: false, {Bucket: "bkt", Prefix: `a\b`}: false,
		{Bucket: "bkt", Prefix: "a\n"}: false, {Bucket: "bkt", Prefix: "a\xff"}: false, {Bucket: "bkt", Prefix: strings.Repeat("a", 256)}: false,
	} {
		if err := s.Check(); (err == nil) != ok || err != nil && !errors.Is(err, filer.ErrInvalid) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestSteps is about a filer's claims that it has nothing more, which hold if it has
// one log, and without which nobody knows that.
func TestSteps(t *testing.T) {
	event := &filer_pb.SubscribeMetadataResponse{TsNs: 7, EventNotification: &filer_pb.EventNotification{}}
	claim := func(at, flushed int64) *filer_pb.SubscribeMetadataResponse {
		return &filer_pb.SubscribeMetadataResponse{TsNs: at, FlushedTsNs: flushed}
	}
	type m = []*filer_pb.SubscribeMetadataResponse
	for name, c := range map[string]struct {
		messages m
		want     []seaweed.Step
	}{
		"alone, and all is written":       {m{claim(9, 8)}, []seaweed.Step{{Upto: 9, Idle: true}}},
		"alone, and nothing is written":   {m{claim(9, 0), claim(0, 0), claim(14, 0)}, []seaweed.Step{{}, {Upto: 9, Idle: true}, {Upto: 14, Idle: true}}},
		"reports alone":                   {m{claim(0, 3), claim(0, 0)}, []seaweed.Step{{}, {}}},
		"of several logs":                 {m{claim(9, 0), claim(14, 0), event}, []seaweed.Step{{}, {Idle: true}, {Upto: 7}}},
		"an event comes before a report":  {m{claim(6, 0), event, claim(0, 0)}, []seaweed.Step{{}, {Upto: 7}, {}}},
		"a batch, and one that is passed": {m{{TsNs: 3, EventNotification: event.EventNotification, Events: m{event}}}, []seaweed.Step{{Upto: 7}}},
	} {
		if got := seaweed.Steps(seaweed.Scope{Bucket: "bkt"}, c.messages); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestWrittenAndTold: a bucket of several pages, and of folders, is listed and told
// completely, and only what begins so.
func TestWrittenAndTold(t *testing.T) {
	c, g := dial(t, seaweed.Config{}), s3Gateway(t)
	bucket := g.MakeBucket(t, false)
	var keys []string
	for i := range 2100 {
		keys = append(keys, fmt.Sprintf("many/%04d", i))
	}
	keys = append(keys, "a", "ma", "many.txt", "many/0000.txt", "manyfold/x", "b/c/d/e", "many/0001x/y")
	var put errgroup.Group
	put.SetLimit(8)
	for _, key := range keys {
		put.Go(func() error {
			i := strings.LastIndexByte("/"+key, '/')
			resp, err := c.RPC().CreateEntry(t.Context(), &filer_pb.CreateEntryRequest{
				Directory: strings.TrimSuffix("/buckets/"+bucket+"/"+key[:i], "/"),
				Entry:     &filer_pb.Entry{Name: key[i:], Content: []byte("x"), Attributes: &filer_pb.FuseAttributes{FileSize: 1, FileMode: 0o660}},
			})
			return errors.Join(err, errors.New(resp.GetError()))
		})
	}
	if err := put.Wait(); err != nil && strings.TrimSpace(err.Error()) != "" {
		t.Fatal(err)
	}
	for _, prefix := range []string{"", "many", "many/", "many/0001", "b/c", "b/c/d/e", "x", "b/x/y"} {
		var want, listed, told []string
		for _, key := range keys {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		s := seaweed.Scope{Bucket: bucket, Prefix: prefix}
		if err := c.Written(t.Context(), s, func(e seaweed.ObjectEvent) error { listed = append(listed, e.Object.Key); return nil }); err != nil {
			t.Error(err)
		}
		if err := c.Subscribe(t.Context(), s, 0, false, func(step seaweed.Step) error {
			for _, e := range step.Events {
				told = append(told, e.Object.Key)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		for how, got := range map[string][]string{"listed": listed, "told": told} {
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%q: %d %s, want %d", prefix, len(got), how, len(want))
			}
		}
	}
}

// TestSubscriptionsEnd: by the callback, by the caller, and with the filer, which is
// an error for those that follow.
func TestSubscriptionsEnd(t *testing.T) {
	c := dial(t, seaweed.Config{})
	s := seaweed.Scope{Bucket: s3Gateway(t).MakeBucket(t, false)}
	enough := errors.New("enough")
	idle := false
	err := c.Subscribe(t.Context(), s, 0, true, func(step seaweed.Step) error {
		if step.Idle {
			idle = true
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || !idle {
		t.Errorf("%v, idle %v", err, idle)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = c.Subscribe(ctx, s, 0, true, func(seaweed.Step) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := c.Written(t.Context(), s, func(seaweed.ObjectEvent) error { return nil }); err != nil {
		t.Error(err)
	}
	bad := seaweed.Scope{Bucket: s.Bucket, Prefix: "../x"}
	if err := errors.Join(c.Subscribe(t.Context(), bad, 0, true, nil), c.Written(t.Context(), bad, nil)); !errors.Is(err, filer.ErrInvalid) {
		t.Error(err)
	}
	f := newFake(t, nil) // knows of no subscriptions
	if err := f.dial(t, seaweed.Config{}).Subscribe(t.Context(), s, 0, true, nil); err == nil {
		t.Error("no error")
	}
}
