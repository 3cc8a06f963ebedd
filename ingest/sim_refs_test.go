package ingest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// What the objects of a simulation do. Two workers that look at one of those that
// come, go or change judge it differently.
const (
	objectThere   = "there"
	objectOther   = "other"   // is another one than the reference says
	objectAbsent  = "absent"  // for ever
	objectComes   = "comes"   // after a while
	objectChanges = "changes" // is the right one until it is overwritten
	objectSilent  = "silent"  // its endpoint does not answer
)

var objectKinds = []string{
	objectThere, objectThere, objectThere, objectThere, objectOther, objectComes, objectComes, objectChanges, objectChanges, objectAbsent, objectSilent,
}

// simRef gives row of message i a reference, or nil. Some are to a bucket that is not
// allowed.
func (w *world) simRef(i, row int) *record.Ref {
	if !w.dice.chance(150, "refers", i, row) {
		return nil
	}
	bucket := "refs"
	if w.dice.chance(150, "bucket", i, row) {
		bucket = "others"
	}
	kind := objectKinds[w.dice.roll("object", i, row)%uint64(len(objectKinds))]
	return &record.Ref{URL: fmt.Sprintf("s3://%s/%s/m%d.%d", bucket, kind, i, row), Size: 7}
}

func kindOf(url string) string { return strings.Split(url, "/")[3] }

// simValue is what tells a record from all others.
func simValue(r record.Record) string {
	switch {
	case r.Ref != nil:
		return r.Ref.URL
	case r.Rejected != "" && len(r.Value) == 0 && r.Headers[0].Name == HeaderRowObject:
		return string(r.Headers[0].Value) + ".end"
	}
	return string(r.Value)
}

// simObjects are the objects of a world, their pins, and what was judged of them.
type simObjects struct {
	dice  dice
	stats *simStats
	mu    sync.Mutex
	born  map[string]time.Time // when each was first looked at
	pins  map[string]bool
	said  map[string]string
}

func newSimObjects(d dice, stats *simStats) *simObjects {
	return &simObjects{dice: d, stats: stats, born: map[string]time.Time{}, pins: map[string]bool{}, said: map[string]string{}}
}

// simJudge is one worker's view of the objects.
type simJudge struct {
	*simObjects
	name string
	calm bool
}

func (j *simJudge) Judge(ctx context.Context, d topic.Definition, f record.Ref) error {
	if _, err := verdict.Allowed(d, f); err != nil {
		return err
	}
	wait := j.dice.span(30*time.Millisecond, "look", j.name, f.URL)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
	}
	err := j.look(ctx, f)
	if err == nil && !j.calm && j.dice.chance(30, "pin fails", j.name, f.URL) {
		return errors.New("the filer does not answer")
	}
	j.say(f.URL, err)
	return err
}

func (j *simJudge) look(ctx context.Context, f record.Ref) error {
	j.mu.Lock()
	since, seen := j.born[f.URL]
	if !seen {
		since = time.Now()
		j.born[f.URL] = since
	}
	j.mu.Unlock()
	turned := time.Since(since) >= j.dice.span(4*time.Second, "turns", f.URL)
	other := &ref.MismatchError{What: "size", Want: "7", Got: "8"}
	switch kind := kindOf(f.URL); {
	case kind == objectSilent:
		<-ctx.Done()
		return ctx.Err()
	case kind == objectAbsent, kind == objectComes && !turned:
		return object.ErrNotFound
	case kind == objectOther, kind == objectChanges && turned:
		return other
	}
	return nil
}

// say notes a verdict, and with a good one the pin that comes before the commit.
func (j *simJudge) say(url string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	word := "right"
	switch {
	case err == nil:
		j.pins[url] = true
	case verdict.Wrong(err):
		word = "wrong"
	default:
		word = "open"
	}
	if old := j.said[url]; old != "" && old != word {
		j.stats.disputed.Add(1)
	}
	j.said[url] = word
}

// checkRef says whether a record's outcome is one that its reference can have.
func (w *world) checkRef(r record.Record) error {
	if r.Ref == nil {
		return nil
	}
	outcome := "accepted"
	switch {
	case r.Rejected != "":
		outcome = "refused"
		w.stats.refused.Add(1)
	case r.Pending:
		outcome = "pending"
		w.stats.pending.Add(1)
	default:
		w.stats.verified.Add(1)
	}
	kind := kindOf(r.Ref.URL)
	if strings.HasPrefix(r.Ref.URL, "s3://others/") {
		kind = "elsewhere"
	}
	if !strings.Contains(map[string]string{
		objectThere: "accepted pending", objectOther: "refused pending", objectAbsent: "pending", objectComes: "accepted pending",
		objectChanges: "accepted refused pending", objectSilent: "pending", "elsewhere": "refused",
	}[kind], outcome) {
		return fmt.Errorf("%s is %s (%s), with an object that is %s", r.Ref.URL, outcome, r.Rejected, kind)
	}
	w.objects.mu.Lock()
	defer w.objects.mu.Unlock()
	if outcome == "accepted" && !w.objects.pins[r.Ref.URL] {
		return fmt.Errorf("%s was accepted and its object never pinned", r.Ref.URL)
	}
	return nil
}
