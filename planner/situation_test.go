package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/internal/topic"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// parseSituation reads a situation, in the words of testdata/situations/README.md.
func parseSituation(text string) (s Situation, p Policy, err error) {
	s = Situation{Topic: "flights", Roots: 1, Now: noon}
	p = DefaultPolicy()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		subject, rest, ok := strings.Cut(line, ": ")
		if line == "" || strings.HasPrefix(line, "#") || !ok {
			continue // what is going on, for people
		}
		phrases := strings.Split(rest, ", ")
		switch kind, name, _ := strings.Cut(subject, " "); kind {
		case "policy":
			err = each(phrases, p.set)
		case "topic":
			err = each(phrases, s.set)
		case "lane":
			b := Backlog{Lane: name}
			err = each(phrases, b.set)
			s.Backlogs = append(s.Backlogs, b)
		case "segment", "segments":
			err = s.add(name, phrases)
		default:
			continue // prose with a colon
		}
		if err != nil {
			return s, p, fmt.Errorf("%s: %w", line, err)
		}
	}
	for i := range s.Loads {
		s.Loads[i].Segment = s.Layout.Live[i].ID
	}
	if err := s.Layout.Validate(); err != nil {
		return s, p, err
	}
	return s, p, p.Validate()
}

func each(phrases []string, set func(string) error) error {
	for _, p := range phrases {
		if err := set(p); err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
	}
	return nil
}

// scan is Sscanf that wants all of the text used.
func scan(text, format string, a ...any) bool {
	var end string
	n, _ := fmt.Sscanf(text+" .", format+" %s", append(a, &end)...)
	return n == len(a)+1 && end == "."
}

func (p *Policy) set(phrase string) (err error) {
	name, value, _ := strings.Cut(phrase, " ")
	switch name {
	case "cap":
		p.Cap, err = strconv.Atoi(value)
	case "floor":
		p.Floor, err = strconv.Atoi(value)
	case "max_ways":
		p.MaxWays, err = strconv.Atoi(value)
	case "merge_below":
		p.MergeBelow, err = strconv.ParseFloat(value, 64)
	case "roll_age":
		p.RollAge, err = time.ParseDuration(value)
	case "cool_down":
		p.CoolDown, err = time.ParseDuration(value)
	default:
		err = fmt.Errorf("no such thing in a policy: %s", name)
	}
	return err
}

func (s *Situation) set(phrase string) (err error) {
	switch {
	case phrase == "rolled only":
		s.RollOnly = true
	case scan(phrase, "made with %d segments", &s.Roots):
	case strings.HasPrefix(phrase, "declared "):
		s.Expected, err = parseRate(strings.TrimPrefix(phrase, "declared "))
	default:
		err = fmt.Errorf("not understood")
	}
	return err
}

func (b *Backlog) set(phrase string) (err error) {
	var age string
	switch {
	case scan(phrase, "%d messages wait", &b.Messages):
	case scan(phrase, "the oldest for %s", &age):
		b.Lag, err = time.ParseDuration(age)
	default:
		err = fmt.Errorf("not understood")
	}
	return err
}

// add adds a segment, or the rest of the key space in equal ones.
func (s *Situation) add(name string, phrases []string) error {
	var first, epoch, n int
	var lo, hi uint32
	live := []topic.Live{{}}
	switch {
	case scan(name, "%d-%d to %d", &epoch, &first, &n):
		live = live[:0]
		for i, r := range topic.Divide(n - first + 1) {
			live = append(live, topic.Live{ID: topic.NewSegmentID(uint64(epoch), first+i, "test"), Range: r})
		}
	case scan(name, "%d-%d", &epoch, &first) && scan(phrases[0], "slots %d to %d", &lo, &hi):
		live[0] = topic.Live{ID: topic.NewSegmentID(uint64(epoch), first, "test"), Range: topic.Range{Lo: lo, Hi: hi}}
		phrases = phrases[1:]
	default:
		return fmt.Errorf("name or slots not understood")
	}
	for _, seg := range live {
		l := described{Load: Load{Segment: seg.ID, Observed: time.Hour, Records: 1000, Bytes: 1 << 20, First: noon.Add(-10 * time.Minute)}}
		if err := each(phrases, l.set); err != nil {
			return err
		}
		if !l.unknown {
			l.Density = l.density(seg.Range)
		}
		if i := slices.IndexFunc(s.Layout.Live, func(o topic.Live) bool { return o.Lo == seg.Lo }); i >= 0 {
			s.Loads[i] = l.Load // one of many equal ones differs
			continue
		}
		s.Layout.Live, s.Loads = append(s.Layout.Live, seg), append(s.Loads, l.Load)
	}
	return nil
}

