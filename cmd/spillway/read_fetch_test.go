package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// served is an endpoint that says one thing and sends another.
type served struct {
	info object.Info
	data string
	err  error
}

func (s served) Get(context.Context, object.Name, int64, string) (io.ReadCloser, object.Info, error) {
	return io.NopCloser(strings.NewReader(s.data)), s.info, s.err
}

// allowing are the rules of a topic that allows these buckets.
func allowing(buckets ...string) rules {
	return rules{look: func(context.Context) (*segment.Topic, error) {
		return &segment.Topic{Definition: topic.Definition{Name: "t", Buckets: buckets}}, nil
	}}
}

// unasked is an endpoint that must not be asked.
type unasked struct{ t *testing.T }

func (s unasked) Get(context.Context, object.Name, int64, string) (io.ReadCloser, object.Info, error) {
	s.t.Error("the endpoint was asked")
	return nil, object.Info{}, object.ErrForbidden
}

// TestFetchRefuses: what a topic does not allow, or has elsewhere, is not asked
// for; that is a fault of the setup, and says how to mend it. The others are read.
func TestFetchRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		buckets            []string
		endpoint, settings string
		says               string
	}{
		"no list":          {nil, "", "http://h", "topic set t --allow bucket"},
		"another bucket":   {[]string{"bucket2", "buck"}, "", "http://h", "topic set t --allow bucket"},
		"another prefix":   {[]string{"bucket/j"}, "", "http://h", "s3://bucket/k"},
		"another endpoint": {[]string{"bucket"}, "http://h:1", "http://h", "are at http://h:1"},
		"no endpoint":      {[]string{"bucket"}, "http://h:1", "", "are at http://h:1"},
	} {
		t.Run(name, func(t *testing.T) {
			def := topic.Definition{Name: "t", Buckets: c.buckets, Endpoint: c.endpoint}
			look := func(context.Context) (*segment.Topic, error) { return &segment.Topic{Definition: def}, nil }
			fetch := fetcher{store: unasked{t}, rules: rules{endpoint: c.settings, look: look}, dir: t.TempDir()}
			item := segment.Item{Record: record.Record{Ref: &record.Ref{URL: "s3://bucket/k", Size: 5}}}
			got, err := fetch.fetch(t.Context(), item, io.Discard)
			if err != nil || got.State != "pending" || got.Bytes != 0 || !strings.Contains(got.Error, c.says) {
				t.Errorf("%+v, %v", got, err)
			}
			if code := functions.ExitCode(fetch.bad.err("x")); code != functions.ExitConfig {
				t.Errorf("exit code %d: %v", code, fetch.bad.err("x"))
			}
		})
	}
}

// TestFetchRulesChange: the rules are read again when they have become old, and
// reading ends when they cannot be.
func TestFetchRulesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		def, looks, away := topic.Definition{Name: "t"}, 0, error(nil)
		r := rules{look: func(context.Context) (*segment.Topic, error) {
			looks++
			return &segment.Topic{Definition: def}, away
		}}
		check := func(refused bool, want int) {
			t.Helper()
			no, err := r.refusal(t.Context(), record.Ref{URL: "s3://bucket/k"})
			if err != nil || (no != nil) != refused || looks != want {
				t.Errorf("%v, error %v, %d looks", no, err, looks)
			}
		}
		check(true, 1)
		def.Allow("bucket")
		check(true, 1)
		bubble.Pass(2 * rulesAge)
		check(false, 2)
		def.AllowOnly()
		check(false, 2)
		bubble.Pass(2 * rulesAge)
		check(true, 3)
		bubble.Pass(2 * rulesAge)
		away = segment.ErrDeleting
		fetch := fetcher{store: unasked{t}, rules: r}
		item := segment.Item{Record: record.Record{Ref: &record.Ref{URL: "s3://bucket/k"}}}
		if _, err := fetch.fetch(t.Context(), item, io.Discard); !errors.Is(err, segment.ErrDeleting) {
			t.Errorf("error %v", err)
		}
	})
}

