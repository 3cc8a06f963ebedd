package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/planner"
)

// defaultDeclared is the id of a declaration that is given none.
const defaultDeclared = "manual"

// declaration is the load that is to be declared.
func (o planOptions) declaration(now time.Time) (d segment.DeclaredLoad, err error) {
	from := now.UTC().Truncate(time.Second)
	d = segment.DeclaredLoad{ID: o.id, Records: o.expectRecords, From: from, Until: from.Add(o.span), Reason: "spillway plan --expect"}
	if o.expect != "" {
		rate, err := parseRate(o.expect)
		if err != nil {
			return d, fmt.Errorf("--expect %.60q: %w", o.expect, err)
		}
		d.Bytes = uint64(min(rate, math.MaxInt64))
	}
	if o.span < time.Second {
		return d, errors.New("--expect needs --for, the time that the load will last: 1s or more")
	}
	return d, d.Validate()
}

// declare stores a load, and says so to people.
func (a *app) declare(ctx context.Context, store *segment.Store, name string, d segment.DeclaredLoad) error {
	t, err := store.Topic(ctx, name)
	if err != nil {
		return err
	}
	if err := t.Declare(ctx, d); err != nil {
		if errors.Is(err, segment.ErrTooManyDeclared) {
			return &functions.UsageError{Err: err}
		}
		return err
	}
	a.note("declared: %s", declaredText(d))
	return nil
}

// withdraw takes a declaration back.
func (a *app) withdraw(ctx context.Context, store *segment.Store, name, id string) error {
	t, err := store.Topic(ctx, name)
	if err != nil {
		return err
	}
	loads, err := t.Declared(ctx)
	if err != nil {
		return err
	}
	names := make([]string, len(loads))
	for i, d := range loads {
		names[i] = d.ID
	}
	err = t.Withdraw(ctx, id)
	switch {
	case errors.Is(err, filer.ErrNotFound) && len(names) == 0:
		return &functions.UsageError{Err: fmt.Errorf("topic %s has no declared loads", name)}
	case errors.Is(err, filer.ErrNotFound):
		return &functions.UsageError{Err: fmt.Errorf("topic %s has no declared load %s; it has %s", name, id, strings.Join(names, ", "))}
	case err == nil:
		a.note("withdrawn: %s", id)
	}
	return err
}

// declaredText is a declared load in one line.
func declaredText(d segment.DeclaredLoad) string {
	return fmt.Sprintf("%s, %s until %s", d.ID, rateText(planner.Rate{Records: float64(d.Records), Bytes: float64(d.Bytes)}), d.Until.UTC().Format(time.RFC3339))
}

// rateText says the parts of a rate that there are.
func rateText(r planner.Rate) string {
	var parts []string
	if r.Bytes > 0 {
		parts = append(parts, humanize.Bytes(uint64(r.Bytes))+"/s")
	}
	if r.Records > 0 {
		parts = append(parts, humanize.Comma(int64(math.Round(min(r.Records, 1e18))))+" records/s")
	}
	return strings.Join(parts, " and ")
}
