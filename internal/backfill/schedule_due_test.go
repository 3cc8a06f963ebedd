package backfill

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/topic"
)

// nightly is a schedule of 02:30 in Berlin that began on 1 December at 12:00 UTC.
func nightly() Schedule {
	s := NewSchedule("nightly", time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	s.ID, s.Cron, s.Zone = "k3j9x2abq7wz", "30 2 * * *", "Europe/Berlin"
	s.Spec = Spec{Origin: "s3://box/in/", Read: Read{Key: "/id"}, Parallel: 2}
	return s
}

func TestDue(t *testing.T) {
	paused := nightly()
	paused.Paused = true
	served := nightly()
	served.Served = moment(t, "2026-12-05T01:30:00Z")
	for _, c := range []struct {
		name   string
		s      Schedule
		now    string
		slot   string // empty: not due
		missed int
	}{
		{"just made", nightly(), "2026-12-01T12:00:00Z", "", 0},
		{"before it was made", nightly(), "2020-01-01T12:00:00Z", "", 0},
		{"a moment before", nightly(), "2026-12-02T01:29:59.999999999Z", "", 0},
		{"at the slot", nightly(), "2026-12-02T01:30:00Z", "2026-12-02T01:30:00Z", 0},
		{"a little after", nightly(), "2026-12-02T01:35:00Z", "2026-12-02T01:30:00Z", 0},
		{"late", nightly(), "2026-12-02T01:35:01Z", "2026-12-02T01:30:00Z", 1},
		{"down for three periods", nightly(), "2026-12-04T12:00:00Z", "2026-12-04T01:30:00Z", 3},
		{"down for three, back in time for the fourth", nightly(), "2026-12-05T01:30:02Z", "2026-12-05T01:30:00Z", 3},
		{"down for a hundred years", nightly(), "2126-12-01T12:00:00Z", "2126-12-01T01:30:00Z", MaxMissed},
		{"served", served, "2026-12-05T01:30:00Z", "", 0},
		{"the clock went back", served, "2026-12-03T01:30:00Z", "", 0},
		{"and forward again", served, "2026-12-05T20:00:00Z", "", 0},
		{"the next one", served, "2026-12-06T01:30:00Z", "2026-12-06T01:30:00Z", 0},
		{"paused", paused, "2026-12-04T12:00:00Z", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			slot, due, missed := Due(c.s, moment(t, c.now))
			if due != (c.slot != "") || due && slot != moment(t, c.slot) || missed != c.missed {
				t.Errorf("got %s %v %d", slot, due, missed)
			}
		})
	}
}

// TestSlotsAreServedOnce: whatever the clock does, slots are served in order, each
// once, none before its time, and the last one in the end.
func TestSlotsAreServedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := nightly()
		s.Cron = rapid.SampledFrom([]string{"30 2 * * *", "@hourly", "*/15 * * * *", "* * * * *", "0 0 1 * *"}).Draw(t, "cron")
		s.Zone = rapid.SampledFrom([]string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"}).Draw(t, "zone")
		now := time.Date(2026, time.Month(rapid.IntRange(1, 12).Draw(t, "month")), 1, 0, 0, 0, 0, time.UTC)
		s.Created = now
		slots, err := s.Slots()
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 40).Draw(t, "ticks") {
			now = now.Add(time.Duration(rapid.OneOf(
				rapid.Int64Range(0, int64(time.Hour)), rapid.Int64Range(int64(-2*time.Hour), int64(3*time.Hour)), rapid.Int64Range(int64(-40*24*time.Hour), int64(40*24*time.Hour)),
			).Draw(t, "step")))
			slot, due, missed := Due(s, now)
			if !due {
				continue
			}
			if !slot.After(s.Served) || slot.After(now) || !slot.After(s.Created) || slots.Next(slot.Add(-1)) != slot {
				t.Fatalf("at %s slot %s is served after %s", now, slot, s.Served)
			}
			if n := slots.count(s.from(), now, MaxMissed); missed != n && missed != n-1 {
				t.Fatalf("%d missed of %d", missed, n)
			}
			s.Served = slot
		}
		if last, ok := slots.last(s.Created, now); ok && s.Served.Before(last) {
			t.Fatalf("at %s slot %s is not served, but %s", now, last, s.Served)
		}
		if next := s.Upcoming(now); !next.After(now) || !next.After(s.Served) {
			t.Fatalf("at %s upcoming is %s", now, next)
		}
	})
}

