package filer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

const settlePath = "/buckets/settle/dir/file"

// settleFaults is everything that can happen to one call: nothing, a failure
// before it, a lost reply, an effect before and after the next try, no reply.
var settleFaults = []memfs.Fault{
	{},
	{Before: errors.New("connection refused")},
	{After: memfs.ErrLost},
	{Late: 10 * time.Millisecond},
	{Late: time.Hour},
	{Hold: time.Hour},
}

// sequences calls do with every sequence of n faults.
func sequences(n int, do func([]memfs.Fault)) {
	for i := range pow(len(settleFaults), n) {
		seq := make([]memfs.Fault, n)
		for j := range seq {
			seq[j], i = settleFaults[i%len(settleFaults)], i/len(settleFaults)
		}
		do(seq)
	}
}

func pow(base, n int) int {
	if n == 0 {
		return 1
	}
	return base * pow(base, n-1)
}

// settleCase is a filer with a file of somebody else, or none, that may turn
// read-only after a number of calls.
type settleCase struct {
	other    bool
	readOnly int // before which call; 0: never
	limit    time.Duration
}

// run does write on a filer whose first calls have these faults. It returns
// the error, and the ID at the path at once and after all late effects.
func (c settleCase) run(t *testing.T, seq []memfs.Fault, write func(context.Context, filer.Store) error) (err error, at, after string) { //nolint:revive,staticcheck // the error is the result, not a failure
	fs := memfs.New()
	setUp := fs.Client("set-up", nil)
	if c.other {
		if err := setUp.Create(t.Context(), settlePath, filer.File{ID: "other"}); err != nil {
			t.Fatal(err)
		}
	}
	calls := 0
	hook := func(memfs.Op) memfs.Fault {
		calls++
		if calls == c.readOnly {
			fs.SetReadOnly("/buckets/settle", true)
		}
		if calls <= len(seq) {
			return seq[calls-1]
		}
		return memfs.Fault{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), c.limit)
	defer cancel()
	err = write(ctx, fs.Client("c", hook))
	id := func() string {
		e, err := setUp.Lookup(t.Context(), settlePath)
		if err != nil && !errors.Is(err, filer.ErrNotFound) {
			t.Fatal(err)
		}
		return e.ID
	}
	at = id()
	fs.Settle()
	return err, at, id()
}

func TestCreateNeverReportsWrongly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []settleCase{
			{limit: 24 * time.Hour}, {other: true, limit: 24 * time.Hour}, {limit: 15 * time.Millisecond}, {limit: 15 * time.Second},
			{readOnly: 1, limit: time.Hour}, {readOnly: 2, limit: time.Hour}, {readOnly: 3, limit: time.Hour}, {readOnly: 4, limit: time.Hour},
		} {
			sequences(3, func(seq []memfs.Fault) { checkCreate(t, c, seq) })
		}
	})
}

func checkCreate(t *testing.T, c settleCase, seq []memfs.Fault) {
	var e filer.Entry
	err, at, after := c.run(t, seq, func(ctx context.Context, s filer.Store) (err error) {
		e, err = filer.Create(ctx, s, settlePath, filer.File{ID: "mine"})
		return err
	})
	ok := true
	switch {
	case err == nil:
		ok = e.ID == "mine" && at == "mine" && after == "mine"
	case errors.Is(err, filer.ErrExists):
		ok = e.ID == "other" && at == "other" && after == "other"
	case errors.Is(err, filer.ErrReadOnly):
		ok = c.readOnly > 0 && at == "" && after == ""
	case c.readOnly == 0:
		ok = errors.Is(err, context.DeadlineExceeded) && c.limit < time.Minute
	}
	if !ok {
		t.Errorf("%+v, faults %v: error %v, entry %q, found %q and then %q", c, seq, err, e.ID, at, after)
	}
}

func TestReplaceNeverReportsWrongly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, expect := range []string{"other", "stale"} {
			for _, c := range []settleCase{{limit: 24 * time.Hour}, {other: true, limit: 24 * time.Hour}, {other: true, limit: 15 * time.Second}} {
				sequences(3, func(seq []memfs.Fault) { checkReplace(t, c, expect, seq) })
			}
		}
	})
}

func checkReplace(t *testing.T, c settleCase, expect string, seq []memfs.Fault) {
	err, at, after := c.run(t, seq, func(ctx context.Context, s filer.Store) error {
		return filer.Replace(ctx, s, settlePath, expect, filer.File{ID: "mine"})
	})
	var ok bool
	switch {
	case err == nil:
		ok = expect == "other" && c.other && at == "mine" && after == "mine"
	case errors.Is(err, filer.ErrConflict):
		ok = c.other && expect == "stale" && after == "other"
	case errors.Is(err, filer.ErrNotFound):
		ok = !c.other && after == ""
	default:
		ok = errors.Is(err, context.DeadlineExceeded) && c.limit < time.Minute
	}
	if !ok {
		t.Errorf("%+v, expect %s, faults %v: error %v, found %q and then %q", c, expect, seq, err, at, after)
	}
}

// A write whose outcome is not known never says that somebody else was first: the file
// that its last try met may be its own.
func TestUnknownIsNoAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fs := memfs.New()
	tries := 0
	store := fs.Client("c", func(op memfs.Op) memfs.Fault {
		switch op.Name {
		case "Create", "Update":
			if tries++; tries == 1 {
				return memfs.Fault{After: errors.New("lost reply")}
			}
		case "Lookup":
			if tries == 2 {
				cancel()
			}
			return memfs.Fault{Before: errors.New("no answer")}
		}
		return memfs.Fault{}
	})
	defer cancel()
	_, err := filer.Create(ctx, store, "/buckets/bucket/f", filer.File{ID: filer.NewID()})
	if tries < 2 || err == nil || errors.Is(err, filer.ErrExists) {
		t.Errorf("create, %d tries: %v", tries, err)
	}
	old := filer.File{ID: filer.NewID()}
	if _, err := filer.Create(t.Context(), fs.Client("d", nil), "/buckets/bucket/g", old); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer func() { cancel() }()
	tries = 0
	err = filer.Replace(ctx, store, "/buckets/bucket/g", old.ID, filer.File{ID: filer.NewID()})
	if tries < 2 || err == nil || errors.Is(err, filer.ErrConflict) {
		t.Errorf("replace, %d tries: %v", tries, err)
	}
}
