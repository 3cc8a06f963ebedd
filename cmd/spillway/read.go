package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
)

// readOptions of one read.
type readOptions struct {
	from, output, key   string
	hasKey              bool
	follow              bool
	limit               uint64
	onlyRejected, every bool
	skipTrimmed         bool
	fetch, expand       bool
	dir                 string
}

func (a *app) read() *cobra.Command {
	var o readOptions
	cmd := &cobra.Command{
		Use:   "read TOPIC",
		Short: "Read a topic's records, oldest first, in key order",
		Long: `Reads records from the files of a topic. --from is "earliest", "latest", a time
(RFC 3339, or an age such as -1h), or a position that an earlier read printed to
standard error when it ended.

Rejected records (undecodable, wrong key, unknown topic) are left out and counted;
--rejected shows only those, with their reasons, --all shows both. Output is
NDJSON with all fields, "raw" (values only, a line each) or "table".

--fetch reads the objects that records refer to, to their ends, and says of each
whether it is "valid", "missing", "deleted" or "changed" (and what of it), or
"pending" if it could not be read now: as "fetched" in NDJSON, and in the table. With
--output raw the object's bytes come in place of the value. --dir keeps valid
objects as files named by segment and offset. What the topic does not allow (topic
describe) is not read, nor anything if --s3 is not the topic's endpoint: it is
"pending". None of this stops the reading; the exit code is 1 at the end if an
object was not valid, and 75 or 78 if some could not, or must not, be read.

--expand prints the rows of batch references (submit --batch) in their place: each
with the fields of the reference, its own value, and "batch" with the object's URL
and the row's number in it. Rows that cannot be taken are rejected records. A batch
reference whose rows cannot all be read is shown itself, after those that were, with
"expanded" saying why; exit codes are as above. One that was submitted with --expand
is shown as it is: its rows are records of the topic.

Splits, merges and rolls do not matter to a reader: it follows them, and positions
stay valid. Where records that it has not read were trimmed it ends with exit code
1 and the position to go on from; --skip-trimmed goes on by itself, and says what
was passed over.`,
		Example: "  spillway read orders --from earliest --limit 10\n  spillway read orders --from -1h --key 4711 --follow\n  spillway read unrouted --rejected\n  spillway read images --fetch --dir images\n  spillway read flights --expand --output raw",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.hasKey = cmd.Flags().Changed("key")
			if err := o.check(); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.readTopic(cmd.Context(), args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "earliest", "earliest, latest, a time, an age or a position")
	f.StringVar(&o.output, "output", "ndjson", "ndjson, raw or table")
	f.StringVar(&o.key, "key", "", "only records with this key")
	f.BoolVar(&o.follow, "follow", false, "wait for more records at the end")
	f.Uint64Var(&o.limit, "limit", 0, "end after so many records")
	f.BoolVar(&o.onlyRejected, "rejected", false, "only rejected records")
	f.BoolVar(&o.every, "all", false, "rejected records too")
	f.BoolVar(&o.skipTrimmed, "skip-trimmed", false, "go on where records were trimmed before they were read")
	f.BoolVar(&o.fetch, "fetch", false, "read the objects that records refer to, and check them")
	f.BoolVar(&o.expand, "expand", false, "print the rows of batch references in their place")
	f.StringVar(&o.dir, "dir", "", "folder for what --fetch reads")
	return cmd
}

func (o *readOptions) check() error {
	switch {
	case o.output != "ndjson" && o.output != "raw" && o.output != "table":
		return fmt.Errorf("--output %q: want ndjson, raw or table", o.output)
	case o.dir != "" && !o.fetch:
		return errors.New("--dir is for --fetch")
	case o.expand && o.fetch:
		return errors.New("--fetch and --expand exclude each other")
	}
	return nil
}

// readTopic reads, with what fetches objects if that is wanted.
func (a *app) readTopic(ctx context.Context, name string, o readOptions) error {
	store, done, err := a.filer(ctx)
	if err != nil {
		return err
	}
	defer done()
	t, err := store.Topic(ctx, name)
	if err != nil {
		return err
	}
	r, err := startAt(ctx, t, o.from)
	if err != nil {
		return err
	}
	p := &printer{o: o}
	look := func(ctx context.Context) (*segment.Topic, error) { return store.Topic(ctx, name) }
	switch {
	case o.fetch:
		if p.fetcher, err = a.newFetcher(ctx, look, o.dir); err != nil {
			return err
		}
		defer p.fetcher.close()
		return functions.Worst(explain(a.readAll(ctx, r, p)), p.fetcher.bad.err("objects are not as their records say"))
	case o.expand:
		if p.expander, err = a.newExpander(ctx, look); err != nil {
			return err
		}
		defer p.expander.store.Close()
		return functions.Worst(explain(a.readAll(ctx, r, p)), p.expander.bad.err("batch references could not be expanded"))
	}
	return a.readAll(ctx, r, p)
}

// startAt opens a reader where --from says.
func startAt(ctx context.Context, t *segment.Topic, from string) (*segment.Reader, error) {
	switch from {
	case "earliest":
		return t.Read(ctx, nil)
	case "latest":
		p, err := t.Latest(ctx)
		if err != nil {
			return nil, err
		}
		return t.Read(ctx, p)
	}
	if age, err := time.ParseDuration(from); err == nil && age < 0 {
		return t.ReadSince(ctx, time.Now().Add(age))
	}
	if at, err := time.Parse(time.RFC3339, from); err == nil {
		return t.ReadSince(ctx, at)
	}
	p, err := segment.ParseReadPosition(from)
	if err != nil {
		return nil, &functions.UsageError{Err: fmt.Errorf("--from %q: want earliest, latest, a time as in 2006-01-02T15:04:05Z, an age such as -1h, or a position that read printed", from)}
	}
	return t.Read(ctx, p)
}

// pollEvery is how often --follow looks for more.
const pollEvery = 200 * time.Millisecond

// errEnough ends a read that was limited.
var errEnough = errors.New("enough")

func (a *app) readAll(ctx context.Context, r *segment.Reader, p *printer) error {
	out := bufio.NewWriterSize(a.out, 64<<10)
	p.out = out
	err := p.header()
	for err == nil {
		err = a.readSome(ctx, r, p)
		if flush := out.Flush(); err == nil {
			err = flush
		}
		if err != nil || !p.o.follow {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(pollEvery):
		}
	}
	at := r.Position()
	if p.within != nil { // its rows are not all out
		at[p.within.Segment] = p.within.Offset
		a.note("ended within the batch at offset %d: from the position, it is read again from its first row", p.within.Offset)
	}
	a.note("position: %s", at)
	if p.rejected > 0 {
		a.note("%d rejected records are not shown; see --rejected", p.rejected)
	}
	switch {
	case errors.Is(err, errEnough), errors.Is(err, syscall.EPIPE):
		return nil
	case ctx.Err() != nil && !is[*functions.RetryError](context.Cause(ctx)) && p.o.follow:
		return nil // Ctrl-C is how following ends
	}
	return err
}

// readSome prints what there is now. Where records were trimmed before they were
// read, it says where to go on, or goes on there if it is told to.
func (a *app) readSome(ctx context.Context, r *segment.Reader, p *printer) error {
	for {
		err := p.some(ctx, r)
		gap, trimmed := errors.AsType[*segment.TrimmedError](err)
		if !trimmed {
			return err
		}
		if !p.o.skipTrimmed {
			after := r.Position()
			after[gap.Segment] = gap.Next
			return fmt.Errorf("%w; to go on there, give --skip-trimmed, or --from %s", err, after)
		}
		a.note("passed over: %v", gap)
		r.Skip(gap)
	}
}

// printer writes records as the options say.
type printer struct {
	out      *bufio.Writer
	o        readOptions
	buf      []byte
	shown    uint64
	rejected uint64
	fetcher  *fetcher  // nil: objects are not read
	expander *expander // nil: batch references are printed as they are
	// within is the batch reference whose rows are being printed.
	within *segment.Item
}

func (p *printer) header() error {
	if p.o.output != "table" {
		return nil
	}
	_, err := fmt.Fprintf(p.out, "%-10s %-27s %-20s %s\n", "OFFSET", "TIME", "KEY", "VALUE")
	return err
}

// some prints what there is now.
func (p *printer) some(ctx context.Context, r *segment.Reader) error {
	for item, err := range r.Next(ctx) {
		if err != nil {
			return err
		}
		if p.o.hasKey && (item.Key == nil || string(item.Key) != p.o.key) {
			continue
		}
		if b, is, err := p.batchOf(&item); is {
			if err := p.expand(ctx, item, b, err); err != nil {
				return err
			}
			continue
		}
		if !p.shows(item.Rejected) {
			continue
		}
		if err := p.record(ctx, item); err != nil {
			return err
		}
		if p.shown++; p.shown == p.o.limit {
			return errEnough
		}
	}
	return nil
}

// shows tells whether a record, or row, is to be printed, and counts those that are not
// for being rejected.
func (p *printer) shows(rejected string) bool {
	if rejected != "" && !p.o.onlyRejected && !p.o.every {
		p.rejected++
		return false
	}
	return rejected != "" || !p.o.onlyRejected
}

func (p *printer) record(ctx context.Context, item segment.Item) error {
	var got *fetched
	if p.fetcher != nil && item.Ref != nil && item.Rejected == "" {
		raw := io.Discard
		if p.o.output == "raw" {
			raw = p.out
		}
		f, err := p.fetcher.fetch(ctx, item, raw)
		if err != nil {
			return err
		}
		got = &f
	}
	switch p.o.output {
	case "raw":
		p.buf = append(append(p.buf[:0], item.Value...), '\n')
	case "table":
		p.buf = fmt.Appendf(p.buf[:0], "%-10d %-27s %-20.40q %.200s\n", item.Offset, item.Time.Format("2006-01-02T15:04:05.000000Z"), item.Key, shownValue(item, got))
	default:
		p.buf = got.appendTo(item.AppendJSON(p.buf[:0], item.Offset, record.JSONOptions{}))
		p.buf = append(p.buf, '\n')
	}
	_, err := p.out.Write(p.buf)
	return err
}

// shownValue is what a table says of a record.
func shownValue(item segment.Item, got *fetched) string {
	switch {
	case item.Rejected != "":
		return "REJECTED: " + item.Rejected
	case item.Ref == nil:
		return fmt.Sprintf("%q", item.Value)
	case got == nil && item.Pending:
		return fmt.Sprintf("%q (%d bytes): %s", item.Ref.URL, item.Ref.Size, ref.Pending)
	case got == nil:
		return fmt.Sprintf("%q (%d bytes)", item.Ref.URL, item.Ref.Size)
	case got.Error != "":
		return fmt.Sprintf("%q (%d bytes): %s: %q", item.Ref.URL, item.Ref.Size, got.State, got.Error)
	}
	return fmt.Sprintf("%q (%d bytes): %s", item.Ref.URL, item.Ref.Size, got.State)
}
