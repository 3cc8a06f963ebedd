package backfill

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Schedule makes jobs by the clock. Each takes the objects of a prefix that no job of
// the schedule took before, by key, version and ETag; the next is not made before the
// last one has ended. [Ticker] has it done.
type Schedule struct {
	Name string `json:"name"`
	ID   string `json:"id"`   // random; another schedule of the same name has another one
	Cron string `json:"cron"` // as ParseSlots takes it
	Zone string `json:"zone"`
	Spec Spec   `json:"spec"`

	Created time.Time `json:"created"`
	Paused  bool      `json:"paused,omitempty"`
	// Served is the last slot for which a run was begun. It moves only forwards,
	// unless somebody resumes the schedule: see Resume.
	Served time.Time `json:"served,omitzero"`
	// Asked is when somebody asked for a run that has not begun.
	Asked time.Time `json:"asked,omitzero"`
	// Rest says that the last job could not take all that was there, so that another
	// one follows without waiting for a slot.
	Rest bool `json:"rest,omitempty"`
	// Runs is how many jobs were made. It numbers them, so that two processes at once
	// make the same next one.
	Runs    uint64  `json:"runs"`
	Running *Run    `json:"running,omitempty"`
	Last    *Result `json:"last,omitempty"`
}

// Spec says what the jobs of a schedule are about. Read's format and compression are
// those of [As].
type Spec struct {
	Origin   string `json:"origin"` // "s3://bucket/prefix"; never changes
	Endpoint string `json:"endpoint,omitempty"`
	Filter   Filter `json:"filter,omitzero"`
	Read     Read   `json:"read"`
	Parallel int    `json:"parallel,omitempty"`
	Limits   Limits `json:"limits,omitzero"`
}

// Run is a run of a schedule that was begun and has not ended.
type Run struct {
	Slot   time.Time `json:"slot,omitzero"` // zero: it was asked for
	Missed int       `json:"missed,omitempty"`
	Rest   bool      `json:"rest,omitempty"` // it takes what the one before could not
	Since  time.Time `json:"since"`
	// Job is its job. Empty: the job is being made.
	Job string `json:"job,omitempty"`
	// Unfit counts objects that no job can take, such as Example.
	Unfit   int    `json:"unfit,omitempty"`
	Example string `json:"example,omitempty"`
	// Fault is why its job could not be made yet.
	Fault string `json:"fault,omitempty"`
}

// Result is how a run ended.
type Result struct {
	Run
	Ended time.Time `json:"ended"`
	// Phase is the one that its job ended in. Empty: there was nothing new.
	Phase    Phase  `json:"phase,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Objects  uint64 `json:"objects"`
	Failed   uint64 `json:"failed"`
	Rows     uint64 `json:"rows"`
	Rejected uint64 `json:"rejected"`
}

// ScheduleError tells all that is wrong with a schedule.
type ScheduleError struct {
	Name   string
	Faults []string // the first of them
	Count  int      // of all
}

func (e *ScheduleError) Error() string {
	s := fmt.Sprintf("schedule %.100q: %s", e.Name, strings.Join(e.Faults, "; "))
	if more := e.Count - len(e.Faults); more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

// maxSchedule bounds names of schedules.
const maxSchedule = 100

// CheckScheduleName tells whether a schedule can have a name: 1 to 100 of a-z, 0-9,
// hyphen and underscore. The error is a [*ScheduleError].
func CheckScheduleName(name string) error {
	if name == "" || len(name) > maxSchedule || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return &ScheduleError{name, []string{fmt.Sprintf("the name is not of 1 to %d of a-z, 0-9, - and _", maxSchedule)}, 1}
	}
	return nil
}

// NewSchedule is a schedule that begins now: its first slot is the first one after.
func NewSchedule(name string, now time.Time) Schedule {
	return Schedule{Name: name, ID: filer.Token(randomID), Zone: "UTC", Created: now.UTC().Truncate(time.Microsecond)}
}

// Slots are the times at which it begins runs.
func (s Schedule) Slots() (Slots, error) { return ParseSlots(s.Cron, s.Zone) }

// Validate reports everything that is wrong with a schedule of a topic, as a
// [*ScheduleError]. A cron without a slot in the next years is wrong as well.
func (s Schedule) Validate(def topic.Definition) error {
	f := &faults{}
	f.addErr(CheckScheduleName(s.Name))
	if CheckID(s.ID) != nil {
		f.add("its id %.60q is none", s.ID)
	}
	if s.Created.IsZero() {
		f.add("it has no time of creation")
	}
	if slots, err := s.Slots(); err != nil {
		f.addErr(err)
	} else if slots.Next(s.Created).IsZero() {
		f.addErr(&CronError{"cron", s.Cron, "there is no such time"})
	}
	if r := s.Running; r != nil && r.Job != "" && (CheckID(r.Job) != nil || s.Runs == 0) {
		f.add("it cannot have the job %.60q", r.Job)
	}
	s.Spec.check(f, def)
	if f.count == 0 {
		return nil
	}
	return &ScheduleError{s.Name, f.shown, f.count}
}

func (p Spec) check(f *faults, def topic.Definition) {
	_, err := p.Prefix()
	f.addErr(err)
	f.addErr(p.Filter.Check())
	f.addErr(p.Limits.Validate())
	if p.Parallel < 0 || p.Parallel > MaxSources {
		f.add("%d sources in parallel: want 1 to %d", p.Parallel, MaxSources)
	}
	if endpoint, err := topic.ParseEndpoint(p.Endpoint); err != nil {
		f.addErr(err)
	} else if endpoint != p.Endpoint {
		f.add("its endpoint is kept as %q", endpoint)
	}
	p.Read.check(f, def)
	if k := p.as().of("a.ndjson"); checkKind(Object{}, k.format, k.packing) != nil {
		f.add("format %.20q and compression %.20q do not go together, or are not known", p.Read.Format, p.Read.Compression)
	}
}

func (p Spec) as() As { return As{Format: p.Read.Format, Compression: p.Read.Compression} }

// Prefix is where the objects are.
func (p Spec) Prefix() (Prefix, error) {
	rest, ok := strings.CutPrefix(p.Origin, object.Scheme)
	bucket, prefix, _ := strings.Cut(rest, "/")
	n := object.Name{Bucket: bucket, Key: prefix}
	if prefix == "" {
		n.Key = "any"
	}
	if err := n.Check(); err != nil || !ok {
		return Prefix{}, fmt.Errorf("origin %.200q: want s3://bucket/prefix", p.Origin)
	}
	return Prefix{Bucket: bucket, Prefix: prefix, Filter: p.Filter}, nil
}