// described is a load in the making.
type described struct {
	Load
	parts   topic.Density // of which is told how many percent they take
	unknown bool          // where the load falls
}

// density gives parts what they take, and spreads the rest evenly.
func (l *described) density(r topic.Range) (d topic.Density) {
	even := (100 - l.parts.Total()) / float64(r.Size()-sizeOf(l.parts))
	rest := func(from, to uint32) {
		if from < to {
			d = append(d, topic.Stretch{Range: topic.Range{Lo: from, Hi: to}, Load: even * float64(to-from)})
		}
	}
	at := r.Lo
	for _, p := range l.parts {
		rest(at, p.Lo)
		d = append(d, p)
		at = p.Hi
	}
	rest(at, r.Hi)
	return d
}

func sizeOf(d topic.Density) (n uint32) {
	for _, s := range d {
		n += s.Size()
	}
	return n
}

func (l *described) set(phrase string) (err error) {
	var age, percent string
	var lo, hi uint32
	switch {
	case strings.HasPrefix(phrase, "takes in "):
		l.Short, err = parseRate(strings.TrimPrefix(phrase, "takes in "))
		l.Long = l.Short
	case strings.HasSuffix(phrase, " in the long window"):
		l.Long, err = parseRate(strings.TrimSuffix(phrase, " in the long window"))
	case phrase == "idle":
	case phrase == "empty":
		l.Records, l.Bytes, l.First = 0, 0, time.Time{}
	case phrase == "nothing tells where its load falls":
		l.unknown = true
	case scan(phrase, "known for %s", &age):
		l.Observed, err = time.ParseDuration(age)
	case scan(phrase, "split %s ago", &age):
		l.Split, err = before(age)
	case scan(phrase, "its oldest record %s ago", &age):
		l.First, err = before(age)
	case strings.HasPrefix(phrase, "holds "):
		l.Bytes, err = humanize.ParseBytes(strings.TrimPrefix(phrase, "holds "))
	case scan(phrase, "slot %d takes %s", &lo, &percent):
		return l.hot(topic.Range{Lo: lo, Hi: lo + 1}, percent)
	case scan(phrase, "slots %d to %d take %s", &lo, &hi, &percent):
		return l.hot(topic.Range{Lo: lo, Hi: hi}, percent)
	default:
		err = fmt.Errorf("not understood")
	}
	return err
}

func before(age string) (time.Time, error) {
	d, err := time.ParseDuration(age)
	return noon.Add(-d), err
}

// hot gives a part of the range so many percent of the load.
func (l *described) hot(r topic.Range, percent string) error {
	share, err := strconv.ParseFloat(strings.TrimSuffix(percent, "%"), 64)
	l.parts = append(l.parts, topic.Stretch{Range: r, Load: share})
	return err
}

// parseRate reads "12 MiB/s", "50000 records/s" or both with "and" between.
func parseRate(text string) (r Rate, err error) {
	for part := range strings.SplitSeq(text, " and ") {
		number, ok := strings.CutSuffix(part, "/s")
		if !ok {
			return r, fmt.Errorf("%q is no rate", part)
		}
		if records, ok := strings.CutSuffix(number, " records"); ok {
			r.Records, err = strconv.ParseFloat(records, 64)
		} else if records, ok := strings.CutSuffix(number, " MiB"); ok {
			r.Bytes, err = strconv.ParseFloat(records, 64)
			r.Bytes *= 1 << 20
		} else {
			err = fmt.Errorf("%q is no rate", part)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}
