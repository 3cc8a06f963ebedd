package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/ref"
)

// scriptObjects is the S3 gateway of the script's stack.
func scriptObjects(ts *testscript.TestScript) *object.Store {
	info, err := devstack.Load(ts.Getenv("STACK"))
	ts.Check(err)
	store, err := object.Open(context.Background(), object.Config{
		Endpoint: info.S3.URL, AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey,
	})
	ts.Check(err)
	return store
}

// putObject is the command put of scripts.
func putObject(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 2)
	store := scriptObjects(ts)
	defer store.Close()
	name, err := ref.Parse(args[1])
	ts.Check(err)
	data := ts.ReadFile(args[0])
	_, err = store.Put(context.Background(), name, strings.NewReader(data), int64(len(data)), object.PutOptions{})
	ts.Check(err)
}

// removeObject is the command remove of scripts. It goes by way of the filer.
func removeObject(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, 1)
	info, err := devstack.Load(ts.Getenv("STACK"))
	ts.Check(err)
	name, err := ref.Parse(args[0])
	ts.Check(err)
	at := url.URL{Scheme: "http", Host: info.Filer, Path: "/buckets/" + name.Bucket + "/" + name.Key}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodDelete, at.String(), http.NoBody)
	ts.Check(err)
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close() //nolint:errcheck // read-only
	if resp.StatusCode != http.StatusNoContent {
		ts.Fatalf("%s: %s", args[0], resp.Status)
	}
}

// fill is the command fill of scripts.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, 3)
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	data := bytes.Repeat([]byte(args[2]), n/len(args[2])+1)[:n]
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o600))
}

// TestManifest: what a manifest may say, and what it may not.
func TestManifest(t *testing.T) {
	key, sum := "k", strings.Repeat("ab", 32)
	for text, want := range map[string]listed{
		"s3://b/a b":                         {Reference: client.Reference{URL: "s3://b/a b"}, where: "line 1"},
		"\n  s3://b/x\r\n":                   {Reference: client.Reference{URL: "s3://b/x"}, where: "line 2"},
		`{"url":"s3://b/x","key":"k"}`:       {Reference: client.Reference{URL: "s3://b/x"}, where: "line 1", key: &key},
		`{"url":"s3://b/x","size":0}`:        {Reference: client.Reference{URL: "s3://b/x"}, where: "line 1", empty: true},
		`{"url":"s3://b/x","records":3} `:    {Reference: client.Reference{URL: "s3://b/x", Records: 3}, where: "line 1"},
		`{"url":"s3://b/x","rows":"csv"}`:    {Reference: client.Reference{URL: "s3://b/x"}, where: "line 1", rows: "csv"},
		`{"url":"s3://b/\u00e4","etag":"e"}`: {Reference: client.Reference{URL: "s3://b/ä", ETag: "e"}, where: "line 1"},
		`{"url":"s3://b/x","sha256":"` + sum + `"}`: {
			Reference: client.Reference{URL: "s3://b/x", SHA256: bytes.Repeat([]byte{0xab}, 32)}, where: "line 1"},
	} {
		got, err := readManifest(t, text)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", text, got, err)
			continue
		}
		if diff := cmp.Diff(want, got[0], cmp.AllowUnexported(listed{})); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	for text, word := range map[string]string{
		"s3://b/x\n{}x":                          "line 2",
		`{"url":"s3://b/x","sise":1}`:            "sise",
		`{"url":"s3://b/x","size":-1}`:           "negative",
		`{"url":"s3://b/x","size":1e99}`:         "size",
		`{"url":"s3://b/x","sha256":"ab"}`:       "64",
		`{"url":"s3://b/x","event_time":"now"}`:  "event_time",
		`{"url":"s3://b/x"} {"url":"s3://b/y"}`:  "one JSON object",
		"s3://b/\xff":                            "UTF-8",
		strings.Repeat("x", maxManifestLine+9e5): "longer than",
	} {
		if _, err := readManifest(t, text); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%.80q: %v", text, err)
		}
	}
}

func readManifest(t *testing.T, text string) (all []listed, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	src, done, err := (&app{}).source(t.Context(), submitOptions{manifest: path}, nil)
	if err != nil {
		return nil, err
	}
	defer done()
	for l, err := range src {
		if err != nil {
			return all, err
		}
		all = append(all, l)
	}
	return all, nil
}

// FuzzManifestLine: whatever a line holds, it is an object or an error, and what
// is taken from it is within bounds.
func FuzzManifestLine(f *testing.F) {
	f.Add([]byte("s3://b/k"))
	f.Add([]byte(`{"url":"s3://b/k","key":"k","size":1,"etag":"e","version":"v","content_type":"t","records":2}`))
	f.Add([]byte(`{"sha256":"` + strings.Repeat("0f", 32) + `","event_time":"2026-01-02T03:04:05Z"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			return
		}
		l, err := parseManifestLine(line)
		if err != nil {
			return
		}
		if l.Size < 0 || l.Records < 0 || l.SHA256 != nil && len(l.SHA256) != 32 || !utf8.ValidString(l.URL) || l.empty && l.Size != 0 {
			t.Errorf("%q: %+v", line, l)
		}
		if line[0] != '{' && l.URL != string(line) {
			t.Errorf("%q: %q", line, l.URL)
		}
	})
}

// TestLookAtEnds: a consumer that has enough, and a context that ends, end the
// looks at what is still listed; the order is that of the list.
func TestLookAtEnds(t *testing.T) {
	objects, err := client.OpenObjects(t.Context(), client.ObjectsConfig{Endpoint: "http://127.0.0.1:1", AccessKey: "a", SecretKey: "s"})
	if err != nil {
		t.Fatal(err)
	}
	l, listing := looker{objects: objects}, 0
	endless := func(yield func(listed, error) bool) {
		for listing = 0; yield(listed{Reference: client.Reference{URL: strconv.Itoa(listing)}}, nil); listing++ {
		}
	}
	n := 0
	for s, err := range l.lookAt(t.Context(), endless) {
		if _, ok := errors.AsType[*client.ReferenceError](err); !ok || s.URL != strconv.Itoa(n) {
			t.Fatalf("object %d: %s, %v", n, s.URL, err)
		}
		if n++; n == 100 {
			break
		}
	}
	if listing > 100+3*looks {
		t.Errorf("%d were listed", listing)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range l.lookAt(ctx, endless) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("after the context: %v", last)
	}
}
