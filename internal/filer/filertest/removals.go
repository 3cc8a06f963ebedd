package filertest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
)

// RunRemovals tests how objects are deleted that were put there through a filer's
// gateway.
func RunRemovals(t *testing.T, objects filer.Remover, store filer.Store, gateway Gateway) {
	t.Helper()
	for _, part := range []struct {
		name string
		run  func(*objectEnv, filer.Remover)
	}{
		{"remove", removeOnly},
		{"remove what has changed", removeChanged},
		{"remove what has versions", removeVersions},
		{"removals race", removalsRace},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.run(&objectEnv{Objects: objects, env: newEnv(t, store), gate: gateway}, objects)
		})
	}
}

func removeOnly(e *objectEnv, r filer.Remover) {
	bucket := e.gate.MakeBucket(e.t, false)
	for i, size := range []int{0, 10, 300_000, 20 << 20} {
		n := filer.ObjectName{Bucket: bucket, Key: fmt.Sprintf("a/b c%%2B/%d", i)}
		_, err := e.gate.Put(e.ctx, bucket, n.Key, random(size), nil)
		e.ok(err)
		e.put(bucket, n.Key+"x", "stays")
		o := e.look(n)
		e.ok(filer.Remove(e.ctx, r, o))
		e.missing(n)
		if _, err := e.gate.Get(e.ctx, n); err == nil {
			e.t.Errorf("S3 still shows %s", n)
		}
		e.ok(filer.Remove(e.ctx, r, o)) // it is gone, as it should be
		e.agrees(filer.ObjectName{Bucket: bucket, Key: n.Key + "x"})
	}
	e.want(r.Remove(e.ctx, filer.Object{Name: filer.ObjectName{Bucket: bucket, Key: "k"}}), filer.ErrInvalid)
}

func removeChanged(e *objectEnv, r filer.Remover) {
	bucket := e.gate.MakeBucket(e.t, false)
	for name, change := range map[string]func(filer.Object){
		"same bytes":  func(filer.Object) { e.put(bucket, "same bytes", "data") },
		"other bytes": func(filer.Object) { e.put(bucket, "other bytes", "other") },
		"marked":      func(o filer.Object) { e.ok(e.Mark(e.ctx, o, "Pin-X", "a")) },
	} {
		n := filer.ObjectName{Bucket: bucket, Key: name}
		e.put(bucket, name, "data")
		o := e.look(n)
		change(o)
		e.want(r.Remove(e.ctx, o), filer.ErrConflict)
		e.want(filer.Remove(e.ctx, r, o), filer.ErrConflict)
		e.agrees(n)
	}
	n := filer.ObjectName{Bucket: bucket, Key: "gone"}
	e.put(bucket, n.Key, "data")
	o := e.look(n)
	e.ok(e.gate.Delete(e.ctx, n))
	e.want(r.Remove(e.ctx, o), filer.ErrConflict)
	e.ok(filer.Remove(e.ctx, r, o))
	e.put(bucket, n.Key, "data")
	e.want(filer.Remove(e.ctx, r, o), filer.ErrConflict)
	e.agrees(n)
}

func removeVersions(e *objectEnv, r filer.Remover) {
	bucket := e.gate.MakeBucket(e.t, true)
	n := filer.ObjectName{Bucket: bucket, Key: "a/k"}
	e.put(bucket, n.Key, "1")
	old := e.look(n)
	e.want(filer.Remove(e.ctx, r, old), filer.ErrInvalid)
	e.put(bucket, n.Key, "2")
	e.want(filer.Remove(e.ctx, r, e.look(n)), filer.ErrInvalid)
	e.agrees(n)
	e.agrees(old.Name)
}

// removalsRace: of many that mark an object and many that remove it, those who are
// first decide: either it is marked and stays, or it is gone and has no mark.
func removalsRace(e *objectEnv, r filer.Remover) {
	bucket := e.gate.MakeBucket(e.t, false)
	for round := range 20 {
		n := filer.ObjectName{Bucket: bucket, Key: fmt.Sprintf("k%d", round)}
		e.put(bucket, n.Key, "data")
		o := e.look(n)
		var marked, removed atomic.Int64
		var g errgroup.Group
		for i := range 8 {
			g.Go(func() error {
				var err error
				if i%2 == 0 {
					if err = e.Mark(e.ctx, o, "Pin-X", fmt.Sprint(i)); err == nil {
						marked.Add(1)
					}
				} else if err = r.Remove(e.ctx, o); err == nil {
					removed.Add(1)
				}
				if errors.Is(err, filer.ErrConflict) {
					return nil
				}
				return err
			})
		}
		e.ok(g.Wait())
		_, err := e.Look(e.ctx, n)
		if gone := errors.Is(err, filer.ErrNotFound); marked.Load()+removed.Load() != 1 || gone != (removed.Load() == 1) {
			e.t.Errorf("%d marked, %d removed, then: %v", marked.Load(), removed.Load(), err)
		}
	}
}