func TestScheduleTransitions(t *testing.T) {
	s := nightly()
	s.Pause()
	s.Pause()
	now := moment(t, "2026-12-04T12:00:00Z")
	if s.begin(now) || !s.Upcoming(now).IsZero() {
		t.Error("a paused one begins by the clock")
	}
	s.RunNow(now)
	s.RunNow(now.Add(time.Hour))
	if s.Asked != now || !s.begin(now) || !s.Running.Slot.IsZero() || !s.Asked.IsZero() || s.Running.held(true) {
		t.Errorf("a paused one does not run when asked: %+v", s.Running)
	}
	s.Running = nil
	s.Resume(now)
	if s.Paused || s.Served != moment(t, "2026-12-04T01:30:00Z") || s.begin(now) {
		t.Errorf("slots of a pause are served: %+v", s)
	}
	s.Rest = true
	if !s.begin(now) || !s.Running.Rest || s.Rest || s.Running.Slot != s.Served || !s.Running.held(true) {
		t.Errorf("what is left does not follow: %+v", s.Running)
	}
	s.Running = nil
	s.Served = moment(t, "2040-01-01T01:30:00Z") // of a clock that was wrong
	s.Resume(now)
	if !s.Served.After(now) {
		t.Error("resuming what is not paused changes it")
	}
	s.Pause()
	s.Resume(now)
	if s.Served != moment(t, "2026-12-04T01:30:00Z") {
		t.Errorf("Served stays ahead: %s", s.Served)
	}
	s.RunNow(now)
	now = now.Add(24 * time.Hour)
	if !s.begin(now) || s.Running.Slot != moment(t, "2026-12-05T01:30:00Z") || !s.Asked.IsZero() {
		t.Errorf("a slot and a request are not one run: %+v", s)
	}
}

func TestScheduleValidate(t *testing.T) {
	def := topic.Definition{Name: "orders", Key: topic.KeyHeader}
	for what, c := range map[string]struct {
		change func(*Schedule)
		want   string
	}{
		"fine":        {func(*Schedule) {}, ""},
		"whole":       {func(s *Schedule) { s.Spec.Origin = "s3://box" }, ""},
		"name":        {func(s *Schedule) { s.Name = "a/b" }, "the name"},
		"long name":   {func(s *Schedule) { s.Name = strings.Repeat("a", 101) }, "the name"},
		"id":          {func(s *Schedule) { s.ID = "" }, "id"},
		"created":     {func(s *Schedule) { s.Created = time.Time{} }, "creation"},
		"cron":        {func(s *Schedule) { s.Cron = "a" }, "cron"},
		"never":       {func(s *Schedule) { s.Cron = "0 0 31 2 *" }, "there is no such time"},
		"zone":        {func(s *Schedule) { s.Zone = "Berlin" }, "zone"},
		"origin":      {func(s *Schedule) { s.Spec.Origin = "box/in" }, "s3://bucket/prefix"},
		"http":        {func(s *Schedule) { s.Spec.Origin = "http://box/in" }, "s3://bucket/prefix"},
		"hostile":     {func(s *Schedule) { s.Spec.Origin = "s3://box/../x" }, "s3://bucket/prefix"},
		"pattern":     {func(s *Schedule) { s.Spec.Filter.Include = []string{"["} }, "pattern"},
		"parallel":    {func(s *Schedule) { s.Spec.Parallel = 65 }, "65"},
		"format":      {func(s *Schedule) { s.Spec.Read.Format = "xml" }, "xml"},
		"packed":      {func(s *Schedule) { s.Spec.Read.Format, s.Spec.Read.Compression = rows.Parquet, rows.Gzip }, "parquet"},
		"endpoint":    {func(s *Schedule) { s.Spec.Endpoint = "http://user:secret@h" }, ""},
		"times":       {func(s *Schedule) { s.Spec.Read.From = dawn }, "event times"},
		"limits":      {func(s *Schedule) { m := uint32(2e6); s.Spec.Limits.MaxRejects = &m }, "rejects"},
		"job of none": {func(s *Schedule) { s.Running = &Run{Job: "abc"} }, "job"},
	} {
		t.Run(what, func(t *testing.T) {
			s := nightly()
			c.change(&s)
			err := s.Validate(def)
			var bad *ScheduleError
			switch {
			case what == "endpoint":
				if !errors.As(err, &bad) || strings.Contains(err.Error(), "secret") {
					t.Errorf("error %v", err)
				}
			case c.want == "" && err != nil, c.want != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v", err)
			}
		})
	}
	s := Schedule{Name: "!", Cron: "x", Zone: "UTC"}
	var bad *ScheduleError
	if !errors.As(s.Validate(def), &bad) || bad.Count < 5 {
		t.Errorf("not all at once: %v", bad)
	}
	p, err := nightly().Spec.Prefix()
	if diff := cmp.Diff(Prefix{Bucket: "box", Prefix: "in/"}, p); err != nil || diff != "" {
		t.Error(err, diff)
	}
}
