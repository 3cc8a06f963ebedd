package filer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// lax is a filer with one fault: creates or updates that were refused are told
// that they won, or deletes have no condition.
type lax struct {
	filer.Store
	op string
}

func (s lax) Create(ctx context.Context, path string, f filer.File) error {
	err := s.Store.Create(ctx, path, f)
	if s.op == "create" && errors.Is(err, filer.ErrExists) {
		return nil
	}
	return err
}

func (s lax) Update(ctx context.Context, path, expect string, f filer.File) error {
	err := s.Store.Update(ctx, path, expect, f)
	if s.op == "update" && errors.Is(err, filer.ErrConflict) {
		return nil
	}
	return err
}

func (s lax) Delete(ctx context.Context, path, expect string) error {
	if s.op == "delete" {
		expect = ""
	}
	return s.Store.Delete(ctx, path, expect)
}

// upsert is a filer whose create replaces what is there.
type upsert struct{ filer.Store }

func (s upsert) Create(ctx context.Context, path string, f filer.File) error {
	if err := s.Delete(ctx, path, ""); err != nil {
		return err
	}
	if err := s.Store.Create(ctx, path, f); !errors.Is(err, filer.ErrExists) {
		return err
	}
	return nil
}

const checkDir = "/buckets/check"

func TestSelfCheckPasses(t *testing.T) {
	fs := memfs.New()
	if err := filer.SelfCheck(t.Context(), fs.Client("c", nil), checkDir); err != nil {
		t.Fatal(err)
	}
	if paths := fs.Paths(); len(paths) > 0 {
		t.Errorf("left %q", paths)
	}
}

func TestSelfCheckFindsRaces(t *testing.T) {
	for _, op := range []string{"create", "update", "delete"} {
		fs := memfs.New()
		wantRace(t, filer.SelfCheck(t.Context(), lax{fs.Client("c", nil), op}, checkDir), op)
		if paths := fs.Paths(); len(paths) > 0 {
			t.Errorf("%s: left %q", op, paths)
		}
	}
	wantRace(t, filer.SelfCheck(t.Context(), upsert{memfs.New().Client("c", nil)}, checkDir), "create")
}

func wantRace(t *testing.T, err error, op string) {
	t.Helper()
	var race *filer.RaceError
	if !errors.As(err, &race) {
		t.Fatalf("%s: error %v, want a RaceError", op, err)
	}
	if race.Op != op || !strings.HasPrefix(race.Path, checkDir+"/") || op != "delete" && len(race.Winners) < 2 {
		t.Errorf("%s: got %+v", op, race)
	}
	for _, id := range race.Winners {
		if !strings.Contains(err.Error(), id) {
			t.Errorf("%s: error %q does not name %s", op, err, id)
		}
	}
}

// TestSelfCheckUnknown shows that a filer that fails is not called unsafe.
func TestSelfCheckUnknown(t *testing.T) {
	down := errors.New("down")
	for _, name := range []string{"Create", "Update", "Lookup", "Delete"} {
		fs := memfs.New()
		c := fs.Client("c", func(op memfs.Op) memfs.Fault {
			if op.Name == name && !strings.HasSuffix(op.Path, "/0") {
				return memfs.Fault{Before: down}
			}
			return memfs.Fault{}
		})
		err := filer.SelfCheck(t.Context(), c, checkDir)
		if race := (*filer.RaceError)(nil); !errors.Is(err, down) || errors.As(err, &race) {
			t.Errorf("%s fails: error %v", name, err)
		}
		if paths := fs.Paths(); len(paths) > 0 {
			t.Errorf("%s fails: left %q", name, paths)
		}
	}
	stuck := memfs.New().Client("c", func(op memfs.Op) memfs.Fault {
		if op.Name == "DeleteTree" {
			return memfs.Fault{Before: down}
		}
		return memfs.Fault{}
	})
	if err := filer.SelfCheck(t.Context(), stuck, checkDir); !errors.Is(err, down) {
		t.Errorf("clean-up fails: error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := filer.SelfCheck(ctx, memfs.New().Client("c", nil), checkDir); !errors.Is(err, context.Canceled) {
		t.Errorf("context ended: error %v", err)
	}
}
