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

	"github.com/spillway-mq/spillway/client"
)

// maxLine bounds what is taken into memory for one value; the client refuses it
// long before with the right advice.
const maxLine = 4 << 20

// value is one value of the input, or what ended it.
type value struct {
	value []byte
	err   error
}

// readValues reads ahead. Reading from a terminal or a pipe cannot be
// interrupted, so the goroutine may stay in it for as long as the process lives.
func readValues(ctx context.Context, in *bufio.Reader, format string) <-chan value {
	out := make(chan value, 64)
	go func() {
		for {
			v, err := next(in, format)
			select {
			case out <- value{v, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

// next reads one value. io.EOF ends the input.
func next(in *bufio.Reader, format string) ([]byte, error) {
	if format == "value" {
		b, err := io.ReadAll(io.LimitReader(in, maxLine))
		if err == nil && len(b) == 0 {
			if _, err := in.Peek(1); err != nil {
				return nil, io.EOF
			}
		}
		return b, err
	}
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= maxLine:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("the line is longer than %d bytes", maxLine)
		case errors.Is(err, io.EOF) && len(line) > 0, err == nil:
			line = bytes.TrimSuffix(line, []byte("\n"))
			return bytes.TrimSuffix(line, []byte("\r")), nil
		}
		return nil, err
	}
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
