// Package doctor looks at a setup and tells what is wrong with it, and what its
// acknowledgements are worth: whether NATS and the filer are there and fit,
// whether something would delete or lose what was acknowledged, and what was left
// behind by work that was interrupted.
//
// Each check is a small function of small interfaces that gives findings; [Run]
// puts them in order. [JetStream] is the real NATS, a seaweed.Client the real
// filer. Checks change nothing, but for files that are created in the bucket and
// deleted again; only [Sweep] deletes.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
)

// Status is how bad a finding is.
type Status string

// The states of a finding. A warning is something to know that nothing fails by.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Finding is what one check saw of one thing.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Seen   string `json:"seen"`         // one line
	Do     string `json:"do,omitempty"` // what would mend it
	// Away says that the check failed because something could not be asked:
	// trying again may help, changing the configuration need not.
	Away bool `json:"away,omitempty"`
}

func ok(check, format string, args ...any) Finding {
	return Finding{Check: check, Status: OK, Seen: fmt.Sprintf(format, args...)}
}

func warn(check, do, format string, args ...any) Finding {
	return Finding{Check: check, Status: Warn, Seen: fmt.Sprintf(format, args...), Do: do}
}

func fail(check, do, format string, args ...any) Finding {
	return Finding{Check: check, Status: Fail, Seen: fmt.Sprintf(format, args...), Do: do}
}

// away is a check that got no answer.
func away(check string, err error) Finding {
	return Finding{Check: check, Status: Fail, Seen: oneLine(err), Do: "see that it runs and can be reached from here, then run this again", Away: true}
}

// asked is away, unless the error is an answer.
func asked(check, do string, err error) Finding {
	if filer.Definite(err) {
		return fail(check, do, "%s", oneLine(err))
	}
	return away(check, err)
}

// Report is everything that was found, in the order of the checks.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Count tells how many findings have a status.
func (r Report) Count(s Status) int {
	n := 0
	for _, f := range r.Findings {
		if f.Status == s {
			n++
		}
	}
	return n
}

// Unreachable tells whether something could not be asked, and Unfit whether
// something is not as it must be.
func (r Report) Unreachable() bool {
	return r.has(func(f Finding) bool { return f.Status == Fail && f.Away })
}

// Unfit tells whether something is wrong that trying again does not mend.
func (r Report) Unfit() bool {
	return r.has(func(f Finding) bool { return f.Status == Fail && !f.Away })
}

func (r Report) has(is func(Finding) bool) bool {
	for _, f := range r.Findings {
		if is(f) {
			return true
		}
	}
	return false
}

// Setup is what is looked at. NATS or Filer is nil when there was no way to
// connect to it.
type Setup struct {
	NATS  Lanes
	Filer Filer
	Store *segment.Store // on Filer
	// Tables are those of the catalog; nil: none is configured.
	Tables Tables
	Now    func() time.Time
	// Missing says why what is nil is nil; see [Missing].
	Missing []Finding
}

// Missing is the finding about a server ("nats" or "filer") that could not be
// connected to. Unfit: the settings are wrong; else it may just not be there.
func Missing(server string, err error, unfit bool) Finding {
	if unfit {
		return fail(server, "see the settings that say where it is and who you are", "%s", oneLine(err))
	}
	return away(server, err)
}

// Filer is what is asked of a filer, beside what any [filer.Store] does.
type Filer interface {
	Clusterer
	Writer
	Placer
	Clock
}

// Times that a check may take. What hangs must not hide what comes after it.
const (
	checkLimit = 20 * time.Second
	writeLimit = 40 * time.Second // a filer that restarts takes no writes for 15 s
)

// Run makes all checks, one after the other. It takes a few seconds when all is
// well, and returns early only when ctx ends.
func Run(ctx context.Context, s Setup) Report {
	r := Report{Findings: slices.Clone(s.Missing)}
	var seen view
	add := func(limit time.Duration, check func(context.Context) []Finding) {
		if ctx.Err() != nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		r.Findings = append(r.Findings, check(ctx)...)
	}
	if s.NATS != nil {
		add(checkLimit, func(ctx context.Context) []Finding { return seen.server(ctx, s.NATS) })
	}
	if s.Filer != nil {
		add(checkLimit, func(ctx context.Context) []Finding { return seen.cluster(ctx, s.Filer) })
		add(writeLimit, func(ctx context.Context) []Finding { return writable(ctx, s.Filer, s.Store.KeptDirs()) })
		add(checkLimit, func(ctx context.Context) []Finding { return exclusive(ctx, s.Store) })
		add(checkLimit, func(ctx context.Context) []Finding { return expiry(ctx, s.Store) })
		add(writeLimit, func(ctx context.Context) []Finding { return stored(ctx, s.Filer, s.Store, seen.replication) })
	}
	if seen.lanesKnown {
		r.Findings = append(r.Findings, buffered(seen.lanes, seen.sync)...)
		if s.Filer != nil {
			add(checkLimit, func(ctx context.Context) []Finding { return laneStates(ctx, s.NATS, s.Store, seen.lanes) })
		}
	}
	add(checkLimit, func(ctx context.Context) []Finding { return clocks(ctx, s.Now, clockOf(s.Filer), clockOf(s.NATS)) })
	if s.Filer != nil {
		add(writeLimit, func(ctx context.Context) []Finding { return leftovers(ctx, s.Store, seen.lanes, seen.lanesKnown) })
		add(writeLimit, func(ctx context.Context) []Finding { return compacted(ctx, s.Store, s.Tables, s.Now()) })
	}
	return r
}

// view is what checks saw that later ones need.
type view struct {
	lanes       []Lane
	lanesKnown  bool
	sync        Sync
	replication string // the master's default
}

// oneLine is an error's text without line breaks.
func oneLine(err error) string {
	text := []byte(err.Error())
	for i, c := range text {
		if c < ' ' {
			text[i] = ' '
		}
	}
	return string(text)
}
