package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
)

// maxManifestLine bounds a line of a manifest: a URL, a record's key, and some.
const maxManifestLine = 1 << 20

// listed is an object that is to be submitted, as a list names it.
type listed struct {
	client.Reference
	file      string // of this machine, to be uploaded; empty: it is an object already
	rows      string // how the list says that it is read; empty: not said
	where     string // in the list; empty: its URL says it all
	empty     bool   // the list says that it has no bytes
	key       *string
	eventTime time.Time
}

// source lists objects, and ends with its first error.
type source iter.Seq2[listed, error]

// source opens what the options name. done is to be called at the end.
func (a *app) source(ctx context.Context, o submitOptions, stdin io.Reader) (s source, done func(), err error) {
	nothing := func() {}
	switch {
	case o.manifest != "":
		in, done, err := input([]string{o.manifest}, stdin)
		if err != nil {
			return nil, nil, &functions.UsageError{Err: err}
		}
		return manifest(ctx, readValues(ctx, in, "lines", maxManifestLine)), done, nil
	case o.prefix != "":
		s, err := a.below(ctx, o.prefix)
		return s, nothing, err
	}
	return func(yield func(listed, error) bool) {
		for _, url := range o.urls {
			l := listed{Reference: client.Reference{URL: url}}
			if isFile(url) {
				l.file = url
			}
			if !yield(l, nil) {
				return
			}
		}
	}, nothing, nil
}

// below lists the objects whose keys have a prefix. Empty ones whose keys end in
// a slash are folders, as consoles and file managers make them, and left out.
func (a *app) below(ctx context.Context, prefix string) (source, error) {
	bucket, start, ok := cutPrefix(prefix)
	if !ok {
		return nil, &functions.UsageError{Err: fmt.Errorf("--prefix %q: want s3://bucket/prefix", prefix)}
	}
	store, err := a.s3(ctx)
	if err != nil {
		return nil, err
	}
	return func(yield func(listed, error) bool) {
		found, folders := 0, 0
		for o, err := range store.List(ctx, bucket, start, "") {
			if err != nil {
				yield(listed{}, err)
				return
			}
			if o.Size == 0 && strings.HasSuffix(o.Key, "/") {
				folders++
				continue
			}
			found++
			if !yield(listed{Reference: client.Reference{URL: "s3://" + bucket + "/" + o.Key}}, nil) {
				return
			}
		}
		if found == 0 {
			a.note("there are no objects below %s", prefix)
		}
		if folders > 0 {
			a.note("left out %d folders (empty objects whose keys end in a slash)", folders)
		}
	}, nil
}

// manifest reads a list of objects.
func manifest(ctx context.Context, lines *values) source {
	return func(yield func(listed, error) bool) {
		for n := 1; ; n++ {
			line, err := lines.next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			where := fmt.Sprintf("line %d", n)
			var l listed
			if err == nil {
				if line = bytes.TrimSpace(line); len(line) == 0 {
					continue
				}
				l, err = parseManifestLine(line)
			}
			if err != nil && ctx.Err() == nil {
				err = &functions.UsageError{Err: fmt.Errorf("%s: %w", where, err)}
			}
			l.where = where
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

// manifestLine is one object in a manifest.
type manifestLine struct {
	URL         string    `json:"url"`
	Key         *string   `json:"key"`
	Size        *int64    `json:"size"`
	ETag        string    `json:"etag"`
	Version     string    `json:"version"`
	ContentType string    `json:"content_type"`
	SHA256      string    `json:"sha256"`
	Records     int64     `json:"records"`
	Rows        string    `json:"rows"`
	EventTime   time.Time `json:"event_time"`
}

// parseManifestLine reads a URL, or an object of JSON. A member that is not known
// is an error: it would silently not apply.
func parseManifestLine(line []byte) (listed, error) {
	if !utf8.Valid(line) {
		return listed{}, errors.New("it is not valid UTF-8")
	}
	if line[0] != '{' {
		return listed{Reference: client.Reference{URL: string(line)}}, nil
	}
	var m manifestLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return listed{}, fmt.Errorf("this is no entry of a manifest: %.60q: %w", line, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return listed{}, errors.New("want one JSON object per line")
	}
	l := listed{Reference: client.Reference{
		URL: m.URL, ETag: m.ETag, Version: m.Version, ContentType: m.ContentType, Records: m.Records,
	}, key: m.Key, rows: m.Rows, eventTime: m.EventTime}
	if m.Size != nil {
		l.Size, l.empty = *m.Size, *m.Size == 0
	}
	if m.Records < 0 || l.Size < 0 {
		return listed{}, errors.New("size and records must not be negative")
	}
	if m.SHA256 != "" {
		sum, err := hex.DecodeString(m.SHA256)
		if err != nil || len(sum) != 32 {
			return listed{}, fmt.Errorf("sha256 %.80q: want 64 hexadecimal digits", m.SHA256)
		}
		l.SHA256 = sum
	}
	return l, nil
}

// objectKey is the key in a valid URL.
func objectKey(url string) string {
	_, key, _ := strings.Cut(strings.TrimPrefix(url, "s3://"), "/")
	return key
}
