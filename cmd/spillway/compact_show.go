package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
)

// compactedView is what `compact --json` prints.
type compactedView struct {
	Topic       string     `json:"topic"`
	Table       bool       `json:"table"` // a catalog is set
	Compacted   int        `json:"compacted"`
	Committed   int        `json:"committed"`
	Trimmed     int        `json:"trimmed"`
	Swept       int        `json:"swept"`
	Waiting     int        `json:"waiting"`
	Quarantined int        `json:"quarantined"`
	Elsewhere   int        `json:"elsewhere"`
	Postponed   int        `json:"postponed"`
	Records     uint64     `json:"records"`
	Rows        uint64     `json:"rows"`
	Bytes       uint64     `json:"bytes"`
	Files       int        `json:"files"`
	FileBytes   uint64     `json:"file_bytes"`
	Next        *time.Time `json:"next"` // when to call it again; null: when something is sealed
	Cut         bool       `json:"cut,omitempty"`
	Held        bool       `json:"held,omitempty"`
	Silent      string     `json:"silent,omitempty"` // who gave no answer, so that not all was done
}

func (c *compacting) showReport(name string, r compactor.Report) error {
	v := compactedView{
		Topic: name, Table: c.deps.Tables != nil, Compacted: r.Compacted, Committed: r.Committed, Trimmed: r.Trimmed, Swept: r.Swept,
		Waiting: r.Waiting, Quarantined: r.Quarantined, Elsewhere: r.Elsewhere, Postponed: r.Postponed,
		Records: r.Records, Rows: r.Rows, Bytes: r.Bytes, Files: r.Files, FileBytes: r.FileBytes, Next: timeOrNull(r.Next), Cut: r.Cut, Held: r.Held,
	}
	if r.Silent != nil {
		v.Silent = r.Silent.Error()
	}
	if c.cfg.JSON {
		return c.json(v)
	}
	return c.printf("%s", reportLines(v))
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// reportLines tells for people what was done, a line for each thing.
func reportLines(v compactedView) string {
	var b []byte
	line := func(n int, format string, args ...any) {
		if n > 0 {
			b = fmt.Appendf(b, format+"\n", args...)
		}
	}
	line(v.Compacted, "compacted %s: %s in %s, %s of records in %s of %s", count(v.Compacted, "segment"), count(int(v.Records), "record"),
		count(int(v.Rows), "row"), humanize.Bytes(v.Bytes), count(v.Files, "file"), humanize.Bytes(v.FileBytes))
	line(v.Committed, "committed %s to the table", count(v.Committed, "segment"))
	line(v.Trimmed, "deleted the chunks of %s", count(v.Trimmed, "segment"))
	line(v.Swept, "deleted %s that no manifest names", count(v.Swept, "file"))
	if len(b) == 0 && !v.Cut && !v.Held && v.Silent == "" && v.Quarantined+v.Elsewhere+v.Postponed == 0 {
		b = fmt.Appendf(b, "nothing to do now for topic %s\n", v.Topic)
	}
	if v.Waiting > 0 {
		until := ""
		if v.Next != nil {
			until = ", the first of them until " + v.Next.UTC().Format(time.RFC3339)
		}
		b = fmt.Appendf(b, "the chunks of %s stay for their grace time%s\n", count(v.Waiting, "segment"), until)
	}
	return string(b)
}

// plannedView is what `compact --dry-run --json` prints.
type plannedView struct {
	Topic    string                `json:"topic"`
	Table    bool                  `json:"table"` // a catalog is set
	Segments []compactor.Candidate `json:"segments"`
}

// plan tells what would be done.
func (c *compacting) plan(ctx context.Context, t *inspect.Topic, o compactOptions) error {
	list, fault := functions.NewCompactor(c.deps, o.how).Plan(ctx, t.Name)
	if list == nil {
		return explainCatalog(fault)
	}
	if o.segment != "" {
		m, err := memberNamed(ctx, t, o.segment)
		if err != nil {
			return err
		}
		list = only(list, m.ID)
	}
	if o.roll {
		for i, s := range list {
			if s.State == compactor.Live && s.Records > 0 {
				list[i].Do, list[i].Reason = compactor.Rewrite, "--roll would seal it first"
			}
		}
	}
	v := plannedView{t.Name, c.deps.Tables != nil, list}
	show := c.showPlan
	if c.cfg.JSON {
		show = func(v plannedView) error { return c.json(v) }
	}
	if err := show(v); err != nil {
		return err
	}
	return explainCatalog(fault) // of the catalog: the plan has all else
}

func only(list []compactor.Candidate, id topic.SegmentID) []compactor.Candidate {
	one := []compactor.Candidate{}
	for _, s := range list {
		if s.Segment == id {
			one = append(one, s)
		}
	}
	return one
}

func (c *compacting) showPlan(v plannedView) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SEGMENT\tRECORDS\tBYTES\tFILES\tSTATE\tNEXT\tWHY")
	do := 0
	for _, s := range v.Segments {
		if s.Do != compactor.Nothing {
			do++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", inspect.Short(s.Segment), humanize.Comma(int64(s.Records)), humanize.IBytes(s.Bytes), s.Files, s.State, s.Do, s.Reason)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	where := "no catalog is set: data files and manifests only"
	if v.Table {
		where = "catalog " + c.cfg.Catalog
	}
	return c.printf("%s of %s would be worked on now; %s\n", humanize.Comma(int64(do)), count(len(v.Segments), "segment"), where)
}
