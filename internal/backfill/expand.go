package backfill

import (
	"context"
	"errors"
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

// ReferenceAt is the place of a record of a source.
func ReferenceAt(source string, p topic.Position) Reference {
	return Reference{Source: source, Sequence: p.Sequence, Row: p.Row}
}

// At is the record's position in its source.
func (r Reference) At() topic.Position { return topic.Position{Sequence: r.Sequence, Row: r.Row} }

func (r Reference) String() string { return r.Source + "@" + r.At().String() }

// Expand makes the one job of a reference, of one object, if it is not there: of several
// that are made the first one counts. The job is [Waiting] until [Jobs.Decide] is told
// that the reference is a record of the topic. A [*JobError] says that there can be no
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

// Decide opens the job that waits for a reference which is committed, accepted and
// verified, or cancels that of one which is committed and refused. It changes nothing of
// a job that does not wait, and is to be called by those alone who know what is
// committed. [ErrNoJob]: there is no such job.
//
// A job waits because it is made before its reference is committed, by a worker that
// has found the object to be right. Another one may commit the reference, and may have
// found otherwise: only the record that is there says whose verdict counts.
func (b *Jobs) Decide(ctx context.Context, r Reference, accepted bool) error {
	_, err := b.Update(ctx, b.expandID(r), func(s *State) error {
		switch {
		case s.Phase != Waiting:
			return nil
		case !accepted:
			return s.Cancel(b.store.Now(), "its reference was refused")
		}
		s.Phase = Open
		return nil
	})
	return err
}

// begun is the phase of a job that expands a reference and whose state was lost: if any
// of it is done, it was open before.
func (b *Jobs) begun(ctx context.Context, j Job) (Phase, error) {
	p, err := b.Progress(ctx, j)
	if err == nil && p.Sources[0].At != (topic.Position{}) {
		return Open, nil
	}
	return Waiting, err
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
