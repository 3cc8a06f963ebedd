package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/semaphore"

	"github.com/spillway-mq/spillway/client"
)

// Bounds of what is taken into memory. Without a bucket for large values the
// client refuses them long before maxLine with the right advice. Of large ones
// few are read ahead.
const (
	maxLine   = 4 << 20
	maxUpload = 256 << 20
	readAhead = 16 << 20
)

// values reads ahead.
type values struct {
	items chan value
	room  *semaphore.Weighted // bytes
}

// value is one value of the input, or what ended it.
type value struct {
	value []byte
	err   error
}

func (v value) cost() int64 { return int64(min(len(v.value), readAhead)) }

// readValues starts to read values of up to so many bytes. Reading from a
// terminal or a pipe cannot be interrupted, so the goroutine may stay in it for
// as long as the process lives.
func readValues(ctx context.Context, in *bufio.Reader, format string, largest int) *values {
	vs := &values{items: make(chan value, 64), room: semaphore.NewWeighted(readAhead)}
	go func() {
		for {
			b, err := next(in, format, largest)
			v := value{b, err}
			if vs.room.Acquire(ctx, v.cost()) != nil {
				return
			}
			select {
			case vs.items <- v:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return vs
}

// next gives the next value. io.EOF ends the input.
func (vs *values) next(ctx context.Context) ([]byte, error) {
	select {
	case v := <-vs.items:
		vs.room.Release(v.cost())
		return v.value, v.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// next reads one value.
func next(in *bufio.Reader, format string, largest int) ([]byte, error) {
	if format == "value" {
		return whole(in, largest)
	}
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= largest:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("the line is longer than %d bytes", largest)
		case errors.Is(err, io.EOF) && len(line) > 0, err == nil:
			line = bytes.TrimSuffix(line, []byte("\n"))
			return bytes.TrimSuffix(line, []byte("\r")), nil
		}
		return nil, err
	}
}

// whole reads the input as one value.
func whole(in *bufio.Reader, largest int) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(in, int64(largest)+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > largest:
		return nil, fmt.Errorf("the value is longer than %d bytes", largest)
	case len(b) == 0:
		return nil, io.EOF
	}
	return b, nil
}

// record makes a record of a value.
func (o *publishOptions) record(value []byte) (client.Record, error) {
	r := client.Record{Value: value, Headers: o.fixed}
	if o.format == "ndjson" && !gjson.ValidBytes(value) {
		return r, fmt.Errorf("this is not JSON: %.60q; --format lines takes any text", value)
	}
	if o.hasKey {
		r.Key = []byte(o.key)
	}
	if o.keyPath != nil {
		switch v := at(value, o.keyPath); v.Type {
		case gjson.Null:
		case gjson.String:
			r.Key = []byte(v.Str)
		case gjson.JSON:
			return r, fmt.Errorf("the key at %s is an object or array", o.keyField)
		default:
			r.Key = []byte(v.Raw)
		}
	}
	if o.timePath != nil {
		v := at(value, o.timePath)
		var err error
		switch v.Type {
		case gjson.Null:
		case gjson.Number:
			r.EventTime = time.UnixMicro(int64(v.Num * 1e6)).UTC()
		default:
			if r.EventTime, err = time.Parse(time.RFC3339Nano, v.Str); err != nil {
				return r, fmt.Errorf("the event time at %s: %.40q is neither RFC 3339 nor a number of seconds", o.timeField, v.Raw)
			}
		}
	}
	return r, nil
}

// at follows a JSON pointer.
func at(value []byte, path []string) gjson.Result {
	v := gjson.ParseBytes(value)
	for _, token := range path {
		v = v.Get(gjson.Escape(token))
	}
	return v
}
