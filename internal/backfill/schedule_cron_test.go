package backfill

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func slotsOf(t testing.TB, expr, zone string) Slots {
	t.Helper()
	s, err := ParseSlots(expr, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func moment(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v.UTC()
}

// onDay lists the slots of a local day, as clocks show them and with the offset.
func onDay(t *testing.T, s Slots, day string) []string {
	t.Helper()
	begin, err := time.ParseInLocation(time.DateOnly, day, s.zone)
	if err != nil {
		t.Fatal(err)
	}
	end := begin.AddDate(0, 0, 1)
	var list []string
	for slot := s.Next(begin.Add(-time.Nanosecond)); slot.Before(end); slot = s.Next(slot) {
		list = append(list, slot.In(s.zone).Format("15:04Z07:00"))
	}
	return list
}

// TestClockChanges has what OPERATIONS says of the days on which clocks are changed.
func TestClockChanges(t *testing.T) {
	const daily, hourly, quarters = "30 2 * * *", "@hourly", "*/15 * * * *"
	for _, c := range []struct {
		zone, day, cron string
		want            string // all slots of the day, or of its hours around the change
	}{
		{"Europe/Berlin", "2026-03-28", daily, "02:30+01:00"},
		{"Europe/Berlin", "2026-03-29", daily, ""},
		{"Europe/Berlin", "2026-03-30", daily, "02:30+02:00"},
		{"Europe/Berlin", "2026-10-25", daily, "02:30+02:00 02:30+01:00"},
		{"Europe/Berlin", "2026-03-29", "0 3 * * *", "03:00+02:00"},
		{"Europe/Berlin", "2026-03-29", hourly, "00:00+01:00 01:00+01:00 03:00+02:00 04:00+02:00"},
		{"Europe/Berlin", "2026-10-25", hourly, "00:00+02:00 01:00+02:00 02:00+02:00 02:00+01:00 03:00+01:00 04:00+01:00"},
		{"Europe/Berlin", "2026-03-29", quarters, "01:30+01:00 01:45+01:00 03:00+02:00 03:15+02:00"},
		{"Europe/Berlin", "2026-10-25", quarters, "02:30+02:00 02:45+02:00 02:00+01:00 02:15+01:00"},
		{"America/New_York", "2026-03-08", daily, ""},
		{"America/New_York", "2026-11-01", daily, "02:30-05:00"}, // what is shown twice there is 01:00 to 02:00
		{"America/New_York", "2026-11-01", "30 1 * * *", "01:30-04:00 01:30-05:00"},
		{"America/New_York", "2026-03-08", hourly, "01:00-05:00 03:00-04:00 04:00-04:00"},
		{"America/New_York", "2026-11-01", hourly, "01:00-04:00 01:00-05:00 02:00-05:00"},
		{"America/New_York", "2026-03-08", quarters, "01:45-05:00 03:00-04:00"},
		{"America/New_York", "2026-11-01", quarters, "01:45-04:00 01:00-05:00"},
		{"America/St_Johns", "2026-03-08", daily, ""},
		{"America/St_Johns", "2026-11-01", daily, "02:30-03:30"},
		{"America/St_Johns", "2026-03-08", hourly, "01:00-03:30 03:00-02:30"},
		{"America/St_Johns", "2026-11-01", hourly, "01:00-02:30 01:00-03:30 02:00-03:30"},
		{"America/St_Johns", "2026-03-08", quarters, "01:45-03:30 03:00-02:30"},
		{"America/St_Johns", "2026-11-01", quarters, "01:45-02:30 01:00-03:30"},
		{"Australia/Lord_Howe", "2026-10-04", daily, "02:30+11:00"}, // 02:00 becomes 02:30
		{"Australia/Lord_Howe", "2026-04-05", daily, "02:30+10:30"}, // 02:00 becomes 01:30
		{"Australia/Lord_Howe", "2026-10-04", "15 2 * * *", ""},
		{"Australia/Lord_Howe", "2026-04-05", "45 1 * * *", "01:45+11:00 01:45+10:30"},
		{"Australia/Lord_Howe", "2026-10-04", "0 15 * * *", "15:00+11:00"},
		{"Australia/Lord_Howe", "2026-10-04", hourly, "01:00+10:30 03:00+11:00"},
		{"Australia/Lord_Howe", "2026-04-05", hourly, "01:00+11:00 02:00+10:30"},
		{"Australia/Lord_Howe", "2026-10-04", quarters, "01:45+10:30 02:30+11:00"},
		{"Australia/Lord_Howe", "2026-04-05", quarters, "01:45+11:00 01:30+10:30 01:45+10:30 02:00+10:30"},
		{"Asia/Kolkata", "2026-03-29", daily, "02:30+05:30"},
		{"Asia/Kolkata", "2026-10-25", daily, "02:30+05:30"},
		{"Asia/Kolkata", "2026-03-29", hourly, "01:00+05:30 02:00+05:30 03:00+05:30"},
		{"Asia/Kolkata", "2026-10-25", quarters, "01:45+05:30 02:00+05:30 02:15+05:30"},
		{"America/Havana", "2026-03-08", "@daily", ""}, // midnight is jumped over
		{"America/Havana", "2026-03-08", "@hourly", "01:00-04:00 02:00-04:00"},
	} {
		t.Run(fmt.Sprint(c.zone, " ", c.day, " ", c.cron), func(t *testing.T) {
			got := strings.Join(onDay(t, slotsOf(t, c.cron, c.zone), c.day), " ")
			whole := c.cron != hourly && c.cron != quarters
			if whole && got != c.want || !strings.Contains(got, c.want) {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestSlotsOfADay: no day has more or fewer slots than it has hours.
func TestSlotsOfADay(t *testing.T) {
	for _, c := range []struct {
		zone, day        string
		hours, quarterly int
	}{
		{"Europe/Berlin", "2026-03-29", 23, 92}, {"Europe/Berlin", "2026-10-25", 25, 100}, {"Europe/Berlin", "2026-06-01", 24, 96},
		{"America/New_York", "2026-03-08", 23, 92}, {"America/New_York", "2026-11-01", 25, 100},
		{"America/St_Johns", "2026-03-08", 23, 92}, {"America/St_Johns", "2026-11-01", 25, 100},
		{"Australia/Lord_Howe", "2026-10-04", 23, 94}, {"Australia/Lord_Howe", "2026-04-05", 24, 98},
		{"Asia/Kolkata", "2026-03-29", 24, 96},
	} {
		if n := len(onDay(t, slotsOf(t, "@hourly", c.zone), c.day)); n != c.hours {
			t.Errorf("%s %s: %d slots of @hourly, want %d", c.zone, c.day, n, c.hours)
		}
		if n := len(onDay(t, slotsOf(t, "*/15 * * * *", c.zone), c.day)); n != c.quarterly {
			t.Errorf("%s %s: %d slots of */15, want %d", c.zone, c.day, n, c.quarterly)
		}
	}
}

var (
	zones = []string{"UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Asia/Kolkata", "Africa/Cairo", "Antarctica/Troll"}
	// odd zones are those where robfig/cron leaves slots out: half an hour, and midnight.
	odd = []string{"Australia/Lord_Howe", "America/Havana", "America/Santiago", "Asia/Beirut"}
)

func drawCron(t *rapid.T) string {
	field := func(name string, lo, hi int) string {
		switch rapid.IntRange(0, 3).Draw(t, name) {
		case 0:
			return "*"
		case 1:
			return fmt.Sprintf("*/%d", rapid.IntRange(1, hi).Draw(t, name+" step"))
		case 2:
			a, b := rapid.IntRange(lo, hi).Draw(t, name+" from"), rapid.IntRange(lo, hi).Draw(t, name+" to")
			return fmt.Sprintf("%d-%d", min(a, b), max(a, b))
		}
		return fmt.Sprint(rapid.IntRange(lo, hi).Draw(t, name+" at"))
	}
	return strings.Join([]string{field("minute", 0, 59), field("hour", 0, 23), field("dom", 1, 31), field("month", 1, 12), field("dow", 0, 6)}, " ")
}

// changes draws a time near a change of clocks, where there are some.
func drawNearChange(t *rapid.T, loc *time.Location) time.Time {
	begin := time.Date(2024+rapid.IntRange(0, 6).Draw(t, "year"), time.Month(rapid.IntRange(1, 12).Draw(t, "month")), 1, 0, 0, 0, 0, loc)
	if _, end := begin.ZoneBounds(); !end.IsZero() {
		begin = end
	}
	return begin.Add(time.Duration(rapid.Int64Range(int64(-40*time.Hour), int64(20*time.Hour)).Draw(t, "off")))
}

// TestNextIsWhatClocksShow compares with every minute looked at by itself.
func TestNextIsWhatClocksShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := ParseSlots(drawCron(t), rapid.SampledFrom(slices.Concat(zones, odd)).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		from := drawNearChange(t, s.zone)
		want := time.Time{}
		end := from.Add(4 * 24 * time.Hour)
		for m := from.UTC().Truncate(time.Minute).Add(time.Minute); m.Before(end); m = m.Add(time.Minute) {
			if s.mismatch(m.In(s.zone)) == 0 {
				want = m
				break
			}
		}
		got := s.Next(from)
		if !got.Equal(want) && (!want.IsZero() || got.Before(end) && !got.IsZero()) {
			t.Fatalf("after %s: %s, want %s", from, got, want)
		}
	})
}

// TestNextIsRobfigs: except in the odd zones, slots are what robfig/cron says.
func TestNextIsRobfigs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := ParseSlots(drawCron(t), rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		spec := s.cron
		spec.Location = s.zone
		from := drawNearChange(t, s.zone)
		want := spec.Next(from)
		if got := s.Next(from); !got.Equal(want) && (!want.IsZero() || got.Before(from.AddDate(4, 0, 0))) {
			t.Fatalf("after %s: %s, robfig says %s", from, got, want)
		}
	})
}

// TestRobfigInLordHowe is why Next is ours: when this fails, it need not be any more.
func TestRobfigInLordHowe(t *testing.T) {
	s := slotsOf(t, "0 15 * * *", "Australia/Lord_Howe")
	spec := s.cron
	spec.Location = s.zone
	from := time.Date(2026, 10, 3, 15, 0, 0, 0, s.zone)
	if next := spec.Next(from); next.Sub(from) < 30*time.Hour {
		t.Errorf("robfig/cron has the slot of the day of the change now: %s", next)
	}
	if next := s.Next(from); !next.Equal(time.Date(2026, 10, 4, 15, 0, 0, 0, s.zone)) {
		t.Errorf("got %s", next)
	}
}

func TestLastSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		expr := rapid.SampledFrom([]string{"* * * * *", "*/15 * * * *", "30 2 * * *", "@monthly", "0 0 29 2 *"}).Draw(t, "cron")
		s, err := ParseSlots(expr, rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		after := drawNearChange(t, s.zone)
		now := after.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(3*24*time.Hour)).Draw(t, "later")))
		want, n := time.Time{}, 0
		for slot := s.Next(after); !slot.IsZero() && !slot.After(now); slot = s.Next(slot) {
			want, n = slot, n+1
		}
		if got, ok := s.last(after, now); !got.Equal(want) || ok != (n > 0) {
			t.Fatalf("last in (%s, %s]: %s, want %s", after, now, got, want)
		}
		if got := s.count(after, now, 100); got != min(n, 100) {
			t.Fatalf("count in (%s, %s]: %d, want %d", after, now, got, n)
		}
	})
	s := slotsOf(t, "* * * * *", "UTC")
	if slot, ok := s.last(time.Time{}, moment(t, "2026-01-01T00:00:30Z")); !ok || slot != moment(t, "2026-01-01T00:00:00Z") {
		t.Errorf("of two thousand years: %s", slot)
	}
}

