package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/semaphore"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/topic"
)

// submitOptions of one call.
type submitOptions struct {
	topic                       string
	urls                        []string
	prefix, manifest            string
	key, keyFrom, timeFrom, ack string
	hasKey, progress, dryRun    bool
	headers                     []string
	receipts                    string
	batchOptions

	bucket string // for files
	fixed  []client.Header
}

func (a *app) submit() *cobra.Command {
	var o submitOptions
	cmd := &cobra.Command{
		Use:   "submit TOPIC [URL|FILE...]",
		Short: "Publish records whose payloads are objects on S3",
		Long: `Publishes a record per object. The record refers to the object, which itself is
neither moved nor read; only its size, ETag and version are looked at. Objects are
named as s3://bucket/key, the key as it is, with nothing escaped: as arguments, by
--prefix (all below it, in the order of their keys), or by --manifest, a file
("-": standard input; may be gzipped) with one URL per line, or one JSON object:

  {"url":"s3://b/k","key":"the record's","size":10,"etag":"...","version":"...",
   "sha256":"(hex)","content_type":"...","records":40,"rows":"csv+gzip",
   "event_time":"(RFC 3339)"}

All but url may be left out. What is given must be what the object is. Submitting
stops at the first object that is missing or another one, and waits for what is
under way; --dry-run looks at all of them and publishes nothing. An object must
stay as it is for as long as its record is to be of use. Workers look at it once
more and pin it, if it is on Spillway's own filer, so that nothing of Spillway
deletes it; refs check tells what has become of objects later.

What is no URL is a file of this machine, and is uploaded to the bucket that
--s3-bucket names, below spillway/TOPIC/, unless it is there.

--batch: the objects are files of many records, NDJSON, CSV, Avro or Parquet, and
read --expand gives their rows; "rows" says so of one object of a manifest. --count
reads each of them to its end, notes how many records it holds, and stops at one that
is no such file. --expand asks for the rows to become records of the topic.

The topic must allow the objects (topic set --allow). This is checked first, where
the call can ask the filer: objects by URL and prefix before anything is published,
those of a manifest one by one. In any case workers reject what is not allowed.

--s3 names the endpoint. Exit code 75 is worth another try; what was submitted
before is then submitted again. Code 2: an object is missing or another one.`,
		Example: "  spillway submit images s3://photos/cat.png --key cat\n" +
			"  spillway submit images --prefix s3://photos/2026/ --key-from name --event-time-from modified\n" +
			"  spillway submit images --manifest new.ndjson --dry-run\n" +
			"  spillway submit flights 2026.csv.gz --batch --count --s3-bucket payloads",
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.topic, o.urls, o.hasKey = args[0], args[1:], cmd.Flags().Changed("key")
			return a.submitFrom(cmd.Context(), &o, cmd.InOrStdin())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.prefix, "prefix", "", "s3://bucket/prefix: submit all objects below it")
	f.StringVar(&o.manifest, "manifest", "", "file that lists the objects")
	f.StringVar(&o.key, "key", "", "key of all records; one in the manifest wins")
	f.StringVar(&o.keyFrom, "key-from", "", `"name": the object's key on S3 is its record's key`)
	f.StringVar(&o.timeFrom, "event-time-from", "", `"modified": the object's time is its record's event time`)
	f.StringVar(&o.ack, "ack", "buffered", "buffered or stored")
	f.StringArrayVar(&o.headers, "header", nil, "name=value for all records; may be repeated")
	f.BoolVar(&o.dryRun, "dry-run", false, "look at the objects and publish nothing")
	o.batchOptions.flags(f)
	f.BoolVar(&o.progress, "progress", false, "show progress even if standard error is no terminal")
	f.StringVar(&o.receipts, "receipts", "", "file for the records' receipts")
	return cmd
}

// submitFrom submits what the options name, unless the topic does not allow it.
func (a *app) submitFrom(ctx context.Context, o *submitOptions, stdin io.Reader) error {
	if err := o.check(); err != nil {
		return &functions.UsageError{Err: err}
	}
	if err := a.locate(); err != nil {
		return err
	}
	if o.bucket = a.cfg.S3Bucket; o.bucket == "" && !o.dryRun && slices.ContainsFunc(o.urls, isFile) {
		return &functions.UsageError{Err: errors.New("files are uploaded first: name a bucket with --s3-bucket; an object is named as s3://bucket/key")}
	}
	allowed := a.allowance(ctx, o.topic)
	if err := allowed.check(*o); err != nil && !o.dryRun {
		return err
	}
	src, done, err := a.source(ctx, *o, stdin)
	if err != nil {
		return err
	}
	defer done()
	objects, err := a.objects(ctx)
	if err != nil {
		return err
	}
	defer objects.Close()
	l := &looker{
		objects: objects, allowed: allowed, topic: o.topic, options: o.batchOptions, dry: o.dryRun,
		heavy: semaphore.NewWeighted(heavy),
	}
	if o.count {
		if l.store, err = a.s3(ctx); err != nil {
			return err
		}
		defer l.store.Close()
	}
	if o.dryRun {
		return a.submitNothing(ctx, o, l.lookAt(ctx, src))
	}
	return a.submitAll(ctx, o, l, src)
}

