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
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/topic"
)

// publishOptions of one call.
type publishOptions struct {
	format, key, keyField, timeField, ack string
	hasKey, progress                      bool
	headers                               []string
	rate                                  float64
	receipts                              string

	largest int  // bytes of a value
	named   bool // the bucket is named by a flag
	// rejected says why a worker would reject uploaded values; nil: there are none.
	rejected          func() error
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

Values over 512 KiB, of up to 256 MiB here, are uploaded to the S3 bucket that
--s3-bucket names, and their records refer to them; without one they are refused,
and so they are if the topic does not allow that bucket (topic set --allow), as far
as the filer can be asked. Given as a flag, that is an error before anything is
published; as a setting, it is one at the first such value.

--ack buffered waits until JetStream has the records, --ack stored until they are
in files. --receipts writes a line of JSON per record: its number, its receipt and
the digest of its value, to compare with what is read later.

Publishing stops at the first failure, and waits for what is under way. Exit code
75 (a lane that is full or cannot be reached) is worth another try; what was
published before is then published again. When records failed in several ways the
worst one gives the exit code, in the order 1, 78, 2, 75.`,
		Example: "  spillway publish flights flights.ndjson.gz --key-field /origin\n  tail -f app.log | spillway publish logs - --format lines",
		Args:    usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.hasKey = cmd.Flags().Changed("key")
			o.largest, o.named = maxLine, cmd.Flags().Changed("s3-bucket")
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
			return a.publishAll(cmd.Context(), args[0], in, &o)
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
	errs = append(errs, checkAck(o.ack))
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
	var err error
	o.fixed, err = parseHeaders(o.headers)
	return errors.Join(append(errs, err)...)
}

func checkAck(level string) error {
	if level != "buffered" && level != "stored" {
		return fmt.Errorf("--ack %q: want buffered or stored", level)
	}
	return nil
}

func parseHeaders(flags []string) (headers []client.Header, err error) {
	for _, h := range flags {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			err = errors.Join(err, fmt.Errorf("--header %q: want name=value", h))
		}
		headers = append(headers, client.Header{Name: name, Value: []byte(value)})
	}
	return headers, err
}

// input opens the file, or standard input, and unpacks gzip, which it knows by
// its first bytes.
func input(args []string, stdin io.Reader) (*bufio.Reader, func(), error) {
	r, name, done := stdin, "standard input", func() {}
	if len(args) > 0 && args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return nil, nil, err
		}
		r, name, done = f, args[0], func() { _ = f.Close() } // read-only
	}
	b := bufio.NewReaderSize(r, 256<<10)
	if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			done()
			return nil, nil, fmt.Errorf("%s starts like gzip: %w", name, err)
		}
		b = bufio.NewReaderSize(z, 256<<10)
	}
	return b, done, nil
}

// published sums up a call.
type published struct {
	Topic   string  `json:"topic"`
	Records uint64  `json:"records"` // acknowledged
	Failed  uint64  `json:"failed"`  // their outcome may be unknown
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"records_per_second"`
}

func (a *app) publishAll(ctx context.Context, name string, in *bufio.Reader, o *publishOptions) error {
	objects, err := a.uploads(ctx)
	if err != nil {
		return err
	}
	if objects != nil {
		o.largest = maxUpload
		o.rejected = sync.OnceValue(func() error { return a.allowance(ctx, name).below(a.cfg.S3Bucket, uploads(name)) })
	}
	if objects != nil && o.named {
		if err := o.rejected(); err != nil {
			return err
		}
	}
	return a.deliver(ctx, delivery{
		topic: name, ack: o.ack, receipts: o.receipts, objects: objects, verb: "published",
		feed: func(ctx context.Context, t target) error { return a.feed(ctx, t, in, *o) },
	})
}

// delivery is a call that hands records to a producer.
type delivery struct {
	topic, ack, receipts, verb string

	objects *client.Objects
	feed    func(context.Context, target) error
}

// target is where the records of a call go, and what is noted of them.
type target struct {
	*client.Producer
	log *receiptLog
	sum *published
}

// deliver runs a call: it ends when all records have their outcome.
func (a *app) deliver(ctx context.Context, d delivery) error {
	nc, err := a.connectNATS()
	if err != nil {
		return err
	}
	defer nc.Close()
	level := client.Buffered
	if d.ack == "stored" {
		level = client.Stored
	}
	p, err := client.NewProducer(nc, client.Options{
		Ack: level, RetryBudget: min(a.cfg.Timeout, maxBudget), Objects: d.objects, Logger: a.log,
	})
	if err != nil {
		return err
	}
	feeding, closing, stop := lifetimes(ctx)
	defer stop(nil)
	log, err := newReceiptLog(d.receipts, a.cfg.Timeout+ackGrace, func() { stop(a.stalled(nc)) })
	if err != nil {
		return &functions.UsageError{Err: err}
	}
	sum := published{Topic: d.topic}
	start := time.Now()
	inErr := d.feed(feeding, target{p, log, &sum})
	closeErr := p.Close(closing)
	if s, ok := errors.AsType[*stalledError](closeErr); ok {
		closeErr = s
	}
	if is[*client.FailedError](closeErr) || inErr != nil && context.Cause(closing) != nil {
		closeErr = nil // the receipt log tells of the records that failed, inErr why there was no time
	}
	failed, logErr := log.close()
	sum.Records, sum.Failed = sum.Records-failed, failed
	sum.Seconds = time.Since(start).Seconds()
	sum.Rate = float64(sum.Records) / sum.Seconds
	return a.summary(d.verb, sum, functions.Worst(explain(inErr), explain(closeErr), logErr))
}

