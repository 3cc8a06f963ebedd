package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// Text says how it went, for people.
func (r *Result) Text() string {
	var b strings.Builder
	line := func(name, format string, a ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{name}, a...)...)
	}
	line("time", "%s; the planner ran %s times", tenths(r.Length), humanize.Comma(int64(r.Runs)))
	line("load", "%s on average, %s at the peak: %.2f times the target of one segment", r.rate(r.Mean), r.rate(r.Peak), level(r.policy, r.Peak))
	line("segments", "%d at first, %d at most, %d in the end", r.First, r.Most, r.Last)
	line("edits", "%s, %s, %s; at most %d splits and merges in an hour",
		count(r.Splits, "split"), count(r.Merges, "merge"), count(r.Rolls, "roll"), r.PerHour)
	line("over target", "%s", r.over())
	if r.HotSlot > 1 {
		line("hot slot", "one slot alone took %.2f times the target: splitting cannot help; spread its keys, or raise the target", r.HotSlot)
	}
	undone := "no merge"
	if r.Undone > 0 {
		undone = count(r.Undone, "merge")
	}
	line("stability", "%s undid a split within the cool-down of %s", undone, tenths(topic.Duration(r.policy.CoolDown)))
	line("in the end", "%s", r.ending())
	return b.String()
}

func (r *Result) over() string {
	if r.Onsets == 0 {
		return fmt.Sprintf("never; the heaviest segment had %.2f times the target", r.Worst)
	}
	return fmt.Sprintf("%s in all, %s at a time at most, in %s; at worst %.2f times the target",
		tenths(r.OverFor), tenths(r.Longest), count(r.Onsets, "onset"), r.Worst)
}

func (r *Result) ending() string {
	records := "all records are in sealed segments"
	if r.Unsealed > 0 {
		records = humanize.Comma(int64(r.Unsealed)) + " records are in segments that are live"
	}
	if r.Imbalance > 0 {
		return fmt.Sprintf("%s; the heaviest segment has %.2f times the load of the lightest", records, r.Imbalance)
	}
	return records
}

// rate says a rate in what makes the level of the peak.
func (r *Result) rate(v planner.Rate) string {
	if bytesMake(r.policy, r.Peak) {
		return humanize.IBytes(uint64(v.Bytes)) + "/s"
	}
	return humanize.Comma(int64(v.Records)) + " records/s"
}

// Log lists the edits with their reasons, one a line.
func (r *Result) Log() string {
	var b strings.Builder
	for _, e := range r.Edits {
		names := make([]string, len(e.Segments))
		for i, id := range e.Segments {
			names[i] = inspect.Short(id)
		}
		fmt.Fprintf(&b, "%s  %s %s: %s\n", tenths(e.At), e.Kind, strings.Join(names, ","), e.Reason)
	}
	return b.String()
}

// tenths is a duration to a tenth of a second.
func tenths(d topic.Duration) string { return time.Duration(d).Round(100 * time.Millisecond).String() }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
