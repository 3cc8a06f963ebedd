package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/functions"
)

// TestCompactLine: a progress in words, also before there is anything to say.
func TestCompactLine(t *testing.T) {
	for _, c := range []struct {
		name string
		p    compactor.Progress
		took time.Duration
		want string
	}{
		{"nothing is known yet", compactor.Progress{Segments: 3}, 0, "  0 %  0/3 segments, 0 rows, 0 B"},
		{"a moment", compactor.Progress{Segments: 3, Records: 10, TotalRecords: 100, Rows: 10, Bytes: 2000}, time.Millisecond, " 10 %  0/3 segments, 10 rows, 2.0 kB"},
		{
			"half, and a batch made more rows than records",
			compactor.Progress{Segments: 4, Done: 2, Records: 500, TotalRecords: 1000, Rows: 20_000, Bytes: 3e6},
			10 * time.Second, " 50 %  2/4 segments, 20,000 rows, 3.0 MB  2,000 rows/s  ETA 10s",
		},
		{"all", compactor.Progress{Segments: 1, Done: 1, Records: 9, TotalRecords: 9, Rows: 9}, 3 * time.Second, "100 %  1/1 segments, 9 rows, 0 B  3 rows/s"},
		{"more than was counted", compactor.Progress{Segments: 1, Records: 12, TotalRecords: 9, Rows: 9}, 3 * time.Second, "100 %  0/1 segments, 9 rows, 0 B  3 rows/s"},
	} {
		if got := compactLine(c.p, c.took); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestCompactBar: on a terminal it draws at most five times a second; elsewhere there is
// a line from time to time.
func TestCompactBar(t *testing.T) {
	for _, draw := range []bool{true, false} {
		var out bytes.Buffer
		now := time.Unix(1000, 0)
		b := newCompactBar(&out, draw)
		b.draw, b.now = draw, func() time.Time { return now }
		for i := range 100 { // 10 s
			b.at(compactor.Progress{Segments: 1, Records: uint64(i), TotalRecords: 100, Rows: uint64(i)})
			now = now.Add(100 * time.Millisecond)
		}
		b.at(compactor.Progress{Segments: 1, Records: 100, TotalRecords: 100, Rows: 100})
		b.end()
		if drawn := strings.Count(out.String(), "\r"); draw && (drawn < 40 || drawn > 51 || !strings.HasSuffix(out.String(), "\n")) {
			t.Errorf("drawn %d times: %q", drawn, out.String())
		}
		if lines := strings.Count(out.String(), "\n"); !draw && (lines != 1 || !strings.Contains(out.String(), "100 %")) {
			t.Errorf("%d lines: %q", lines, out.String())
		}
	}
}

// TestReportLines: what was done is said, and that nothing was.
func TestReportLines(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 19800))
	for _, c := range []struct {
		name string
		v    compactedView
		want string
	}{
		{"nothing", compactedView{Topic: "orders"}, "nothing to do now for topic orders\n"},
		{
			"all of it", compactedView{Compacted: 2, Records: 1200, Rows: 1300, Bytes: 5e6, Files: 3, FileBytes: 1e6, Committed: 2, Trimmed: 1, Swept: 1, Waiting: 1, Next: &at},
			"compacted 2 segments: 1,200 records in 1,300 rows, 5.0 MB of records in 3 files of 1.0 MB\n" +
				"committed 2 segments to the table\ndeleted the chunks of 1 segment\ndeleted 1 file that no manifest names\n" +
				"the chunks of 1 segment stay for their grace time, the first of them until 2026-01-01T21:34:05Z\n",
		},
		{"it only waits", compactedView{Topic: "orders", Waiting: 2}, "nothing to do now for topic orders\nthe chunks of 2 segments stay for their grace time\n"},
		{"interrupted", compactedView{Cut: true}, ""},
		{"there would be something", compactedView{Silent: "no answer"}, ""},
		{"there would be something", compactedView{Quarantined: 1}, ""},
		{"somebody else is at it", compactedView{Held: true}, ""},
	} {
		if got := reportLines(c.v); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestUnfinished: what is left has its exit code, the worst first.
func TestUnfinished(t *testing.T) {
	for _, c := range []struct {
		name string
		r    compactor.Report
		code int
		says string
	}{
		{"done", compactor.Report{Compacted: 3, Waiting: 1}, functions.ExitDone, ""},
		{"the catalog is away", compactor.Report{Silent: errors.New("no answer")}, functions.ExitRetry, "not all could be done: no answer"},
		{"objects are away", compactor.Report{Postponed: 2}, functions.ExitRetry, "2 segments with batch references"},
		{"no endpoint", compactor.Report{Elsewhere: 1}, functions.ExitConfig, "give --s3"},
		{"damaged", compactor.Report{Quarantined: 1, Silent: errors.New("no answer")}, functions.ExitBug, "1 segment quarantined"},
	} {
		err := unfinished(t.Context(), "orders", c.r)
		if functions.ExitCode(err) != c.code || c.says != "" && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, exit code %d", c.name, err, functions.ExitCode(err))
		}
	}
}

// TestCompactFlags: --grace 0 is none, and no default.
func TestCompactFlags(t *testing.T) {
	for _, c := range []struct {
		flags compactFlags
		grace time.Duration
		bytes int64 // 0: an error
	}{
		{compactFlags{time.Hour, "128MiB"}, time.Hour, 128 << 20},
		{compactFlags{0, "64KiB"}, -1, 64 << 10},
		{compactFlags{time.Second, "4GiB"}, time.Second, 4 << 30},
		{compactFlags{-time.Second, "128MiB"}, 0, 0},
		{compactFlags{time.Hour, "63KiB"}, 0, 0},
		{compactFlags{time.Hour, "5GiB"}, 0, 0},
		{compactFlags{time.Hour, "-1"}, 0, 0},
		{compactFlags{time.Hour, "much"}, 0, 0},
		{compactFlags{time.Hour, ""}, 0, 0},
	} {
		o, err := c.flags.options()
		if (err == nil) != (c.bytes > 0) || o.Grace != c.grace && err == nil || o.FileBytes != c.bytes {
			t.Errorf("%+v: %+v, %v", c.flags, o, err)
		}
	}
}

// A compaction that somebody else took over is not done.
func TestCutIsNotDone(t *testing.T) {
	if code := functions.ExitCode(unfinished(t.Context(), "orders", compactor.Report{Cut: true})); code != functions.ExitRetry {
		t.Errorf("exit code %d", code)
	}
}
