package backfill

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a schedule's zone is known wherever the binary runs; files of the system win

	"github.com/robfig/cron/v3"
)

// slotHorizon is how far ahead a slot is looked for. The rarest is 29 February
// around a year like 2100.
const slotHorizon = 9 * 366 * 24 * time.Hour

// CronError says why a cron or its zone cannot be used.
type CronError struct{ Field, Value, Reason string } // Field: "cron" or "zone"

func (e *CronError) Error() string {
	return fmt.Sprintf("%s %.100q: %s", e.Field, e.Value, e.Reason)
}

// Slots are the times of a cron in a zone: each minute at which a clock there shows
// what the cron says. So a time that the clock jumps over is no slot of that day, and
// one that it shows twice is two slots.
//
// Crons are parsed by robfig/cron, and the slots are the times of its Next. They are
// computed here, because Next leaves out slots of a day on which clocks are moved by
// half an hour (Australia/Lord_Howe).
type Slots struct {
	cron cron.SpecSchedule
	zone *time.Location
}

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// ParseSlots reads a cron of five fields, or @hourly, @daily, @weekly, @monthly,
// @yearly, and the name of an IANA time zone. Its errors are *CronError.
func ParseSlots(expr, zone string) (Slots, error) {
	bad := func(reason string) (Slots, error) { return Slots{}, &CronError{"cron", expr, reason} }
	switch {
	case len(expr) > 200:
		return bad("it has more than 200 characters")
	case strings.Contains(expr, "TZ="):
		return bad("the time zone is a setting of its own")
	case strings.HasPrefix(expr, "@every"):
		return bad("@every begins to count anew with every process; say at which minutes, as in */15 * * * *")
	}
	parsed, err := cronParser.Parse(expr)
	if err != nil {
		return bad(err.Error())
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return bad("it is no times of day")
	}
	if zone == "" || zone == "Local" {
		return Slots{}, &CronError{"zone", zone, `want a name such as "Europe/Berlin" or "UTC", which means the same on all machines`}
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return Slots{}, &CronError{"zone", zone, `it is not known; want a name such as "Europe/Berlin" or "UTC"`}
	}
	return Slots{*spec, loc}, nil
}

// Next returns the first slot after t, or the zero time if there is none in the
// next nine years.
func (s Slots) Next(t time.Time) time.Time {
	end := t.Add(slotHorizon)
	for t = t.In(s.zone).Truncate(time.Minute).Add(time.Minute); t.Before(end); {
		skip := s.mismatch(t)
		if skip == 0 {
			return t.UTC()
		}
		next := t.Add(skip)
		if _, change := t.ZoneBounds(); change.After(t) && next.After(change) {
			next = change // behind it clocks show something else than t + skip
		}
		t = next
	}
	return time.Time{}
}

// mismatch is for how long from t on clocks cannot show what the cron says, 0: they
// do at t. It holds while clocks are not changed.
func (s Slots) mismatch(t time.Time) time.Duration {
	has := func(field uint64, n int) bool { return field>>n&1 == 1 }
	hour, minute := t.Hour(), t.Minute()
	switch {
	case !has(s.cron.Month, int(t.Month())) || !s.day(t):
		return time.Duration(24*60-60*hour-minute) * time.Minute
	case !has(s.cron.Hour, hour):
		return time.Duration(60-minute) * time.Minute
	case !has(s.cron.Minute, minute):
		return time.Minute
	}
	return 0
}

// day is cron's rule: day of month or day of week, where both are given.
func (s Slots) day(t time.Time) bool {
	const star = 1 << 63 // of robfig/cron: the field is *
	month := s.cron.Dom>>t.Day()&1 == 1
	week := s.cron.Dow>>int(t.Weekday())&1 == 1
	if s.cron.Dom&star != 0 || s.cron.Dow&star != 0 {
		return month && week
	}
	return month || week
}

// last returns the last slot in (after, now], and whether there is one. It does not
// go through all that lie between.
func (s Slots) last(after, now time.Time) (time.Time, bool) {
	for back := time.Hour; ; back *= 8 {
		from := now.Add(-back)
		if back > slotHorizon || from.Before(after) {
			from = after
		}
		slot := s.Next(from)
		if slot.IsZero() || slot.After(now) {
			if from.Equal(after) {
				return time.Time{}, false
			}
			continue
		}
		for {
			next := s.Next(slot)
			if next.IsZero() || next.After(now) {
				return slot, true
			}
			slot = next
		}
	}
}

// count is how many slots lie in (after, now], up to limit.
func (s Slots) count(after, now time.Time, limit int) int {
	for n := range limit {
		after = s.Next(after)
		if after.IsZero() || after.After(now) {
			return n
		}
	}
	return limit
}
