package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// editing is what the plan of an edit can look at.
type editing struct {
	app    *app
	ctx    context.Context //nolint:containedctx // lives as long as the call it is for
	topic  *inspect.Topic
	layout topic.Layout
}

// resolve finds the live segment that an argument means. Of one that is not live
// any more it tells what replaced it.
func (e editing) resolve(ref string) (topic.Live, error) {
	s, err := inspect.Resolve(e.layout, ref)
	var unknown *inspect.RefError
	if !errors.As(err, &unknown) {
		return s, err
	}
	l, err := e.topic.Lineage(e.ctx)
	if err != nil {
		return s, err
	}
	return s, inspect.WhyNot(unknown, l)
}

// edited is what an edit did, or would do.
type edited struct {
	Topic    string       `json:"topic"`
	Kind     string       `json:"kind"`
	Reason   string       `json:"reason"`
	Epoch    uint64       `json:"epoch"` // from which it is in force
	DryRun   bool         `json:"dry_run,omitempty"`
	Parents  []topic.Live `json:"parents"`
	Children []topic.Live `json:"children"`
	Live     []topic.Live `json:"live"` // all segments afterwards
}

// change makes one edit and says what it did.
func (a *app) change(ctx context.Context, name string, o editOptions, plan func(editing) (topic.Edit, error)) error {
	if err := o.check(); err != nil {
		return err
	}
	return a.withTopic(ctx, name, func(t *inspect.Topic) error {
		done, err := a.editOnce(ctx, t, o, plan)
		if err != nil {
			return err
		}
		return a.showEdit(done)
	})
}

func (a *app) withTopic(ctx context.Context, name string, do func(*inspect.Topic) error) error {
	store, done, err := a.filer(ctx)
	if err != nil {
		return err
	}
	defer done()
	a.quiet(store)
	t, err := inspect.Open(ctx, store, name)
	if err != nil {
		return err
	}
	return do(t)
}

const defaultLogLevel = "info"

// quiet has a store log warnings only, for a command that says itself what it does.
func (a *app) quiet(store *segment.Store) {
	if a.cfg.LogLevel == defaultLogLevel {
		store.Logger = slog.New(warnings{a.log.Handler()})
	}
}

// warnings leaves out of a log what the command says itself.
type warnings struct{ slog.Handler }

// Enabled tells whether a level is written.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// editOnce makes an edit, or works out what it would do.
func (a *app) editOnce(ctx context.Context, t *inspect.Topic, o editOptions, plan func(editing) (topic.Edit, error)) (edited, error) {
	var before topic.Layout
	planned := func(l topic.Layout) (topic.Edit, error) {
		before = l
		e, err := plan(editing{a, ctx, t, l})
		e.Reason = o.reason
		return e, err
	}
	var after topic.Layout
	var err error
	if o.dryRun {
		after, err = rehearse(ctx, t, planned)
	} else {
		after, err = t.Edit(ctx, time.Now(), planned)
	}
	if is[*topic.EditError](err) || is[*inspect.RefError](err) {
		return edited{}, &functions.UsageError{Err: err}
	}
	if err != nil {
		return edited{}, err
	}
	return outcome(t.Name, before, after, o.dryRun), nil
}

// rehearse is the layout after an edit that is not made.
func rehearse(ctx context.Context, t *inspect.Topic, plan func(topic.Layout) (topic.Edit, error)) (topic.Layout, error) {
	l, err := t.Layout(ctx)
	if err != nil {
		return l, err
	}
	if l.Pending {
		l = l.Complete() // the edit would finish this one first
	}
	e, err := plan(l)
	if err != nil {
		return l, err
	}
	intent, err := l.Intent(e, time.Now(), func() string { return "new" })
	if err != nil {
		return l, err
	}
	return intent.Complete(), nil
}

