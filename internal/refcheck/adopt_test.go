package refcheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestAdopt: what has no pin gets it, what no record names gets one, and the second
// time there is nothing to do.
func TestAdopt(t *testing.T) { inWorld(t, testAdopt) }

func testAdopt(t *testing.T, w *world) {
	t.Helper()
	bare, fine := w.put("box/bare", "bare", 0), w.put("box/fine", "fine", 0)
	w.pin(fine)
	w.commit(to(bare, fine)...)
	w.upload("second", 3*time.Hour)
	w.upload("first", 5*time.Hour)
	w.upload("young", time.Minute)
	w.put("far/spillway/images/far", "far", 4*time.Hour)
	w.put("setting/spillway/images/not", "not", 9*time.Hour)

	var did []string
	a := w.adopter(&did)
	a.DryRun, a.Bucket = true, "setting"
	w.ok(a.Adopt(t.Context()))
	equal(t, "dry run", did, "would be pinned box/bare", "kept setting/spillway/images/not", "would be adopted box/spillway/images/first",
		"would be adopted far/spillway/images/far", "would be adopted box/spillway/images/second")
	did, a.DryRun, a.Bucket = nil, false, ""
	w.ok(a.Adopt(t.Context()))
	if len(did) != 4 || did[0] != "pinned box/bare" {
		t.Errorf("adopted: %q", did)
	}
	did = nil
	again := w.adopter(&did)
	again.Unpinned = false
	w.ok(again.Adopt(t.Context()))
	r, found := w.check(w.checker())
	equal(t, "again", did)
	equal(t, "left", found, "unpinned box/spillway/images/first@2", "unpinned box/spillway/images/second@4") // workers pin
	if r.References != 5 || r.Uploads.Named != 3 || r.Uploads.Young != 1 {
		t.Errorf("%+v", r)
	}
}

// TestAdoptByName: nothing but what is named.
func TestAdoptByName(t *testing.T) { inWorld(t, testAdoptByName) }

func testAdoptByName(t *testing.T, w *world) {
	t.Helper()
	bare, other := w.put("box/bare", "bare", 0), w.put("box/other", "other", 0)
	w.commit(to(bare, other)...)
	one := w.upload("one", 3*time.Hour)
	w.upload("two", 3*time.Hour)
	young := w.upload("young", 0)
	var did []string
	w.ok(w.adopter(&did, bare.URL, one.URL, young.URL).Adopt(t.Context()))
	equal(t, "by name", did, "pinned box/bare", "adopted box/spillway/images/one", "kept box/spillway/images/young")
	did = nil
	a := w.adopter(&did, other.URL)
	a.Unpinned = false
	w.ok(a.Adopt(t.Context()))
	equal(t, "of another kind", did, "kept box/other")
}

// TestAdoptNoOrphans: what a rejected record names, or somebody has pinned, is not
// adopted, and that is said.
func TestAdoptNoOrphans(t *testing.T) { inWorld(t, testAdoptNoOrphans) }

func testAdoptNoOrphans(t *testing.T, w *world) {
	t.Helper()
	refused := w.upload("refused", 3*time.Hour)
	w.pin(w.upload("held", 3*time.Hour))
	w.commit(entry{ref: &refused, rejected: "whatever"})
	var did []string
	w.ok(w.adopter(&did).Adopt(t.Context()))
	equal(t, "adopted", did, "kept box/spillway/images/held", "kept box/spillway/images/refused")
	did = nil
	a := w.adopter(&did)
	a.Orphans = false
	w.ok(a.Adopt(t.Context()))
	equal(t, "unpinned only", did)
	a.Tell = func(Deed) error { return errors.New("cannot tell") }
	a.Orphans = true
	if err := a.Adopt(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot tell") {
		t.Errorf("%v", err)
	}
	a.Settle = func(context.Context) error { return errors.New("behind") }
	if err := a.Adopt(t.Context()); err == nil || err.Error() != "behind" {
		t.Errorf("%v", err)
	}
}

// TestAdoptAtOnce: of several that adopt at once, one publishes.
func TestAdoptAtOnce(t *testing.T) { inWorld(t, testAdoptAtOnce) }

func testAdoptAtOnce(t *testing.T, w *world) {
	t.Helper()
	const n = 20
	for i := range n {
		w.upload(fmt.Sprint(i), 3*time.Hour)
	}
	var published atomic.Int64
	claims := map[string]int{}
	var g errgroup.Group
	dids := make([][]string, 4)
	for i := range dids {
		a := w.adopter(&dids[i])
		a.Publish = func(context.Context, Finding) (func(context.Context) error, error) {
			published.Add(1)
			return func(context.Context) error { return nil }, nil
		}
		g.Go(func() error { return a.Adopt(t.Context()) })
	}
	w.ok(g.Wait())
	for _, did := range dids {
		for _, d := range did {
			claims[d]++
		}
	}
	if published.Load() != n {
		t.Errorf("%d published", published.Load())
	}
	for i := range n {
		name := fmt.Sprint("box/spillway/images/", i)
		if claims["adopted "+name] != 1 || claims["kept "+name] != len(dids)-1 {
			t.Errorf("%s: %v", name, claims)
		}
	}
}

