package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
)

func TestParseWhere(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		text, zone  string
		from, until time.Time
		bad         bool
	}{
		{text: ""},
		{text: "2026-01-01..2026-02-01", from: at("2026-01-01T00:00:00Z"), until: at("2026-02-01T00:00:00Z")},
		{text: "2026-01-01..", zone: "America/New_York", from: at("2026-01-01T05:00:00Z")},
		{text: "..2026-07-01", zone: "America/New_York", until: at("2026-07-01T04:00:00Z")},
		{text: "2026-01-01T12:00:00+01:00..2026-01-02", from: at("2026-01-01T11:00:00Z"), until: at("2026-01-02T00:00:00Z")},
		{text: "..", bad: true},
		{text: "2026-01-01", bad: true},
		{text: "2026-01-01T12:00:00..", bad: true},
		{text: "2026-01-01..2026-02-30", bad: true},
		{text: "a..b..c", bad: true},
		{text: "2026-01-01..", zone: "Mars/Olympus", bad: true},
	} {
		from, until, err := parseWhere(c.text, c.zone)
		if (err != nil) != c.bad || err == nil && (!from.Equal(c.from) || !until.Equal(c.until)) {
			t.Errorf("%q in %q: %v, %v, %v", c.text, c.zone, from, until, err)
		}
	}
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]int{
		"1%": 10_000, "0.5%": 5_000, "100%": 1_000_000, "0": 0, "0%": 0, "0.00005%": 1, "any": -1,
		"": -2, "1": -2, "101%": -2, "-1%": -2, "NaN%": -2, "%": -2, "1%%": -2, "1e400%": -2,
	} {
		got, err := parseShare(text)
		is := -2
		switch {
		case err == nil && got == nil:
			is = -1
		case err == nil:
			is = int(*got)
		}
		if is != want {
			t.Errorf("%q: %d, %v, want %d", text, is, err, want)
		}
	}
}

// TestBackfillExitCodes: what can be the matter with jobs has the exit code that the help
// tells, also if it comes wrapped.
func TestBackfillExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{&backfill.JobError{}, 2}, {&backfill.NamesError{Err: backfill.ErrTwice}, 2}, {&backfill.PatternError{}, 2},
		{&backfill.ManifestError{}, 2}, {&backfill.IDError{}, 2}, {&backfill.PhaseError{}, 2}, {&backfill.ScheduleError{}, 2},
		{&backfill.CronError{}, 2}, {backfill.ErrNoJob, 2}, {backfill.ErrNoSchedule, 2}, {backfill.ErrScheduleExists, 2}, {object.ErrNoBucket, 2},
		{&backfill.HeldError{}, 75}, {&functions.RetryError{Err: &backfill.HeldError{}}, 75},
		{backfill.ErrNoCheckpoint, 78}, {ingest.ErrNoCheckpoint, 78}, {object.ErrForbidden, 78},
		{&backfill.FrozenError{}, 1}, {errors.New("a bug"), 1},
	} {
		err := c.err
		if err != nil {
			err = errors.Join(errors.New("topic x"), err)
		}
		if code := functions.ExitCode(explain(explainBackfill(err))); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, code, c.code)
		}
	}
}

// far is a progress that is so far.
func far(read, size uint64) functions.JobProgress {
	p := backfill.Progress{Read: read, Size: size, Total: 4, Sources: []backfill.SourceProgress{{}}}
	p.Tally = segment.Tally{Objects: 2, Rows: 1_234_567, Rejected: 8}
	return functions.JobProgress{Progress: p, RowsPerSecond: 98_765, BytesPerSecond: 12_345_678, ETA: 83*time.Second + 400*time.Millisecond}
}

// TestJobBar: on a terminal a line is drawn again, elsewhere a line comes every 10 s.
func TestJobBar(t *testing.T) {
	if got, want := barLine(far(42, 100)), "[========            ]  42 %  1,234,567 rows, 2/4 objects, 8 rejected  98,765 rows/s 12 MB/s  ETA 1m23s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, p := range []functions.JobProgress{far(0, 0), far(7, 5), {}} {
		if line := barLine(p); len(line) > 110 || !strings.Contains(line, "] ") {
			t.Errorf("%q", line)
		}
	}
	var drawn, lines bytes.Buffer
	bar := newJobBar(&drawn, true)
	bar.at(far(1, 2))
	bar.at(far(2, 2))
	bar.end()
	if strings.Count(drawn.String(), "\r") != 2 || strings.Count(drawn.String(), "\n") != 1 {
		t.Errorf("drawn: %q", drawn.String())
	}
	quiet := newJobBar(&lines, false)
	now := quiet.next
	quiet.now = func() time.Time { return now }
	for range 4 {
		quiet.at(far(1, 2))
		now = now.Add(barPeriod / 2)
	}
	quiet.end()
	if strings.Count(lines.String(), "\n") != 2 || strings.Contains(lines.String(), "\r") {
		t.Errorf("lines: %q", lines.String())
	}
}

// TestSampleOfLong: of a long file only the beginning is read, and tells of the rest.
func TestSampleOfLong(t *testing.T) {
	line := `{"id":"` + strings.Repeat("x", 90) + `"}` + "\n"
	long := filepath.Join(t.TempDir(), "long.ndjson")
	if err := os.WriteFile(long, []byte(strings.Repeat(line, 50_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := backfill.Files(t.Context(), []string{long}, backfill.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	read := backfill.Read{Format: rows.NDJSON, Key: "id", Time: "at"}
	job := backfill.Job{Read: read, Sources: backfill.Divide(found.Objects, "x", 1)}
	s, err := sampleOf(t.Context(), nil, job)
	if err != nil {
		t.Fatal(err)
	}
	if s.Bytes != sampleBytes-rows.HeadSize && s.Bytes != sampleBytes || s.Rows < 9_000 || s.NoTime != s.Rows || s.NoKey != 0 || len(s.First) != sampleRows {
		t.Errorf("%+v", s)
	}
	if n := s.estimate(uint64(found.Objects[0].Size)); n < 49_500 || n > 50_500 {
		t.Errorf("estimated %d rows of 50,000", n)
	}
	d := dryJob{Sampled: s, Sources: 2, Bytes: 1 << 35, Rows: 330_000_000}
	if load, takes := d.load(); load.Bytes != 2*sourceBytes || load.Records != 2*sourceRows || takes < 16*time.Minute || takes > 18*time.Minute {
		t.Errorf("%+v for %s", load, takes)
	}
	d.limits = backfill.Limits{Rows: 1000, Bytes: 1 << 30}
	if load, takes := d.load(); load.Records != 1000 || load.Bytes >= sourceBytes || takes < 90*time.Hour {
		t.Errorf("%+v for %s", load, takes)
	}
}

// TestBeginningIsBounded: whatever a reader asks for, no more is read.
func TestBeginningIsBounded(t *testing.T) {
	b := &beginning{File: strings.NewReader(strings.Repeat("x", 100)), left: 10}
	p := make([]byte, 8)
	if n, err := b.ReadAt(p, 0); n != 8 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := b.ReadAt(p, 8); n != 2 || !errors.Is(err, errSampled) || !b.cut {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := b.ReadAt(p, 50); n != 0 || !errors.Is(err, errSampled) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestBeginningOf(t *testing.T) {
	for _, v := range []string{"", "short", strings.Repeat("ü", sampleValue), "a" + strings.Repeat("€", sampleValue)} {
		if got := beginningOf([]byte(v)); len(got) > sampleValue+len("…") || !strings.HasPrefix(v, strings.TrimSuffix(got, "…")) {
			t.Errorf("%q: %q", v, got)
		}
	}
}
