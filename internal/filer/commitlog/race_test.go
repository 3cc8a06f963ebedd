package commitlog_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

func TestMain(m *testing.M) { devtest.Main(m) }

const raceWriters = 8

// write appends n entries, whoever else does, and returns their IDs by number.
func write(ctx context.Context, l *commitlog.Log, n int) (map[uint64]string, error) {
	won := map[uint64]string{}
	tail, err := l.Tail(ctx, commitlog.Entry{})
	for len(won) < n && err == nil {
		var e commitlog.Entry
		e, err = l.Append(ctx, tail, filer.File{ID: filer.NewID()})
		var lost *commitlog.LostError
		switch {
		case err == nil:
			won[e.N], tail = e.ID, e
		case errors.As(err, &lost):
			tail, err = lost.Winner, nil
		}
	}
	return won, err
}

// race lets writers append to one log and checks that each number was won once,
// that nothing is lost, and that the entries are one chain.
func race(t *testing.T, dir string, each int, store func(i int) filer.Store) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	wins := make([]map[uint64]string, raceWriters)
	if err := commitlog.New(store(0), dir, ".x").Init(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range wins {
		l := commitlog.New(store(i), dir, ".x")
		g.Go(func() (err error) { wins[i], err = write(ctx, l, each); return err })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	winner := map[uint64]string{}
	for _, w := range wins {
		for n, id := range w {
			if winner[n] != "" {
				t.Errorf("number %d was won twice", n)
			}
			winner[n] = id
		}
	}
	prev, n := "", uint64(0)
	for e, err := range commitlog.New(store(0), dir, ".x").Entries(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.N != n || e.ID != winner[n] || e.Prev() != prev {
			t.Errorf("entry %d is %s after %s, want %d, %s after %s", e.N, e.ID, e.Prev(), n, winner[n], prev)
		}
		prev, n = e.ID, n+1
	}
	if want := uint64(raceWriters * each); n != want || len(winner) != int(want) {
		t.Errorf("%d entries and %d wins, want %d", n, len(winner), want)
	}
}

func TestRaceWithFaults(t *testing.T) {
	for seed := range 5 {
		synctest.Test(t, func(t *testing.T) {
			fs := memfs.New()
			clients := make([]filer.Store, raceWriters)
			for i := range clients {
				clients[i] = fs.Client(fmt.Sprint(i), func(op memfs.Op) memfs.Fault { return fault(seed, op) })
			}
			race(t, "/buckets/race/log", 25, func(i int) filer.Store { return clients[i] })
			fs.Settle()
			if p := fs.Problems(); len(p) > 0 {
				t.Error(p)
			}
		})
	}
}

// fault chooses a fault for every third call or so, by its name alone.
func fault(seed int, op memfs.Op) memfs.Fault {
	h := fnv.New64a()
	fmt.Fprint(h, seed, op)
	n := h.Sum64() >> 7
	f := memfs.Fault{Delay: time.Duration(n%5) * time.Millisecond}
	switch n / 8 % 12 {
	case 0:
		f.Before = errors.New("connection refused")
	case 1:
		f.After = memfs.ErrLost
	case 2:
		f.Late = time.Duration(n%90) * time.Millisecond
	case 3:
		f.Hold = time.Duration(n%20) * time.Second
	}
	return f
}

func TestRaceOnFiler(t *testing.T) {
	address := devtest.Weed(t).Info.Filer
	clients := make([]filer.Store, raceWriters)
	for i := range clients {
		c, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: address})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		clients[i] = c
	}
	race(t, "/buckets/race-"+filer.Token(8)+"/log", 25, func(i int) filer.Store { return clients[i] })
}
