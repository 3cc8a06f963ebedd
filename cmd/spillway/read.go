package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/verify"
)

// readOptions of one read.
type readOptions struct {
	from, output, key   string
	hasKey              bool
	follow              bool
	limit               uint64
	onlyRejected, every bool
	skipTrimmed         bool
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

Splits, merges and rolls do not matter to a reader: it follows them, and positions
stay valid. Where records that it has not read were trimmed it ends with exit code
1 and the position to go on from; --skip-trimmed goes on by itself, and says what
was passed over.`,
		Example: "  spillway read orders --from earliest --limit 10\n  spillway read orders --from -1h --key 4711 --follow\n  spillway read unrouted --rejected",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.hasKey = cmd.Flags().Changed("key")
			if o.output != "ndjson" && o.output != "raw" && o.output != "table" {
				return &functions.UsageError{Err: fmt.Errorf("--output %q: want ndjson, raw or table", o.output)}
			}
			store, done, err := a.filer(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			t, err := store.Topic(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r, err := startAt(cmd.Context(), t, o.from)
			if err != nil {
				return err
			}
			return a.readAll(cmd.Context(), r, o)
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
	return cmd
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

func (a *app) readAll(ctx context.Context, r *segment.Reader, o readOptions) error {
	out := bufio.NewWriterSize(a.out, 64<<10)
	p := &printer{out: out, o: o}
	err := p.header()
	for err == nil {
		err = a.readSome(ctx, r, p)
		if flush := out.Flush(); err == nil {
			err = flush
		}
		if err != nil || !o.follow {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(pollEvery):
		}
	}
	a.note("position: %s", r.Position())
	if p.rejected > 0 {
		a.note("%d rejected records are not shown; see --rejected", p.rejected)
	}
	switch {
	case errors.Is(err, errEnough), errors.Is(err, syscall.EPIPE):
		return nil
	case ctx.Err() != nil && !is[*functions.RetryError](context.Cause(ctx)) && o.follow:
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
		if bad := item.Rejected != ""; bad && !p.o.onlyRejected && !p.o.every {
			p.rejected++
			continue
		} else if !bad && p.o.onlyRejected {
			continue
		}
		if err := p.record(item); err != nil {
			return err
		}
		if p.shown++; p.shown == p.o.limit {
			return errEnough
		}
	}
	return nil
}

func (p *printer) record(item segment.Item) error {
	switch p.o.output {
	case "raw":
		p.buf = append(append(p.buf[:0], item.Value...), '\n')
	case "table":
		value := fmt.Sprintf("%q", item.Value)
		if item.Rejected != "" {
			value = "REJECTED: " + item.Rejected
		}
		p.buf = fmt.Appendf(p.buf[:0], "%-10d %-27s %-20.40q %.200s\n", item.Offset, item.Time.Format("2006-01-02T15:04:05.000000Z"), item.Key, value)
	default:
		p.buf = append(item.AppendJSON(p.buf[:0], item.Offset, record.JSONOptions{}), '\n')
	}
	_, err := p.out.Write(p.buf)
	return err
}

func (a *app) verify() *cobra.Command {
	var filesOnly bool
	cmd := &cobra.Command{
		Use:   "verify TOPIC",
		Short: "Prove from files and lanes that a topic is whole",
		Long: `Reads every file of a topic, and its messages that are still in the lane, and
checks that nothing is missing, doubled, out of order or damaged. It trusts
nothing that a worker has in memory, and may run while records arrive. Exit code
1 if anything is wrong; each violation names the file, segment and offset.`,
		Example: "  spillway verify orders\n  spillway verify orders --json | jq '.violations[]'\n  spillway verify orders --files-only",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer e.close()
			lanes := verify.JetStream(e.js)
			if filesOnly {
				lanes = nil
			}
			report, err := verify.Topic(cmd.Context(), e.store, lanes, args[0])
			if err != nil {
				return err
			}
			if a.cfg.JSON {
				err = a.json(report)
			} else {
				err = a.showReport(report)
			}
			if err == nil && !report.OK {
				err = fmt.Errorf("topic %q: %d violations", args[0], len(report.Violations))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "do not look into the lane")
	return cmd
}

func (a *app) showReport(r verify.Report) error {
	if r.OK {
		return a.printf("ok: %d records (%d rejected) in %d chunks of %d segments\n", r.Records, r.Rejected, r.Chunks, r.Segments)
	}
	for _, v := range r.Violations {
		if err := a.printf("%s: %s: %s\n", v.Kind, v.Path, v.Detail); err != nil {
			return err
		}
	}
	return nil
}
