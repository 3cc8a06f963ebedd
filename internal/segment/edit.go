package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/topic"
)

// editParallel is how many parents are sealed, and children made, at a time.
const editParallel = 16

// Edit changes the layout: it finishes an edit that is under way, asks plan what
// to do with the layout that is then in force, appends that as an intent, and
// finishes it. If somebody else's edit comes first, plan is asked again with the
// new layout (rule 25). It returns the layout after the edit.
//
// An error of plan (an *topic.EditError, when the layout has moved on) is
// returned as it is, and nothing has been changed. After any other error the
// edit may have begun; whoever comes next finishes it, and so does calling Edit
// or Finish again. Safe to call concurrently, in any number of processes.
func (t *Topic) Edit(ctx context.Context, now time.Time, plan func(topic.Layout) (topic.Edit, error)) (topic.Layout, error) {
	for {
		l, err := t.Finish(ctx)
		if err != nil {
			return topic.Layout{}, err
		}
		e, err := plan(l)
		if err == nil && t.Name == topic.Unrouted && e.Kind != topic.EditRoll {
			// New topics take its positions as their floors, for all keys (ADR 0006).
			err = &topic.EditError{Kind: e.Kind, Reason: "the topic " + topic.Unrouted + " always has one segment; it can be rolled"}
		}
		if err != nil {
			return l, err
		}
		intent, err := l.Intent(e, later(now, l.At), func() string { return filer.Token(8) })
		if err != nil {
			return l, err
		}
		tail, err := t.layoutTail(ctx)
		if err != nil {
			return l, err
		}
		if tail.N != l.Epoch {
			continue
		}
		entry, err := t.appendLayout(ctx, tail, intent)
		if lostOrVoid(err) {
			continue
		}
		if err != nil {
			return l, fmt.Errorf("%s of topic %q: %w", e.Kind, t.Name, err)
		}
		t.store.Logger.Info("edit begun", "topic", t.Name, "kind", e.Kind, "epoch", intent.Epoch,
			"parents", e.Parents, "children", intent.Edit.Children, "reason", e.Reason)
		if l, err = t.finish(ctx, entry, intent); !errors.Is(err, commitlog.ErrVoid) {
			return l, err
		}
		return t.Finish(ctx)
	}
}

// Finish finishes the edit that is under way, if there is one, whoever began it
// (rule 26), and returns the layout in force. Safe to call concurrently.
func (t *Topic) Finish(ctx context.Context) (topic.Layout, error) {
	for {
		entry, l, err := t.lastLayout(ctx)
		if err != nil {
			return topic.Layout{}, err
		}
		if !l.Pending {
			return l, nil
		}
		if l, err = t.finish(ctx, entry, l); !errors.Is(err, commitlog.ErrVoid) {
			return l, err
		}
	}
}

// finish does what an intent says: seals the parents, makes the children, and
// appends the completion as exactly the next entry, where "exists" means done
// (rule 25). Only then do the children take records (rule 27).
func (t *Topic) finish(ctx context.Context, entry commitlog.Entry, intent topic.Layout) (topic.Layout, error) {
	fail := func(err error) (topic.Layout, error) {
		return topic.Layout{}, fmt.Errorf("finish the %s of epoch %d of topic %q: %w", intent.Edit.Kind, intent.Epoch, t.Name, err)
	}
	seals, err := t.sealParents(ctx, intent)
	if err != nil {
		return fail(err)
	}
	done := intent.Complete()
	if err := t.createChildren(ctx, intent, seals); err != nil {
		return fail(err)
	}
	if t.store.Mutant.Has(mutant.CompletionAtNextFree) {
		if entry, err = t.layoutTail(ctx); err != nil {
			return fail(err)
		}
		done.Epoch = entry.Next()
	}
	_, err = t.appendLayout(ctx, entry, done)
	var lost *commitlog.LostError
	if errors.As(err, &lost) {
		if err := t.sameLayout(ctx, lost.Winner, done); err != nil {
			return fail(err)
		}
		return done, nil
	}
	if err != nil {
		return fail(err)
	}
	t.store.Logger.Info("edit done", "topic", t.Name, "kind", done.Edit.Kind, "epoch", done.Epoch, "live", len(done.Live))
	return done, nil
}

// sameLayout checks that the entry after an intent is its completion.
func (t *Topic) sameLayout(ctx context.Context, won commitlog.Entry, done topic.Layout) error {
	l, err := t.readLayout(ctx, won)
	if err == nil && (l.Pending || !slices.Equal(l.Live, done.Live)) {
		err = fmt.Errorf("%s is not its completion: %w", won.Path, filer.ErrCorrupt)
	}
	return err
}

// sealParents returns the seals in the order of the edit's parents.
func (t *Topic) sealParents(ctx context.Context, intent topic.Layout) ([]Chunk, error) {
	seals := make([]Chunk, len(intent.Edit.Parents))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(editParallel)
	for i, id := range intent.Edit.Parents {
		g.Go(func() error {
			parent, err := t.Segment(ctx, id)
			if err == nil {
				seals[i], err = parent.Seal(ctx, intent.At)
			}
			return err
		})
	}
	return seals, g.Wait()
}

// createChildren makes the segments of an edit. Their floors come from the seals,
// and so does their time of creation: it is no earlier than the last record of
// any parent (rule 39).
func (t *Topic) createChildren(ctx context.Context, intent topic.Layout, seals []Chunk) error {
	created := intent.At
	for _, seal := range seals {
		created = later(created, seal.Last)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(editParallel)
	for _, child := range intent.Edit.Children {
		g.Go(func() error {
			return t.createSegment(ctx, topic.Segment{
				ID: child.ID, Range: child.Range, Epoch: intent.Epoch + 1, Parents: intent.Edit.Parents,
				Floors: inherit(child.Range, seals, t.store.Mutant), Created: created,
			})
		})
	}
	return g.Wait()
}

// lostOrVoid tells an append that somebody else's made void: begin again from
// what is there now.
func lostOrVoid(err error) bool {
	var lost *commitlog.LostError
	return errors.As(err, &lost) || errors.Is(err, commitlog.ErrVoid)
}
