package segment

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// manifestOf makes a sealed segment, and the manifest that it would get.
func manifestOf(t *testing.T) (*family, *Segment, Manifest) {
	t.Helper()
	f := newFamily(t, 2, 3, 3)
	m, err := packer{perFile: 2}.pack(t.Context(), f.segs[0])
	if err != nil {
		t.Fatal(err)
	}
	return f, f.segs[0], m
}

// TestCreateManifest: the first one counts; what does not agree with the log is
// refused.
func TestCreateManifest(t *testing.T) {
	f, seg, m := manifestOf(t)
	for want, spoil := range map[string]func(*Manifest){
		"which is none": func(m *Manifest) { m.Seal++ },
		"another one":   func(m *Manifest) { m.Seal-- },
		"leaves": func(m *Manifest) {
			first := m.Files[0]
			m.Base, m.Files, m.Rows, m.Records = first.Last+1, m.Files[1:], m.Rows-first.Rows, m.Records-first.Records
		},
	} {
		bad := m
		spoil(&bad)
		if _, err := seg.CreateManifest(t.Context(), bad); !errors.Is(err, filer.ErrCorrupt) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	if slices.Contains(f.fs.Paths(), seg.manifestPath()) {
		t.Fatal("something was written")
	}
	won, err := seg.CreateManifest(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	other, err := packer{perFile: 100}.pack(t.Context(), seg)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.fresh(seg).CreateManifest(t.Context(), other); err != nil || !cmp.Equal(got, won) {
		t.Errorf("second: error %v, %s", err, cmp.Diff(won, got))
	}
	trimAll(t, seg)
	if got, err := f.fresh(seg).CreateManifest(t.Context(), other); err != nil || !cmp.Equal(got, won) {
		t.Errorf("after trimming: error %v, %s", err, cmp.Diff(won, got))
	}
	clean(t, f.fs)
}

// TestCreateManifestCrashes: after a crash at any call, creating again gives the one
// in force, with two at it too.
func TestCreateManifestCrashes(t *testing.T) {
	for n := 0; ; n++ {
		f, seg, m := manifestOf(t)
		ctx, store, calls := crashing(t.Context(), f.fs, n)
		first, err := createThrough(ctx, store, seg, m)
		other, err2 := packer{perFile: 100}.pack(t.Context(), seg)
		got, err3 := f.fresh(seg).CreateManifest(t.Context(), other)
		if err2 != nil || err3 != nil {
			t.Fatal(err2, err3)
		}
		if err == nil && !cmp.Equal(first, got) {
			t.Errorf("crash after %d calls: %s", n, cmp.Diff(first, got))
		}
		if again, err := seg.Manifest(t.Context()); err != nil || !cmp.Equal(again, got) {
			t.Errorf("crash after %d calls: error %v", n, err)
		}
		if *calls <= n {
			if err != nil {
				t.Errorf("no crash: error %v", err)
			}
			return
		}
	}
}

// createThrough creates a manifest by a store's own way into the filer.
func createThrough(ctx context.Context, store *Store, s *Segment, m Manifest) (Manifest, error) {
	top, err := store.Topic(ctx, "orders")
	if err != nil {
		return Manifest{}, err
	}
	seg, err := top.Segment(ctx, s.ID)
	if err != nil {
		return Manifest{}, err
	}
	return seg.CreateManifest(ctx, m)
}

// TestManifestOfDeletedTopic: whoever comes late leaves nothing behind.
func TestManifestOfDeletedTopic(t *testing.T) {
	f, seg, m := manifestOf(t)
	store := testStore(f.fs, func(op memfs.Op) memfs.Fault {
		if op.Name == "Create" && op.Path == seg.manifestPath() { // deleted just before
			if err := testStore(f.fs, nil).DeleteTopic(t.Context(), "orders", noon); err != nil {
				t.Error(err)
			}
		}
		return memfs.Fault{}
	})
	if _, err := createThrough(t.Context(), store, seg, m); !errors.Is(err, commitlog.ErrNoLog) {
		t.Errorf("error %v", err)
	}
	for _, path := range f.fs.Paths() {
		if strings.HasPrefix(path, f.topic.Dir()) {
			t.Errorf("%s is left", path)
		}
	}
}