// TestFetch: what an object turns out to be when it is read, what that makes of
// the exit code, and that only valid ones are kept as files.
func TestFetch(t *testing.T) {
	sum := sha256.Sum256([]byte("alpha"))
	f := record.Ref{URL: "s3://bucket/k", Size: 5, ETag: "e", SHA256: sum[:]}
	five := object.Info{Size: 5, ETag: "e"}
	forbidden := object.ErrForbidden
	for name, c := range map[string]struct {
		s     served
		ref   record.Ref
		state string
		code  int
	}{
		"valid":       {served{five, "alpha", nil}, f, "valid", 0},
		"truncated":   {served{five, "alp", nil}, f, "changed", 1},
		"too long":    {served{five, "alphabet", nil}, f, "changed", 1},
		"other bytes": {served{five, "omega", nil}, f, "changed", 1},
		"other size":  {served{object.Info{Size: 6, ETag: "e"}, "alphas", nil}, f, "changed", 1},
		"gone":        {served{err: object.ErrNotFound}, f, "missing", 1},
		"deleted":     {served{err: object.ErrDeleted}, f, "deleted", 1},
		"no rights":   {served{err: forbidden}, f, "pending", functions.ExitConfig},
		"away":        {served{err: &object.UnavailableError{Op: "get", Err: errors.New("down")}}, f, "pending", functions.ExitRetry},
		"no name":     {served{}, record.Ref{URL: "s3://bucket/../k"}, "missing", 1},
		"not S3":      {served{}, record.Ref{URL: "https://h/k"}, "missing", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fetch := fetcher{store: c.s, rules: allowing("bucket"), dir: dir}
			var raw bytes.Buffer
			got, err := fetch.fetch(t.Context(), segment.Item{Offset: 7, Record: record.Record{Ref: &c.ref}}, &raw)
			if err != nil || got.State != c.state || (got.Error == "") != (c.code == 0) {
				t.Errorf("%+v, %v", got, err)
			}
			if code := functions.ExitCode(fetch.bad.err("x")); code != c.code {
				t.Errorf("exit code %d: %v", code, fetch.bad.err("x"))
			}
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			hidden, _ := filepath.Glob(filepath.Join(dir, ".*"))
			if err != nil || len(hidden) > 0 || (len(files) == 1) != (c.code == 0) {
				t.Fatalf("files %v, %v, %v", files, hidden, err)
			}
			if c.code == 0 {
				if data, err := os.ReadFile(got.File); err != nil || string(data) != "alpha" || raw.String() != "alpha" {
					t.Errorf("%s: %q, %v; raw %q", got.File, data, err, raw.String())
				}
			}
		})
	}
}

// brokenWriter is a disk that is full, or a pipe that nobody reads.
type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// TestFetchEnds: what cannot be written, and a context that has ended, say
// nothing of the object.
func TestFetchEnds(t *testing.T) {
	item := segment.Item{Record: record.Record{Ref: &record.Ref{URL: "s3://bucket/k", Size: 5}}}
	full := errors.New("no space left")
	fetch := fetcher{store: served{object.Info{Size: 5}, "alpha", nil}, rules: allowing("bucket")}
	if _, err := fetch.fetch(t.Context(), item, brokenWriter{full}); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fetch.store = served{err: ctx.Err()}
	if _, err := fetch.fetch(ctx, item, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if fetch.bad != nil {
		t.Errorf("%v", fetch.bad)
	}
}

// TestStackKeys: a stack's keys are for its own endpoint, and for no other.
func TestStackKeys(t *testing.T) {
	info := devtest.Stack(t).Info
	for name, c := range map[string]struct {
		give      config
		url, keys string
	}{
		"the stack's": {config{}, info.S3.URL, info.S3.AccessKey + info.S3.SecretKey},
		"same":        {config{S3: info.S3.URL}, info.S3.URL, info.S3.AccessKey + info.S3.SecretKey},
		"another":     {config{S3: "http://elsewhere"}, "http://elsewhere", ""},
		"own keys":    {config{S3AccessKey: "a", S3SecretKey: "s"}, info.S3.URL, "as"},
		"half":        {config{S3AccessKey: "a"}, info.S3.URL, "a"},
	} {
		a := &app{cfg: c.give}
		a.cfg.Stack = info.Dir
		if err := a.locate(); err != nil {
			t.Fatal(err)
		}
		if got := a.cfg.S3AccessKey + a.cfg.S3SecretKey; a.cfg.S3 != c.url || got != c.keys {
			t.Errorf("%s: %s with the keys %q, want %s with %q", name, a.cfg.S3, got, c.url, c.keys)
		}
	}
}
