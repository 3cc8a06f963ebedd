package refcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// Done is what became of a finding.
type Done string

// All outcomes.
const (
	Pinned  Done = "pinned"  // the topic has a pin on it now
	Adopted Done = "adopted" // there is a record of it now
	Deleted Done = "deleted"
	Kept    Done = "kept" // nothing was changed, for the Reason
)

// Deed is what was done about a finding.
type Deed struct {
	Done   Done `json:"done"`
	DryRun bool `json:"dry_run,omitempty"` // it would have been
	Finding
}

// Call is what adopting and dropping have in common.
type Call struct {
	// URLs, if any, are what is dealt with, and nothing else.
	URLs []string
	// DryRun: only say what would be done.
	DryRun bool
	// Settle returns when everything that was published to the topic before is in
	// its files.
	Settle func(context.Context) error
	// Tell is told of each deed. Its error ends the call.
	Tell func(Deed) error
}

// wants tells whether a finding is dealt with.
func (c *Call) wants(f Finding) bool {
	return len(c.URLs) == 0 || slices.Contains(c.URLs, f.URL)
}

// tell says what was done, or why not.
func (c *Call) tell(done Done, f Finding, why error) error {
	if why != nil {
		done, f.Reason, f.Err = Kept, why.Error(), why
	}
	return c.Tell(Deed{done, c.DryRun && done != Kept, f})
}

// notFound says of the URLs that were named and not dealt with why.
func (c *Call) notFound(seen map[string]bool, why string) error {
	for _, url := range c.URLs {
		if !seen[url] {
			seen[url] = true
			if err := c.tell(Kept, Finding{URL: url}, errors.New(why)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Adopter takes under a topic's care what is left alone.
type Adopter struct {
	*Checker
	Call
	// Unpinned: references whose objects have no pin get it. Orphans: uploads that
	// no record names get one.
	Unpinned, Orphans bool
	// Publish publishes the record of an upload. Whoever calls wait knows whether
	// the record is in a file.
	Publish func(ctx context.Context, f Finding) (wait func(context.Context) error, err error)
	// Pending is told of the references whose objects could not be looked at.
	Pending func(Finding)
}

const (
	// attrClaim marks an upload that somebody adopts: "<time> <random>".
	attrClaim = "Adopt"
	// claimed is for how long a claim holds: within that the record is published,
	// as far as the clocks of those who adopt agree.
	claimed = 10 * time.Minute
	// waiting is how many records may be on their way at a time.
	waiting = 256
)

// ErrClaimed says that somebody else adopts an upload, or did just now.
var ErrClaimed = errors.New("somebody else adopts it at this moment, or did within the last 10 minutes")

// Adopt does it. Each upload gets one record: what was adopted before has one, and
// of several that adopt at once one has the claim. That holds where claims are
// possible, on our own filer; elsewhere two at once may both publish.
//
// A call that dies leaves nothing that needs to be mended: the next one, after 10
// minutes, sees the record, or publishes it.
func (a *Adopter) Adopt(ctx context.Context) error {
	if a.Orphans {
		if err := a.Settle(ctx); err != nil {
			return err
		}
	}
	start := a.Now()
	a.thorough = true
	seen := map[string]bool{}
	var orphans []Finding
	a.Found = func(f Finding) error {
		switch {
		case !a.wants(f):
			return nil
		case f.Kind == Pending:
			seen[f.URL] = true
			a.Pending(f)
		case f.Kind == Unpinned && a.Unpinned:
			seen[f.URL] = true
			return a.pin(ctx, f)
		case f.Kind == Orphaned && a.Orphans:
			seen[f.URL] = true
			orphans = append(orphans, f)
		case a.Orphans && orphaned(f) != nil:
			seen[f.URL] = true
			return a.tell(Kept, f, orphaned(f))
		}
		return nil
	}
	r, err := a.check(ctx, a.Unpinned)
	if err == nil && a.Orphans {
		err = r.judged()
	}
	if err != nil {
		return err
	}
	// Those that were uploaded first come first.
	slices.SortStableFunc(orphans, func(a, b Finding) int { return a.Modified.Compare(b.Modified) })
	if err := a.publish(ctx, orphans, start); err != nil {
		return err
	}
	return a.notFound(seen, "it is no reference without a pin, and no upload that no record names and that is old enough")
}

func (a *Adopter) pin(ctx context.Context, f Finding) error {
	var err error
	if !a.DryRun {
		err = a.Pins.Pin(ctx, f.name, f.info, pin.Holder{Topic: a.Topic.Name, Incarnation: a.Topic.Incarnation})
		if err != nil && !definite(err) {
			return err
		}
	}
	return a.tell(Pinned, f, err)
}

// definite tells what is known of an object from a failure to find out.
func definite(err error) bool {
	return filer.Definite(err) || errors.Is(err, object.ErrNotFound) || errors.Is(err, object.ErrChanged) ||
		errors.Is(err, pin.ErrElsewhere) || errors.Is(err, pin.ErrTooMany)
}

// publish publishes the records of uploads in order, and tells of each when it is
// in a file.
func (a *Adopter) publish(ctx context.Context, orphans []Finding, start time.Time) error {
	var telling sync.Mutex
	tell := func(f Finding, err error) error {
		telling.Lock()
		defer telling.Unlock()
		return a.tell(Adopted, f, err)
	}
	g, all := errgroup.WithContext(ctx)
	g.SetLimit(waiting)
	var failed error
	for _, f := range orphans {
		wait, err := a.adopt(all, f, start)
		if wait != nil {
			g.Go(func() error { return tell(f, wait(all)) })
			continue
		}
		if failed = context.Cause(all); failed == nil {
			failed = tell(f, err)
		}
		if failed != nil {
			break
		}
	}
	return cmp.Or(g.Wait(), failed)
}

// adopt claims an upload and publishes its record. A nil wait: it was a dry run.
func (a *Adopter) adopt(ctx context.Context, f Finding, start time.Time) (wait func(context.Context) error, err error) {
	if !a.Topic.Allows(f.name.Bucket, f.name.Key) {
		return nil, &verdict.NotAllowedError{Topic: a.Topic.Name, Name: f.name}
	}
	if a.DryRun {
		return nil, nil
	}
	if err := a.claim(ctx, f, start); err != nil {
		return nil, err
	}
	return a.Publish(ctx, f)
}

// claim makes sure that nobody else publishes the record of an upload. A claim that
// was made long before this call began is void: the record that it was for was in a
// file by then, and this upload has none.
func (a *Adopter) claim(ctx context.Context, f Finding, start time.Time) error {
	if a.Filer == nil {
		return nil
	}
	o, err := a.find(ctx, f.name)
	switch {
	case errors.Is(err, filer.ErrNotFound), errors.Is(err, filer.ErrInvalid):
		return nil // it is not on our filer
	case err != nil:
		return err
	case claimedSince(o, start.Add(-claimed)):
		return ErrClaimed
	}
	err = filer.Amend(ctx, a.Filer, o, attrClaim, a.Now().UTC().Format(time.RFC3339)+" "+filer.NewID())
	if errors.Is(err, filer.ErrConflict) {
		return fmt.Errorf("%w: %w", ErrClaimed, err)
	}
	return err
}

// claimedSince tells whether an object has a claim of after a time.
func claimedSince(o filer.Object, since time.Time) bool {
	text, _, _ := strings.Cut(o.Attrs[attrClaim], " ")
	at, err := time.Parse(time.RFC3339, text)
	return err == nil && at.After(since)
}
