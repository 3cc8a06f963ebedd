package compactor

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// hooked is a real filer whose writes a hook decides about.
type hooked struct {
	filer.Store
	hook memfs.Hook
}

func (h hooked) Create(ctx context.Context, path string, f filer.File) error {
	return h.call(ctx, "Create", path, func() error { return h.Store.Create(ctx, path, f) })
}

func (h hooked) Update(ctx context.Context, path, expect string, f filer.File) error {
	return h.call(ctx, "Update", path, func() error { return h.Store.Update(ctx, path, expect, f) })
}

func (h hooked) Delete(ctx context.Context, path, expect string) error {
	return h.call(ctx, "Delete", path, func() error { return h.Store.Delete(ctx, path, expect) })
}

func (h hooked) call(ctx context.Context, name, path string, do func() error) error {
	if h.hook == nil {
		return do()
	}
	f := h.hook(memfs.Op{Name: name, Path: path})
	if f.Before != nil {
		return f.Before
	}
	if err := do(); f.After == nil {
		return err
	}
	return f.After
}

// realWorld is a topic on the real servers.
func realWorld(t *testing.T, name string, segments int) *world {
	t.Helper()
	info := devtest.Weed(t).Info
	w := emptyWorld(info.Bucket, name)
	store, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: info.Filer})
	must(t, err)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	catalog := realCatalog(t)
	w.files = func(hook memfs.Hook) filer.Store { return hooked{store, hook} }
	w.calls = func(hook tabletest.Hook) table.Catalog { return catalog } // crashes are the filer's
	w.create(t, segments)
	return w
}

// realCatalog is the real catalog, once its table bucket is there: weed makes it after
// its servers answer.
func realCatalog(t *testing.T) table.Catalog {
	t.Helper()
	info := devtest.Weed(t).Info
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := table.Connect(ctx, table.Settings{
			URL: info.Catalog.URL, Warehouse: info.Catalog.Warehouse, AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey,
		})
		var missing *table.ConfigError
		switch {
		case err == nil:
			t.Cleanup(func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
			return c
		case !errors.As(err, &missing) || ctx.Err() != nil:
			t.Fatal(err)
		}
		<-tick.C
	}
}

// On the real servers: a crash at each main step, and a run that finishes it.
func TestWeed(t *testing.T) {
	for name, step := range map[string]struct {
		at    func(op memfs.Op) bool
		after bool // the call has its effect
	}{
		"whole": {at: func(memfs.Op) bool { return false }},
		"after-the-data-file": {
			at: func(op memfs.Op) bool { return op.Name == "Create" && path.Ext(op.Path) == ".parquet" }, after: true,
		},
		"after-the-manifest": {
			at: func(op memfs.Op) bool { return op.Name == "Create" && path.Base(op.Path) == "manifest.json" }, after: true,
		},
		"after-the-commit": {
			at: func(op memfs.Op) bool { return op.Name == "Create" && path.Base(op.Path) == "table.json" },
		},
		"after-the-head": {
			at: func(op memfs.Op) bool {
				return op.Name == "Delete" && path.Ext(op.Path) == ".avro" && strings.Contains(op.Path, "/segments/")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := realWorld(t, "weed-"+name, 2)
			ids := w.live(t)
			w.add(t, ids[0], "..nbl")
			w.add(t, ids[0], "lmrex")
			w.add(t, ids[1], "....")
			w.add(t, w.roll(t, ids[0]), "..")
			w.roll(t, ids[1])
			ctx, kill := context.WithCancel(t.Context())
			var crashed atomic.Bool
			c := New(w.options(func(op memfs.Op) memfs.Fault {
				switch {
				case crashed.Load():
					return memfs.Fault{Before: errCrashed}
				case !step.at(op):
					return memfs.Fault{}
				}
				crashed.Store(true)
				kill()
				if step.after {
					return memfs.Fault{After: errCrashed}
				}
				return memfs.Fault{Before: errCrashed}
			}, nil))
			c.FileBytes = 60 << 10
			w.twice(ctx, c)
			if crashed.Load() == (name == "whole") {
				t.Errorf("crashed: %v", crashed.Load())
			}
			kill()
			w.finish(t)
		})
	}
}