// summary tells how a call ended, and passes on why.
func (a *app) summary(verb string, sum published, err error) error {
	if a.cfg.JSON {
		err = errors.Join(err, a.json(sum))
	}
	switch {
	case err != nil:
		return fmt.Errorf("%d records were %s before: %w", sum.Records, verb, err)
	case a.cfg.JSON:
		return nil
	}
	return a.printf("%s %d records, %d bytes, in %.1f s (%.0f/s)\n", verb, sum.Records, sum.Bytes, sum.Seconds, sum.Rate)
}

// natsError says which server an error is about that only says that there was no
// answer: the filer's errors say it by themselves.
func (a *app) natsError(err error) error {
	if functions.ExitCode(err) == functions.ExitBug && functions.Unavailable(err) && !is[*awayError](err) && !is[*object.UnavailableError](err) && a.cfg.NATS != "" {
		return fmt.Errorf("NATS server %s: %w", shown(a.cfg.NATS), err)
	}
	return err
}

// stalledError ends a call whose records get no outcome.
type stalledError struct{ why string }

func (e *stalledError) Error() string { return e.why }

func (a *app) stalled(nc *nats.Conn) error {
	waited := a.cfg.Timeout + ackGrace
	if !nc.IsConnected() {
		return &stalledError{fmt.Sprintf("NATS server %s has not been reachable, and no record has got there for %s", shown(a.cfg.NATS), waited)}
	}
	return &stalledError{fmt.Sprintf("no record has been stored for %s; does a worker run (`spillway run ingest`)?", waited)}
}

const (
	maxBudget = 90 * time.Second // of the client
	ackGrace  = 10 * time.Second // what the client may take beyond its budget
	lastGrace = 5 * time.Second  // to publish what is under way after an interrupt
)

// lifetimes derives until when to publish, and until when to wait for what is
// under way: a little longer when ctx ends, and both until stop is called.
func lifetimes(ctx context.Context) (feeding, closing context.Context, stop context.CancelCauseFunc) {
	feeding, stopFeeding := context.WithCancelCause(ctx)
	closing, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(feeding, func() { time.AfterFunc(lastGrace, func() { giveUp(context.Cause(feeding)) }) })
	return feeding, closing, func(cause error) {
		stopFeeding(cause)
		giveUp(cause)
	}
}

// feed reads records and hands them to the producer.
func (a *app) feed(ctx context.Context, t target, in *bufio.Reader, o publishOptions) error {
	limit := rate.NewLimiter(rate.Inf, 0)
	if o.rate > 0 {
		limit = rate.NewLimiter(rate.Limit(o.rate), max(1, int(o.rate/100)))
	}
	show := newProgress(a.errs, o.progress)
	defer show.end()
	values := readValues(ctx, in, o.format, o.largest)
	for line := uint64(1); ; line++ {
		value, err := values.next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return &functions.UsageError{Err: fmt.Errorf("line %d: %w", line, err)}
		}
		if o.format == "ndjson" && len(bytes.TrimSpace(value)) == 0 {
			continue
		}
		r, err := o.record(value)
		if err != nil {
			return &functions.UsageError{Err: fmt.Errorf("line %d: %w", line, err)}
		}
		if err := o.refuses(value); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if limit.Wait(ctx) != nil {
			return context.Cause(ctx)
		}
		pending, err := t.Publish(ctx, t.sum.Topic, r)
		if err != nil {
			return fmt.Errorf("line %d: %w", line, o.advise(err))
		}
		t.sum.Records++
		t.sum.Bytes += uint64(len(value))
		if more, err := t.log.add(ctx, unanswered{n: line, pending: pending, digest: t.log.digest(value)}); !more {
			return err
		}
		show.at(t.sum.Records, t.sum.Bytes)
	}
}

// refuses says why a value is not to be uploaded, if it would be.
func (o *publishOptions) refuses(value []byte) error {
	if o.rejected == nil || len(value) <= client.MaxValue {
		return nil
	}
	if err := o.rejected(); err != nil {
		return fmt.Errorf("the value has %d bytes, and would be uploaded: %w", len(value), err)
	}
	return nil
}

// advise adds what to do about an error of publish.
func (o *publishOptions) advise(err error) error {
	if is[*client.ValueTooLargeError](err) && o.largest < maxUpload {
		return fmt.Errorf("%w; name one with --s3-bucket", err)
	}
	return err
}
