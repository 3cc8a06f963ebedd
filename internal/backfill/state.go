package backfill

import (
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Phase is whether a job is to be worked on.
type Phase string

// The phases. Done and Cancelled are final. Stopped: the job stopped itself, and can
// be resumed as one that is paused. Waiting: the reference that it expands is not yet
// known to be a record of the topic; see [Jobs.Decide]. Whatever the phase, what was committed stays.
const (
	Waiting   Phase = "waiting"
	Open      Phase = "open"
	Paused    Phase = "paused"
	Stopped   Phase = "stopped"
	Cancelled Phase = "cancelled"
	Done      Phase = "done"
)

// Final tells whether the phase never changes again.
func (p Phase) Final() bool { return p == Done || p == Cancelled }

// RunnerLease is after how long without a sign of life a runner is taken for gone.
const RunnerLease = 30 * time.Second

// State is what changes of a job. It is for people and for choosing who works; what
// is done, the checkpoints say.
type State struct {
	Phase  Phase   `json:"phase"`
	Reason string  `json:"reason,omitempty"` // why it is not open
	Limits Limits  `json:"limits"`
	Runner *Runner `json:"runner,omitempty"` // nil: nobody works on it, or it was killed and found so
	Runs   uint64  `json:"runs"`
	// Started and Ended are when the first run began, and when the job came to a
	// final phase.
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Worked is how long runs have worked on it in all.
	Worked  topic.Duration `json:"worked"`
	Job     Head           `json:"job"`
	Summary *Summary       `json:"summary,omitempty"`
}

// Limits are what a job may do.
type Limits struct {
	Rows  uint64 `json:"rows,omitempty"`  // per second; 0: any number
	Bytes uint64 `json:"bytes,omitempty"` // of values, per second; 0: any number
	// MaxRejects is the share of its rows, in millionths, of which no more may be
	// rejected; nil: any share.
	MaxRejects *uint32 `json:"max_rejects,omitempty"`
}

// Head is what lists say of a job without its file.
type Head struct {
	Created  time.Time `json:"created"`
	By       string    `json:"by"`
	Origin   string    `json:"origin"`
	Schedule string    `json:"schedule,omitempty"`
	Host     string    `json:"host,omitempty"`
	Objects  uint64    `json:"objects"`
	Bytes    uint64    `json:"bytes"` // of the objects
	Sources  int       `json:"sources"`
}

// Runner is who works on a job, so that others find other work. It is a courtesy:
// two runners at once are safe, and half as fast.
type Runner struct {
	ID    string    `json:"id"` // random, of one run
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
	Seen  time.Time `json:"seen"`
	Until time.Time `json:"until"`
}

// NewState is the state of a job that was just made. It follows from the job, so
// that a state that is missing is made again.
func NewState(j Job) State {
	n, bytes := j.Objects()
	phase := Open
	if j.Reference != nil {
		phase = Waiting
	}
	return State{Phase: phase, Limits: j.Limits, Job: Head{
		Created: j.Created, By: j.By, Origin: j.Origin, Schedule: j.Schedule, Host: j.Host,
		Objects: n, Bytes: bytes, Sources: len(j.Sources),
	}}
}

// PhaseError tells that something cannot be done with a job in its phase.
type PhaseError struct {
	Do    string // "pause", "resume", "cancel", "work on", …
	Phase Phase
}

func (e *PhaseError) Error() string {
	return fmt.Sprintf("cannot %s the job: it is %s", e.Do, e.Phase)
}

// HeldError tells that another runner works on a job.
type HeldError struct{ Runner Runner }

func (e *HeldError) Error() string {
	return fmt.Sprintf("run %.60q on %.60q works on the job, at least until %s",
		e.Runner.ID, e.Runner.Host, e.Runner.Until.UTC().Format(time.RFC3339))
}
