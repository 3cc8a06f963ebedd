package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/planner"
)

// dryJob is what a job would do.
type dryJob struct {
	Topic    string         `json:"topic"`
	Origin   string         `json:"origin"`
	Objects  uint64         `json:"objects"`
	Bytes    uint64         `json:"bytes"`
	Sources  int            `json:"sources"`
	Formats  map[string]int `json:"formats"`
	Rows     uint64         `json:"estimated_rows"`
	Sampled  sample         `json:"sampled"`
	Seconds  float64        `json:"estimated_seconds"`
	Expected planner.Rate   `json:"expected"` // that it would declare; none if it is short
	Segments presplit       `json:"segments"`

	limits backfill.Limits
}

// presplit is what the planner would make of the topic's segments before the job.
type presplit struct {
	Now    int                `json:"now"`
	Then   int                `json:"then"`
	Splits []planner.Decision `json:"splits"`
	Fault  string             `json:"fault,omitempty"` // why it is not known
}

// dryBackfill says what a job would do, and makes nothing.
func (a *app) dryBackfill(ctx context.Context, j *jobsOf, s3 *object.Store, job backfill.Job) error {
	job.Topic, job.Incarnation, job.ID, job.Created = j.topic.Name, j.topic.Incarnation, backfill.NewID(), time.Now()
	for i := range job.Sources {
		job.Sources[i].Name = backfill.SourceName(job.ID, i)
	}
	if err := job.Validate(j.topic.Definition); err != nil {
		return err
	}
	d := dryJob{Topic: job.Topic, Origin: job.Origin, Sources: len(job.Sources), Formats: formatsOf(job), limits: job.Limits}
	d.Objects, d.Bytes = job.Objects()
	var err error
	if d.Sampled, err = sampleOf(ctx, s3, job); err != nil {
		return err
	}
	d.Rows = d.Sampled.estimate(d.Bytes)
	load, takes := d.load()
	if d.Seconds = takes.Seconds(); takes >= shortJob {
		d.Expected = load
	}
	if d.Segments, err = a.presplit(ctx, j, d.Expected); err != nil {
		return err
	}
	if a.cfg.JSON {
		err = a.json(d)
	} else {
		err = a.showDry(d)
	}
	if bad := d.Sampled.Failed; err == nil && len(bad) > 0 {
		return &functions.UsageError{Err: fmt.Errorf("%s cannot be read so, the first: %s: %s", count(len(bad), "object"), bad[0].Object, bad[0].Error)}
	}
	return err
}

func formatsOf(job backfill.Job) map[string]int {
	n := map[string]int{}
	for _, s := range job.Sources {
		for _, o := range s.Objects {
			how := job.Read.Options(o)
			name := string(how.Format)
			if how.Compression != rows.None {
				name += "+" + string(how.Compression)
			}
			n[name]++
		}
	}
	return n
}

// estimate is how many rows objects of so many bytes have.
func (s sample) estimate(size uint64) uint64 {
	if s.Bytes == 0 {
		return 0
	}
	return uint64(math.Round(float64(s.Rows) / float64(s.Bytes) * float64(size)))
}

// What a source, and a job, bring per second at most where nothing limits them: what
// [functions.RunJob] declares.
const (
	sourceBytes, jobBytes = 16 << 20, 64 << 20
	sourceRows, jobRows   = 50_000, 200_000
	// shortJob is over before segments that are made for it are there.
	shortJob = 20 * time.Second
)

// load is what the job would declare, and how long it would take.
func (d dryJob) load() (r planner.Rate, takes time.Duration) {
	s, l, n := d.Sampled, d.limits, float64(d.Sources)
	if s.Bytes == 0 {
		return r, 0
	}
	r.Bytes, r.Records = min(n*sourceBytes, jobBytes), min(n*sourceRows, jobRows)
	if most := float64(l.Bytes); most > 0 {
		r.Bytes = min(r.Bytes, most)
	}
	if most := float64(l.Rows); most > 0 && most < r.Records {
		r = planner.Rate{Records: most, Bytes: r.Bytes * most / r.Records}
	}
	values := float64(s.Values) / float64(s.Bytes) * float64(d.Bytes)
	seconds := values / r.Bytes
	if l.Rows > 0 {
		seconds = max(seconds, float64(d.Rows)/float64(l.Rows))
	}
	return r, time.Duration(min(seconds, 1e9) * float64(time.Second))
}