// TestAdoptAfterADeath: a claim whose call died is void after a while, and not
// before.
func TestAdoptAfterADeath(t *testing.T) { inWorld(t, testAdoptAfterADeath) }

func testAdoptAfterADeath(t *testing.T, w *world) {
	t.Helper()
	w.upload("k", 3*time.Hour)
	var did []string
	a := w.adopter(&did)
	a.Publish = func(context.Context, Finding) (func(context.Context) error, error) { return nil, errors.New("died") }
	w.ok(a.Adopt(t.Context()))
	for _, step := range []struct {
		wait time.Duration
		want string
	}{{0, "kept"}, {claimed - time.Minute, "kept"}, {2 * time.Minute, "adopted"}} {
		w.later(step.wait)
		did = nil
		w.ok(w.adopter(&did).Adopt(t.Context()))
		equal(t, step.wait.String(), did, step.want+" box/spillway/images/k")
	}
	// And what somebody adopts is not dropped.
	w = newWorld(t)
	w.upload("k", 0)
	w.later(25 * time.Hour)
	a = w.adopter(&did)
	a.Publish = func(context.Context, Finding) (func(context.Context) error, error) { return nil, errors.New("died") }
	w.ok(a.Adopt(t.Context()))
	did = nil
	d := w.dropper(&did)
	d.OlderThan = day
	w.ok(d.Drop(t.Context()))
	equal(t, "drop", did, "kept box/spillway/images/k")
}

// TestAdoptCrashes: killed at each call of the filer, before or after its effect, and
// called again later, adopting leaves one record of each upload.
func TestAdoptCrashes(t *testing.T) {
	for after := range 2 {
		for at := 1; ; at++ {
			crashed := false
			inWorld(t, func(t *testing.T, w *world) { crashed = adoptCrash(t, w, at, after == 1) })
			if !crashed {
				break
			}
		}
	}
}

func adoptCrash(t *testing.T, w *world, at int, after bool) (crashed bool) {
	t.Helper()
	for i := range 3 {
		w.upload(fmt.Sprint(i), 3*time.Hour)
	}
	ctx, kill := context.WithCancel(t.Context())
	var calls atomic.Int64
	own := w.fs.Client("adopt", func(memfs.Op) memfs.Fault {
		switch n := int(calls.Add(1)); {
		case n < at:
			return memfs.Fault{}
		case after && n == at:
			return memfs.Fault{After: errors.New("killed")}
		}
		kill()
		return memfs.Fault{Before: errors.New("killed")}
	})
	var did []string
	a := w.adopter(&did)
	a.Filer, a.Pins = own, &pin.Pins{Filer: own, Now: time.Now}
	publish := a.Publish
	a.Publish = func(ctx context.Context, f Finding) (func(context.Context) error, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return publish(ctx, f)
	}
	if err := a.Adopt(ctx); err == nil && ctx.Err() != nil && len(did) < 3 {
		t.Errorf("killed at call %d, and no error: %q", at, did)
	}
	crashed = int(calls.Load()) >= at
	kill()
	w.later(claimed + time.Minute)
	w.ok(w.adopter(&did).Adopt(t.Context()))
	named := map[string]int{}
	for item, err := range newWalk(w.topic, func(topic.SegmentID, segment.Chunk) bool { return true }).items(t.Context()) {
		w.ok(err)
		named[item.Ref.URL]++
	}
	for i := range 3 {
		if n := named[fmt.Sprint("s3://box/spillway/images/", i)]; n != 1 {
			t.Errorf("killed at call %d, after its effect: %v: upload %d has %d records", at, after, i, n)
		}
	}
	return crashed
}

// TestPinMoved: an object that becomes another one before its pin is there is not
// pinned, and that is said.
func TestPinMoved(t *testing.T) { inWorld(t, testPinMoved) }

func testPinMoved(t *testing.T, w *world) {
	t.Helper()
	f := w.put("box/k", "one", 0)
	w.commit(to(f)...)
	calls := 0
	own := w.fs.Client("adopt", func(op memfs.Op) memfs.Fault {
		if calls++; calls == 3 { // held, found, and now it is to be pinned
			w.put("box/k", "other", 0)
		}
		return memfs.Fault{}
	})
	var did []string
	a := w.adopter(&did)
	a.Filer, a.Pins = own, &pin.Pins{Filer: own, Now: time.Now}
	w.ok(a.Adopt(t.Context()))
	equal(t, "moved", did, "kept box/k")
}