func outcome(name string, before, after topic.Layout, dryRun bool) edited {
	e := edited{
		Topic: name, Kind: after.Edit.Kind, Reason: after.Edit.Reason, Epoch: after.Epoch, DryRun: dryRun,
		Parents: []topic.Live{}, Children: after.Edit.Children, Live: after.Live,
	}
	for _, s := range before.Live {
		if slices.Contains(after.Edit.Parents, s.ID) {
			e.Parents = append(e.Parents, s)
		}
	}
	return e
}

func (a *app) showEdit(e edited) error {
	if a.cfg.JSON {
		return a.json(e)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(what string, s topic.Live) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f%%\n", what, s.ID, s.Range, 100*float64(s.Size())/topic.Slots)
	}
	if e.DryRun {
		fmt.Fprintf(w, "%s of topic %s would give epoch %d:\n", e.Kind, e.Topic, e.Epoch)
		for _, s := range e.Live {
			what := "  stays"
			if slices.Contains(e.Children, s) {
				what = "  new"
			}
			row(what, s)
		}
		return w.Flush()
	}
	fmt.Fprintf(w, "%s of topic %s done: epoch %d, %d live segments\n", e.Kind, e.Topic, e.Epoch, len(e.Live))
	for _, s := range e.Parents {
		row("  sealed", s)
	}
	for _, s := range e.Children {
		row("  new", s)
	}
	return w.Flush()
}

// rollAll rolls what is live now.
func (a *app) rollAll(ctx context.Context, name string, o editOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	return a.withTopic(ctx, name, func(t *inspect.Topic) error {
		l, err := t.Layout(ctx)
		if err != nil {
			return err
		}
		if l.Pending {
			l = l.Complete() // the first roll finishes this edit first
		}
		if o.dryRun {
			return a.showRolls(t.Name, l, o)
		}
		for i, s := range l.Live {
			done, err := a.editOnce(ctx, t, o, func(e editing) (topic.Edit, error) { return e.layout.Roll(s.ID) })
			switch {
			case errors.Is(err, topic.ErrNotLive):
				a.note("%s is not live any more: left out", s.ID)
				continue
			case err != nil:
				return fmt.Errorf("%d of %d segments were rolled before: %w", i, len(l.Live), err)
			}
			if err := a.showEdit(done); err != nil {
				return err
			}
		}
		return nil
	})
}

// showRolls tells what rolling all segments of a layout would do.
func (a *app) showRolls(name string, l topic.Layout, o editOptions) error {
	last := l.Epoch + 2*uint64(len(l.Live))
	if a.cfg.JSON {
		return a.json(edited{
			Topic: name, Kind: topic.EditRoll, Reason: o.reason, Epoch: last, DryRun: true,
			Parents: l.Live, Children: []topic.Live{}, Live: []topic.Live{},
		})
	}
	return a.printf("would roll %d segments of topic %s, from epoch %d to %d\n", len(l.Live), name, l.Epoch, last)
}

func (a *app) editFinish() *cobra.Command {
	return &cobra.Command{
		Use:   "finish TOPIC",
		Short: "Finish the edit that is under way",
		Long: `Finishes an edit that somebody began and did not end, whoever it was. Workers that
have records for the topic do so by themselves; this is for topics without any.
Where no edit is under way it says so, and exits 0.`,
		Example: "  spillway edit finish orders",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.withTopic(ctx, args[0], func(t *inspect.Topic) error {
				before, err := t.Layout(ctx)
				if err != nil {
					return err
				}
				after, err := t.Finish(ctx)
				switch {
				case err != nil:
					return err
				case before.Pending:
					return a.showEdit(outcome(t.Name, before, after, false))
				case a.cfg.JSON:
					return a.json(edited{
						Topic: t.Name, Epoch: after.Epoch, Parents: []topic.Live{}, Children: []topic.Live{}, Live: after.Live,
					})
				}
				return a.printf("no edit of topic %s is under way: epoch %d, %d live segments\n", t.Name, after.Epoch, len(after.Live))
			})
		},
	}
}
