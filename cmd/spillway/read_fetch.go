package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// fetched is what reading a reference's object came to.
type fetched struct {
	State string `json:"state"` // of the reference
	Bytes int64  `json:"bytes"` // that were read
	File  string `json:"file,omitempty"`
	Error string `json:"error,omitempty"`
}

// appendTo adds itself to a record that is one JSON object.
func (f *fetched) appendTo(object []byte) []byte {
	if f == nil {
		return object
	}
	b, err := json.Marshal(f)
	if err != nil { // strings and a number
		return object
	}
	object = append(object[:len(object)-1], `,"fetched":`...)
	return append(append(object, b...), '}')
}

// fetcher reads the objects that records refer to, one at a time.
type fetcher struct {
	store ref.Getter
	rules rules
	close func()
	dir   string // where valid ones are kept; empty: nowhere
	bad   tally
}

func (a *app) newFetcher(ctx context.Context, look func(context.Context) (*segment.Topic, error), dir string) (*fetcher, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, &functions.UsageError{Err: err}
		}
	}
	store, err := a.s3(ctx)
	if err != nil {
		return nil, err
	}
	return &fetcher{store: store, rules: rules{endpoint: a.cfg.S3, look: look}, close: store.Close, dir: dir}, nil
}

// rules are what a topic says of the objects that its records may refer to, and
// the endpoint that is asked for them.
type rules struct {
	endpoint string // of the settings
	look     func(context.Context) (*segment.Topic, error)
	topic    topic.Definition
	at       time.Time // when it was read
}

// rulesAge is how old the rules may be: one who follows a topic does so for weeks.
const rulesAge = time.Second

// refusal says why an object is not to be read, if it is not. err ends the reading.
func (r *rules) refusal(ctx context.Context, f record.Ref) (refusal, err error) {
	if time.Since(r.at) > rulesAge {
		t, err := r.look(ctx)
		if err != nil {
			return nil, err
		}
		r.topic, r.at = t.Definition, time.Now()
	}
	_, refusal = verdict.Allowed(r.topic, f)
	if refusal == nil && !r.topic.ServedBy(r.endpoint) {
		refusal = &verdict.ElsewhereError{Topic: r.topic.Name, Wants: r.topic.Endpoint, Has: cmp.Or(r.endpoint, "AWS's")}
	}
	return refusal, nil
}

// fetch reads an object to its end. Its error ends the reading: the context's, or
// one of what is written here.
func (f *fetcher) fetch(ctx context.Context, item segment.Item, raw io.Writer) (fetched, error) {
	switch no, err := f.rules.refusal(ctx, *item.Ref); {
	case err != nil:
		return fetched{}, err
	case no != nil:
		f.bad.add(fetchError(item, no))
		return fetched{State: string(ref.StateOf(no)), Error: no.Error()}, nil
	}
	out := &output{to: raw}
	var file *os.File
	if f.dir != "" {
		var err error
		if file, err = os.CreateTemp(f.dir, ".fetching-*"); err != nil {
			return fetched{}, err
		}
		defer os.Remove(file.Name()) //nolint:errcheck // it is there only if it is not kept
		defer file.Close()           //nolint:errcheck // closed before it is kept
		out.to = io.MultiWriter(raw, file)
	}
	body := ref.NewReader(ctx, f.store, *item.Ref)
	n, err := io.Copy(out, body)
	err = errors.Join(err, body.Close())
	switch {
	case out.err != nil:
		return fetched{}, out.err
	case ctx.Err() != nil:
		return fetched{}, context.Cause(ctx)
	case err != nil:
		f.bad.add(fetchError(item, err))
		return fetched{State: string(ref.StateOf(err)), Bytes: n, Error: err.Error()}, nil
	}
	got := fetched{State: string(ref.Valid), Bytes: n}
	if file != nil {
		got.File = filepath.Join(f.dir, fmt.Sprintf("%v-%016d", item.Segment, item.Offset))
		err = errors.Join(file.Close(), os.Rename(file.Name(), got.File))
	}
	return got, err
}

// output tells errors of writing from those of reading.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	o.err = err
	return n, err
}

// fetchError gives an error its exit code: that an object is not what its record
// says is a fault of the data, that it must not be read one of the setup, and the
// others are as they are elsewhere.
func fetchError(item segment.Item, err error) error {
	return objectFault(fmt.Errorf("segment %v, offset %d: %w", item.Segment, item.Offset, err))
}

func objectFault(err error) error {
	switch {
	case ref.StateOf(err) != ref.Pending:
		return &notValidError{err}
	case is[*verdict.NotAllowedError](err), is[*verdict.ElsewhereError](err):
		return &functions.ConfigError{Err: err}
	}
	return explain(err)
}

// notValidError ends a read with exit code 1.
type notValidError struct{ err error }

func (e *notValidError) Error() string { return e.err.Error() }
