package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/topic"
)

// publishOptions of one call.
type publishOptions struct {
	format, key, keyField, timeField, ack string
	hasKey, progress                      bool
	headers                               []string
	rate                                  float64
	receipts                              string

	keyPath, timePath []string
	fixed             []client.Header
}

func (a *app) publish() *cobra.Command {
	var o publishOptions
	cmd := &cobra.Command{
		Use:   "publish TOPIC [FILE]",
		Short: "Publish records from a file or standard input",
		Long: `Publishes records to a topic. With --format ndjson (the default) every line is a
JSON value and becomes one record's value as it stands; with "lines" every line
is a value; with "value" the whole input is one. FILE may be gzipped; "-" or none
is standard input.

--ack buffered waits until JetStream has the records, --ack stored until they are
in files. --receipts writes a line of JSON per record: its number, its receipt and
the digest of its value, to compare with what is read later.`,
		Example: "  spillway publish flights flights.ndjson.gz --key-field /origin\n  tail -f app.log | spillway publish logs - --format lines",
		Args:    usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.hasKey = cmd.Flags().Changed("key")
			if err := o.check(args[0]); err != nil {
				return &functions.UsageError{Err: err}
			}
			in, done, err := input(args[1:], cmd.InOrStdin())
			if err != nil {
				return &functions.UsageError{Err: err}
			}
			defer done()
			if err := a.locate(); err != nil {
				return err
			}
			return a.publishAll(cmd.Context(), args[0], in, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", "ndjson", "ndjson, lines or value")
	f.StringVar(&o.key, "key", "", "key of all records")
	f.StringVar(&o.keyField, "key-field", "", "JSON pointer to each record's key in its value")
	f.StringVar(&o.timeField, "event-time-field", "", "JSON pointer to each record's event time (RFC 3339, or Unix seconds)")
	f.StringVar(&o.ack, "ack", "buffered", "buffered or stored")
	f.StringArrayVar(&o.headers, "header", nil, "name=value for all records; may be repeated")
	f.Float64Var(&o.rate, "rate", 0, "at most so many records per second")
	f.BoolVar(&o.progress, "progress", false, "show progress even if standard error is no terminal")
	f.StringVar(&o.receipts, "receipts", "", "file for the records' receipts")
	return cmd
}

func (o *publishOptions) check(name string) error {
	errs := []error{topic.CheckName(name)}
	if o.format != "ndjson" && o.format != "lines" && o.format != "value" {
		errs = append(errs, fmt.Errorf("--format %q: want ndjson, lines or value", o.format))
	}
	if o.ack != "buffered" && o.ack != "stored" {
		errs = append(errs, fmt.Errorf("--ack %q: want buffered or stored", o.ack))
	}
	if o.rate < 0 {
		errs = append(errs, errors.New("--rate must not be negative"))
	}
	for flag, field := range map[string]struct {
		text string
		path *[]string
	}{"--key-field": {o.keyField, &o.keyPath}, "--event-time-field": {o.timeField, &o.timePath}} {
		if field.text == "" {
			continue
		}
		k, err := topic.ParseKey("json:" + field.text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
		*field.path = k.Pointer()
	}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			errs = append(errs, fmt.Errorf("--header %q: want name=value", h))
		}
		o.fixed = append(o.fixed, client.Header{Name: name, Value: []byte(value)})
	}
	return errors.Join(errs...)
}

// input opens the file, or standard input, and unpacks gzip.
func input(args []string, stdin io.Reader) (*bufio.Reader, func(), error) {
	r, done := stdin, func() {}
	if len(args) > 0 && args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return nil, nil, err
		}
		r, done = f, func() { _ = f.Close() } // read-only
	}
	b := bufio.NewReaderSize(r, 256<<10)
	if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			done()
			return nil, nil, err
		}
		b = bufio.NewReaderSize(z, 256<<10)
	}
	return b, done, nil
}

// published sums up a call.
type published struct {
	Topic   string  `json:"topic"`
	Records uint64  `json:"records"`
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"records_per_second"`
}

func (a *app) publishAll(ctx context.Context, name string, in *bufio.Reader, o publishOptions) (err error) {
	nc, err := a.connectNATS()
	if err != nil {
		return err
	}
	defer nc.Close()
	level := client.Buffered
	if o.ack == "stored" {
		level = client.Stored
	}
	p, err := client.NewProducer(nc, client.Options{Ack: level, Logger: a.log})
	if err != nil {
		return &functions.ConfigError{Err: err}
	}
	log, err := newReceiptLog(o.receipts)
	if err != nil {
		return &functions.UsageError{Err: err}
	}
	sum := published{Topic: name}
	start := time.Now()
	inErr := a.feed(ctx, feed{p, in, o, log}, &sum)
	err = errors.Join(p.Flush(context.WithoutCancel(ctx)), log.close())
	err = errors.Join(err, p.Close(context.WithoutCancel(ctx)))
	sum.Seconds = time.Since(start).Seconds()
	sum.Rate = float64(sum.Records) / sum.Seconds
	if err != nil {
		return errors.Join(inErr, &functions.RetryError{Err: err})
	}
	if inErr != nil {
		return fmt.Errorf("%d records were published before: %w", sum.Records, inErr)
	}
	if a.cfg.JSON {
		return a.json(sum)
	}
	return a.printf("published %d records, %d bytes, in %.1f s (%.0f/s)\n", sum.Records, sum.Bytes, sum.Seconds, sum.Rate)
}

// feed is where records come from and go to.
type feed struct {
	*client.Producer
	in  *bufio.Reader
	o   publishOptions
	log *receiptLog
}

// feed reads records and hands them to the producer.
func (a *app) feed(ctx context.Context, f feed, sum *published) error {
	o := f.o
	limit := rate.NewLimiter(rate.Inf, 0)
	if o.rate > 0 {
		limit = rate.NewLimiter(rate.Limit(o.rate), max(1, int(o.rate/100)))
	}
	show := newProgress(a.errs, o.progress)
	defer show.end()
	for line := uint64(1); ; line++ {
		value, err := next(f.in, o.format)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &functions.UsageError{Err: fmt.Errorf("line %d: %w", line, err)}
		}
		if o.format == "ndjson" && len(bytes.TrimSpace(value)) == 0 {
			continue
		}
		r, err := o.record(value)
		if err != nil {
			return &functions.UsageError{Err: fmt.Errorf("line %d: %w", line, err)}
		}
		if err := limit.Wait(ctx); err != nil {
			return &functions.RetryError{Err: err}
		}
		pending, err := f.Publish(ctx, sum.Topic, r)
		var large *client.ValueTooLargeError
		if errors.As(err, &large) {
			return &functions.UsageError{Err: fmt.Errorf("line %d: %w", line, err)}
		}
		if err != nil {
			return &functions.RetryError{Err: err}
		}
		if err := f.log.add(ctx, line, pending, value); err != nil {
			return &functions.RetryError{Err: err}
		}
		sum.Records++
		sum.Bytes += uint64(len(value))
		show.at(sum.Records, sum.Bytes)
	}
}

// maxLine bounds what is taken into memory for one value; the client refuses it
// long before with the right advice.
const maxLine = 4 << 20

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
