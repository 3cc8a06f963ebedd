package refcheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/record"
)

const day = 24 * time.Hour

func (w *world) upload(name string, age time.Duration) record.Ref {
	w.t.Helper()
	f := w.put("box/spillway/images/"+name, name, age)
	return f
}

func (w *world) there(name string) bool {
	_, err := w.filer.Look(w.t.Context(), filer.ObjectName{Bucket: "box", Key: "spillway/images/" + name})
	return err == nil
}

// TestDrop: what goes, and what stays.
func TestDrop(t *testing.T) { inWorld(t, testDrop) }

func testDrop(t *testing.T, w *world) {
	t.Helper()
	named, refused := w.upload("named", 0), w.upload("refused", 0)
	w.upload("orphan", 0)
	w.pin(w.upload("held", 0))
	w.put("far/spillway/images/far", "far", 0)
	w.put("versioned/spillway/images/v", "v", 0)
	w.commit(to(named)...)
	w.commit(entry{ref: &refused, rejected: "whatever"}) // in a chunk of its own, which refs check does not read
	w.later(25 * time.Hour)
	w.upload("young", 0)
	w.put("box/spillway/other/k", "x", 2*day)

	var did []string
	d := w.dropper(&did)
	d.OlderThan, d.DryRun = day, true
	w.ok(d.Drop(t.Context()))
	kept := []string{
		"kept box/spillway/images/held", "would be deleted box/spillway/images/orphan", "kept box/spillway/images/refused",
		"kept far/spillway/images/far", "kept versioned/spillway/images/v",
	}
	equal(t, "dry run", did, kept...)
	if !w.there("orphan") {
		t.Fatal("a dry run deleted it")
	}
	did, d.DryRun = nil, false
	w.ok(d.Drop(t.Context()))
	kept[1] = "deleted box/spillway/images/orphan"
	equal(t, "drop", did, kept...)
	for name, want := range map[string]bool{"named": true, "refused": true, "held": true, "young": true, "orphan": false} {
		if w.there(name) != want {
			t.Errorf("%s is there: %v", name, !want)
		}
	}
	delete(w.s3.held, "box/spillway/images/orphan")
	did, d.Force = nil, true
	w.ok(d.Drop(t.Context()))
	kept = []string{
		"kept box/spillway/images/held", "kept box/spillway/images/refused",
		"deleted far/spillway/images/far", "deleted versioned/spillway/images/v",
	}
	equal(t, "forced", did, kept...)
	equal(t, "by the endpoint", w.s3.deleted, "spillway/images/far", "spillway/images/v")
}

// TestDropByName: only what is named, and for what is not deleted, why.
func TestDropByName(t *testing.T) { inWorld(t, testDropByName) }

func testDropByName(t *testing.T, w *world) {
	t.Helper()
	named := w.upload("named", 0)
	w.commit(to(named)...)
	one := w.upload("one", 0)
	w.upload("two", 0)
	w.later(25 * time.Hour)
	young := w.upload("young", 0)
	var did []string
	d := w.dropper(&did, one.URL, named.URL, young.URL, one.URL)
	d.OlderThan = day
	w.ok(d.Drop(t.Context()))
	equal(t, "by name", did, "deleted box/spillway/images/one", "kept box/spillway/images/named", "kept box/spillway/images/young")
	if w.there("one") || !w.there("two") {
		t.Error("another one went")
	}
	var not *NotUploadError
	for _, url := range []string{"s3://box/k", "s3://box/spillway/imagesx/k", "s3://other/spillway/images/k", "s3://box/spillway/images/../k", "x"} {
		if err := w.dropper(&did, url).Drop(t.Context()); !errors.As(err, &not) {
			t.Errorf("%s: %v", url, err)
		}
	}
	d = w.dropper(&did)
	d.Settle = func(context.Context) error { return errors.New("behind") }
	if err := d.Drop(t.Context()); err == nil || err.Error() != "behind" || !w.there("two") {
		t.Errorf("%v", err)
	}
}

