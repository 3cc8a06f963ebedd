package backfill

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Reference is the place of a record that asks for the rows of its object to become
// records of its topic.
type Reference struct {
	Source   string `json:"source"`
	Sequence uint64 `json:"sequence"`
	Row      uint32 `json:"row"`
}

// At is the record's position in its source.
func (r Reference) At() topic.Position { return topic.Position{Sequence: r.Sequence, Row: r.Row} }

func (r Reference) String() string { return r.Source + "@" + r.At().String() }

// Expand makes the one job of a reference, of one object, if it is not there: of several
// that are made the first one counts. The job is [Waiting] until [Jobs.Arm] has found
// the reference among the topic's records. A [*JobError] says that there can be no
// such job; other errors may pass, and calling again settles what has come of them.
func (b *Jobs) Expand(ctx context.Context, r Reference, read Read, o Object) error {
	_, err := b.Create(ctx, Job{
		ID: b.expandID(r), By: "expand " + r.String(), Origin: shown(o.String()), Reference: &r,
		Endpoint: b.topic.Endpoint, Read: read, Sources: []Source{{Objects: []Object{o}}},
	})
	if errors.Is(err, ErrJobExists) {
		return nil
	}
	return err
}

// expandID is the id of the job of a reference.
func (b *Jobs) expandID(r Reference) string {
	return b.DerivedID("expand", r.Source, strconv.FormatUint(r.Sequence, 10), strconv.FormatUint(uint64(r.Row), 10))
}

// shown is a name as a job has it for people.
func shown(name string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return unicode.ReplacementChar
		}
		return c
	}, strings.ToValidUTF8(name[:min(len(name), maxText)], ""))
}

// Fate is what has become of a reference.
type Fate int

// The fates. Undecided: it may still be committed. Committed: it is a record of the
// topic, and accepted. Lost: it was refused, or is not among the records and will
// never be. The last two never change.
const (
	Undecided Fate = iota
	Committed
	Lost
)

// Arm opens a job that waits for its reference, or cancels it, once that is decided:
// fate tells what has become of the reference, and why it is lost. It returns the state
// after it, and changes nothing of jobs that do not wait. Any number may arm a job at once.
//
// A job waits because it is made before its reference is committed (rule 37), by a
// worker that has found the object to be right. Another one may commit the reference,
// and may have found otherwise: only the record says whose verdict counts.
func (b *Jobs) Arm(ctx context.Context, id string, fate func(context.Context, Reference) (Fate, string, error)) (State, error) {
	s, err := b.State(ctx, id)
	if err != nil || s.Phase != Waiting {
		return s, err
	}
	j, err := b.Load(ctx, id)
	if err != nil {
		return s, err
	}
	p, err := b.Progress(ctx, j)
	if err != nil {
		return s, err
	}
	is, why := Committed, ""
	if j.Reference != nil && p.Sources[0].At == (topic.Position{}) { // else it was open before, and its state was lost
		is, why, err = fate(ctx, *j.Reference)
	}
	if err != nil {
		return s, fmt.Errorf("reference of job %s: %w", id, err)
	}
	if is == Undecided {
		return s, nil
	}
	return b.Update(ctx, id, func(s *State) error {
		switch {
		case s.Phase != Waiting:
			return nil
		case is == Lost:
			return s.Cancel(b.store.Now(), why)
		}
		s.Phase = Open
		return nil
	})
}

// checkReference finds what is wrong with a job that is to expand a reference.
func (j Job) checkReference(f *faults) {
	if j.Reference == nil {
		return
	}
	if n, _ := j.Objects(); n != 1 {
		f.add("it expands a reference, and has %d objects instead of one", n)
	}
	if s := j.Reference.Source; s == "" || len(s) > maxText || !isText(s) {
		f.add("its reference is of a source %.60q", s)
	}
}