// presplit asks the planner what it would do about a load.
func (a *app) presplit(ctx context.Context, j *jobsOf, load planner.Rate) (presplit, error) {
	policies, err := loadPolicy("")
	if err != nil {
		return presplit{}, err
	}
	r, err := planner.New(planner.Options{Store: j.store, Policies: policies, Logger: j.store.Logger}).Explain(ctx, j.topic.Name)
	if is[*planner.PendingError](err) {
		return presplit{Splits: []planner.Decision{}, Fault: err.Error()}, nil
	}
	if err != nil {
		return presplit{}, err
	}
	s := r.Situation
	s.Expected = s.Expected.Plus(load)
	live := len(s.Layout.Live)
	p := presplit{Now: live, Then: live, Splits: []planner.Decision{}}
	for _, d := range planner.Plan(s, policies.For(j.topic.Name)) {
		if d.Kind == planner.Split {
			p.Splits = append(p.Splits, d)
			p.Then += len(d.Cuts)
		}
	}
	return p, nil
}

func (a *app) showDry(d dryJob) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	row("topic\t%s", d.Topic)
	row("objects\t%s of %s, %d at a time: %s", humanize.Comma(int64(d.Objects)), humanize.Bytes(d.Bytes), d.Sources, formatsText(d.Formats))
	s := d.Sampled
	about := "about "
	if s.Bytes == d.Bytes && len(s.Failed) == 0 {
		about = ""
	}
	row("rows\t%s%s", about, humanize.Comma(int64(d.Rows)))
	row("sampled\t%s of %s: %d rejected, %d left out by --where, %d without a key, %d without a time",
		count(int(s.Rows), "row"), count(s.Objects, "object"), s.Rejected, s.Filtered, s.NoKey, s.NoTime)
	if d.Seconds >= 1 {
		row("takes\tabout %s", time.Duration(d.Seconds*float64(time.Second)).Round(time.Second))
	}
	row("segments\t%s", presplitText(d.Segments, d.Expected))
	if err := w.Flush(); err != nil {
		return err
	}
	if err := a.showSampled(s); err != nil {
		return err
	}
	if d.limits.TooMany(s.Rejected, s.Rows) {
		a.note("so many rows are rejected that the job would stop itself")
	}
	a.note("nothing was made")
	return nil
}

func formatsText(n map[string]int) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(n)) {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %s", humanize.Comma(int64(n[name])), name)
	}
	return text
}

func presplitText(p presplit, load planner.Rate) string {
	switch {
	case p.Fault != "":
		return "not known: " + p.Fault
	case load == (planner.Rate{}):
		return fmt.Sprintf("%d; the job is over before the planner would split them", p.Now)
	case p.Then == p.Now:
		return fmt.Sprintf("%d, which is enough for %s", p.Now, rateText(load))
	}
	return fmt.Sprintf("%d, which the planner would split to %d for %s", p.Now, p.Then, rateText(load))
}

// showSampled prints the first rows.
func (a *app) showSampled(s sample) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	object := ""
	for _, r := range s.First {
		if r.Object != object {
			object = r.Object
			fmt.Fprintf(w, "\n%s\nROW\tKEY\tTIME\tVALUE\n", object)
		}
		key, at, value := "-", "-", r.Value
		if r.Key != nil {
			key = fmt.Sprintf("%.40q", *r.Key)
		}
		if r.Time != nil {
			at = r.Time.Format(time.RFC3339Nano)
		}
		switch {
		case r.Rejected != "":
			value = "REJECTED: " + r.Rejected
		case r.Filtered:
			value = "left out: " + value
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%q\n", r.Row, key, at, value)
	}
	return w.Flush()
}