func (o *submitOptions) check() error {
	ways := 0
	for _, given := range []bool{len(o.urls) > 0, o.prefix != "", o.manifest != ""} {
		if given {
			ways++
		}
	}
	errs := []error{topic.CheckName(o.topic), checkAck(o.ack)}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(ways == 1, "name objects either by URL, or with --prefix, or with --manifest")
	check(o.keyFrom == "" || o.keyFrom == "name", "--key-from %q: want name", o.keyFrom)
	check(o.keyFrom == "" || !o.hasKey, "--key and --key-from exclude each other")
	check(o.timeFrom == "" || o.timeFrom == "modified", "--event-time-from %q: want modified", o.timeFrom)
	var err error
	o.fixed, err = parseHeaders(o.headers)
	return errors.Join(append(errs, err, o.batchOptions.check())...)
}

// record is what is published for an object.
func (o *submitOptions) record(s seen) client.Record {
	r := client.Record{Headers: o.fixed, EventTime: s.eventTime}
	switch {
	case s.key != nil:
		r.Key = []byte(*s.key)
	case o.keyFrom != "" && s.file != "":
		r.Key = []byte(filepath.Base(s.file))
	case o.keyFrom != "":
		r.Key = []byte(objectKey(s.URL))
	case o.hasKey:
		r.Key = []byte(o.key)
	}
	if o.timeFrom != "" && r.EventTime.IsZero() {
		r.EventTime = s.modified
	}
	return r
}

func (a *app) submitAll(ctx context.Context, o *submitOptions, l *looker, src source) error {
	return a.deliver(ctx, delivery{
		topic: o.topic, ack: o.ack, receipts: o.receipts, verb: "submitted",
		feed: func(ctx context.Context, t target) error {
			show := newProgress(a.errs, o.progress)
			defer show.end()
			for s, err := range l.lookAt(ctx, src) {
				if err != nil {
					return err
				}
				a.tellCount(s)
				pending, err := t.Submit(ctx, o.topic, s.Reference, o.record(s), client.Unchecked())
				if err != nil {
					return fmt.Errorf("%s: %w", s.URL, err)
				}
				t.sum.Records++
				t.sum.Bytes += uint64(s.Size)
				u := unanswered{n: t.sum.Records, pending: pending, digest: s.SHA256, url: s.URL}
				if more, err := t.log.add(ctx, u); !more {
					return err
				}
				show.at(t.sum.Records, t.sum.Bytes)
			}
			return nil
		},
	})
}

// dryLine is what --dry-run says of an object.
type dryLine struct {
	URL       string    `json:"url"`
	State     string    `json:"state"`
	Size      int64     `json:"size"`
	ETag      string    `json:"etag,omitempty"`
	Version   string    `json:"version,omitempty"`
	Rows      string    `json:"rows,omitempty"`    // how its records are read
	Records   int64     `json:"records,omitempty"` // how many it holds
	Key       *string   `json:"key"`
	EventTime time.Time `json:"event_time,omitzero"`
	Error     string    `json:"error,omitempty"`
}

// submitNothing says what would be submitted, and what is wrong with it.
func (a *app) submitNothing(ctx context.Context, o *submitOptions, objects checked) error {
	var good, size uint64
	var bad tally
	for s, err := range objects {
		if err != nil && (s.URL == "" || ctx.Err() != nil) {
			return err // of the list of objects, not of one of them
		}
		r := o.record(s)
		line := dryLine{URL: s.URL, State: "valid", Size: s.Size, ETag: s.ETag, Version: s.Version, Records: s.Records, EventTime: r.EventTime}
		if s.Batch != nil {
			line.Rows = s.Batch.Rows()
		}
		if r.Key != nil {
			key := string(r.Key)
			line.Key = &key
		}
		if err != nil {
			line.State, line.Error = stateOf(err), err.Error()
			bad.add(explain(err))
		} else {
			a.tellCount(s)
			good++
			size += uint64(s.Size)
		}
		if err := a.dry(line); err != nil {
			return err
		}
	}
	if !a.cfg.JSON {
		a.note("would submit %d records, of objects of %d bytes", good, size)
	}
	return bad.err("of the objects cannot be submitted")
}

func (a *app) dry(l dryLine) error {
	switch {
	case a.cfg.JSON:
		return a.json(l)
	case l.Error != "":
		return a.printf("%s: %s\n", l.State, l.Error)
	}
	if l.Rows != "" && l.Records > 0 {
		return a.printf("%s: %s, %d bytes, %s, %d records\n", l.State, l.URL, l.Size, l.Rows, l.Records)
	}
	return a.printf("%s: %s, %d bytes\n", l.State, l.URL, l.Size)
}