// TestDropOtherSpellings: a record names an upload by any name that the filer takes
// for it.
func TestDropOtherSpellings(t *testing.T) { inWorld(t, testDropOtherSpellings) }

func testDropOtherSpellings(t *testing.T, w *world) {
	t.Helper()
	keys := map[string]string{
		"twice": "spillway//images/twice", "leading": "/spillway/images/leading", "back": `spillway\images\back`, "end": "spillway/images/end//",
	}
	w.upload("refused", 0)
	for name, key := range keys {
		w.upload(name, 0)
		w.commit(entry{ref: &record.Ref{URL: "s3://box/" + key}, pending: true})
	}
	w.commit(entry{ref: &record.Ref{URL: `s3://box/spillway/images\refused`}, rejected: "whatever"})
	w.later(25 * time.Hour)
	var did []string
	d := w.dropper(&did)
	d.OlderThan = day
	w.ok(d.Drop(t.Context()))
	equal(t, "drop", did, "kept box/spillway/images/refused")
	for name := range keys {
		if !w.there(name) {
			t.Errorf("%s was deleted, and an accepted record names it", name)
		}
	}
}

// TestDropLoses: whatever is done to an upload between the look at it and its
// deletion, it stays.
func TestDropLoses(t *testing.T) {
	for name, change := range map[string]func(w *world, f record.Ref){
		"a worker pins it": func(w *world, f record.Ref) { w.pin(f) },
		"it is put again":  func(w *world, _ record.Ref) { w.upload("k", 0) },
		"it is claimed": func(w *world, _ record.Ref) {
			n := filer.ObjectName{Bucket: "box", Key: "spillway/images/k"}
			o, err := w.filer.Look(w.t.Context(), n)
			w.ok(err)
			w.ok(w.filer.Mark(w.t.Context(), o, attrClaim, time.Now().UTC().Format(time.RFC3339)+" x"))
		},
	} {
		for _, at := range []string{"Look 2", "Look 3", "Remove 1"} {
			t.Run(name+" at "+at, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					f := w.upload("k", 0)
					w.later(25 * time.Hour)
					calls := map[string]int{}
					own := w.fs.Client("drop", func(op memfs.Op) memfs.Fault {
						calls[op.Name]++
						if fmt.Sprint(op.Name, " ", calls[op.Name]) == at {
							change(w, f)
						}
						return memfs.Fault{}
					})
					var did []string
					d := w.dropper(&did)
					d.OlderThan, d.Filer, d.Remover = day, own, own
					d.Pins = &pin.Pins{Filer: own, Now: time.Now}
					w.ok(d.Drop(t.Context()))
					if strings.HasPrefix(strings.Join(did, ""), "deleted") || !w.there("k") {
						t.Errorf("%q", did)
					}
				})
			})
		}
	}
}

// TestDropAgainstPins: a worker that pins at the same time either has the object or
// does not find it.
func TestDropAgainstPins(t *testing.T) { inWorld(t, testDropAgainstPins) }

func testDropAgainstPins(t *testing.T, w *world) {
	t.Helper()
	const n = 50
	for i := range n {
		w.upload(fmt.Sprint(i), 0)
	}
	w.later(25 * time.Hour)
	var did []string
	d := w.dropper(&did)
	d.OlderThan = day
	var g errgroup.Group
	pinned := make([]bool, n)
	for i := range n {
		g.Go(func() error {
			name := fmt.Sprint("box/spillway/images/", i)
			w.s3.mu.Lock()
			info := w.s3.held[name]
			w.s3.mu.Unlock()
			err := w.pins().Pin(t.Context(), object.Name{Bucket: "box", Key: fmt.Sprint("spillway/images/", i)}, info, w.holder())
			pinned[i] = err == nil
			if errors.Is(err, object.ErrNotFound) {
				return nil
			}
			return err
		})
	}
	g.Go(func() error { return d.Drop(t.Context()) })
	w.ok(g.Wait())
	for i := range n {
		if w.there(fmt.Sprint(i)) != pinned[i] {
			t.Errorf("%d: pinned %v, there %v", i, pinned[i], !pinned[i])
		}
	}
}