func TestRareSlots(t *testing.T) {
	for expr, want := range map[string]string{
		"0 0 29 2 *": "2104-02-29T00:00:00Z", "0 0 31 2 *": "", "0 0 31 4,6,9,11 *": "", "0 0 30 2 1": "2097-02-04T00:00:00Z",
	} {
		got := slotsOf(t, expr, "UTC").Next(moment(t, "2097-01-31T00:00:00Z"))
		if want == "" && !got.IsZero() || want != "" && got != moment(t, want) {
			t.Errorf("%s: %s, want %s", expr, got, want)
		}
	}
}

func TestParseSlotsRefuses(t *testing.T) {
	for _, c := range []struct{ expr, zone, field string }{
		{"", "UTC", "cron"}, {"* * * *", "UTC", "cron"}, {"* * * * * *", "UTC", "cron"}, {"60 * * * *", "UTC", "cron"},
		{"* 24 * * *", "UTC", "cron"}, {"* * 0 * *", "UTC", "cron"}, {"* * * 13 *", "UTC", "cron"}, {"* * * * 7", "UTC", "cron"},
		{"*/0 * * * *", "UTC", "cron"}, {"5-1 * * * *", "UTC", "cron"}, {"@every 1h", "UTC", "cron"}, {"@reboot", "UTC", "cron"},
		{"TZ=UTC", "UTC", "cron"}, {"TZ=UTC * * * * *", "UTC", "cron"}, {"CRON_TZ=Europe/Berlin", "UTC", "cron"},
		{strings.Repeat("1,", 101) + "1 * * * *", "UTC", "cron"},
		{"@daily", "", "zone"}, {"@daily", "Local", "zone"}, {"@daily", "Mars/Phobos", "zone"}, {"@daily", "../etc/passwd", "zone"},
		{"@daily", "/etc/localtime", "zone"}, {"@daily", "CEST", "zone"}, {"@daily", strings.Repeat("x", 5000), "zone"},
	} {
		_, err := ParseSlots(c.expr, c.zone)
		var bad *CronError
		if !errors.As(err, &bad) || bad.Field != c.field || bad.Reason == "" || len(err.Error()) > 700 {
			t.Errorf("%.30q in %.30q: %v", c.expr, c.zone, err)
		}
	}
}

func FuzzParseSlots(f *testing.F) {
	for _, expr := range []string{"* * * * *", "0-59/18446744073709551615 * * * *", "TZ= ", "@daily", "*/7,1-3 ? JAN-dec * mon", "@every 1ns", "\x00 \xff * * *"} {
		f.Add(expr, "Europe/Berlin")
	}
	from := time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, expr, zone string) {
		s, err := ParseSlots(expr, zone)
		var bad *CronError
		if err != nil && !errors.As(err, &bad) {
			t.Fatalf("%v", err)
		}
		if err == nil {
			if next := s.Next(from); !next.IsZero() && !next.After(from) {
				t.Fatalf("%q in %q: %s", expr, zone, next)
			}
		}
	})
}
