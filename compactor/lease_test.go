package compactor

import (
	"context"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

func (w *world) lease() cursor.File[Lease] {
	return cursor.At[Lease](w.store.Filer, path.Join(w.top.Dir(), "compactor.json"))
}

func sealedWorld(t tester) *world {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "...")
	w.roll(t, id)
	return w
}

func TestLease(t *testing.T) {
	w := sealedWorld(t)
	_, err := w.lease().Create(t.Context(), Lease{"other", noon.Add(20 * time.Second)})
	must(t, err)
	c := w.compactor()
	if r := w.compact(t, c); !r.Held || r.Compacted != 0 || !r.Next.Equal(noon.Add(20*time.Second)) {
		t.Errorf("it is held: %+v", r)
	}
	w.pass(20 * time.Second)
	if r := w.compact(t, c); r.Held || r.Compacted != 1 {
		t.Errorf("it is free: %+v", r)
	}
	l, _, err := w.lease().Load(t.Context())
	must(t, err)
	if l != (Lease{}) {
		t.Errorf("it was not given back: %+v", l)
	}
}

// A lease that nobody can have, or that cannot be read, stops nobody.
func TestBadLease(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, w *world){
		"of a clock that is wrong": func(t *testing.T, w *world) {
			_, err := w.lease().Create(t.Context(), Lease{"other", noon.Add(time.Hour)})
			must(t, err)
		},
		"damaged": func(t *testing.T, w *world) {
			_, err := filer.Create(t.Context(), w.store.Filer, w.lease().Path(), filer.File{ID: filer.NewID(), Content: []byte("x")})
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := sealedWorld(t)
			spoil(t, w)
			if r := w.compact(t, w.compactor()); r.Compacted != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Who has the lease renews it; who loses it leaves the topic to the other one.
func TestLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sealedWorld(t)
		stuck := make(chan struct{})
		var once sync.Once
		o := w.options(func(op memfs.Op) memfs.Fault {
			if op.Name == "Upload" || op.Name == "Create" && path.Ext(op.Path) == ".parquet" {
				once.Do(func() { close(stuck) })
				return memfs.Fault{Delay: time.Hour}
			}
			return memfs.Fault{}
		}, func(tabletest.Op) tabletest.Fault { return tabletest.Fault{} })
		o.Holder = "slow"
		done := make(chan Report)
		go func() {
			r, err := New(o).Topic(t.Context(), t.Context(), "orders")
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()
		<-stuck
		<-time.After(leaseFor / 3) // virtual time: it renews now
		synctest.Wait()
		l, v, err := w.lease().Load(t.Context())
		must(t, err)
		if l.Holder != "slow" {
			t.Errorf("%+v", l)
		}
		_, err = w.lease().Save(t.Context(), Lease{"other", noon.Add(leaseFor)}, v)
		must(t, err)
		r := <-done
		if r.Compacted != 0 || !r.Cut {
			t.Errorf("%+v", r)
		}
	})
}

func TestStop(t *testing.T) {
	w := newWorld(t, 3)
	for _, id := range w.live(t) {
		w.add(t, id, "..")
		w.roll(t, id)
	}
	stop, halt := context.WithCancel(t.Context())
	o := w.options(nil, nil)
	o.Progress = func(Progress) { halt() }
	r, err := New(o).Topic(t.Context(), stop, "orders")
	if err != nil || r.Compacted != 1 || !r.Cut {
		t.Errorf("%+v, %v", r, err)
	}
	w.finish(t)
}
