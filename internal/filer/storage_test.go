package filer_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

func TestCopies(t *testing.T) {
	for s, want := range map[string]int{"": 0, "000": 1, "001": 2, "010": 2, "112": 5, "200": 3} {
		how := filer.Storage{Replication: s}
		if got := how.Copies(); got != want || how.Check() != nil {
			t.Errorf("%q: %d copies, want %d; error %v", s, got, want, how.Check())
		}
	}
}

func TestTryStorage(t *testing.T) {
	fs := memfs.New()
	fs.SetServers(2)
	c := fs.Client("c", nil)
	const path = "/buckets/try/f"
	if err := filer.TryStorage(t.Context(), c, path, filer.Storage{Replication: "001", Fsync: true}); err != nil {
		t.Error(err)
	}
	var refused *filer.StorageError
	fs.SetReadOnly("/buckets/try", true)
	err := filer.TryStorage(t.Context(), c, path, filer.Storage{Replication: "001"})
	if !errors.As(err, &refused) || !errors.Is(err, filer.ErrReadOnly) || !strings.Contains(err.Error(), path) {
		t.Errorf("read-only: error %v", err)
	}
	if err := filer.TryStorage(t.Context(), c, path, filer.Storage{Replication: "x"}); !errors.As(err, &refused) || !errors.Is(err, filer.ErrInvalid) {
		t.Errorf("nonsense: error %v", err)
	}
	if n := fs.Blobs(); n > 0 {
		t.Errorf("%d blobs were left", n)
	}
}

// TestTooFewServers: a cluster that cannot hold the copies is told from one that
// is slow only by waiting.
func TestTooFewServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New()
		fs.SetServers(2)
		var refused *filer.StorageError
		err := filer.TryStorage(t.Context(), fs.Client("c", nil), "/buckets/try/f", filer.Storage{Replication: "011"})
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "not enough servers") {
			t.Errorf("error %v", err)
		}
	})
}

func TestUploadPartsAs(t *testing.T) {
	fs := memfs.New()
	how := filer.Storage{Replication: "001", Fsync: true}
	blobs, err := filer.UploadPartsAs(t.Context(), fs.Client("c", nil), "/buckets/try/f", make([]byte, 2*filer.PartSize), how)
	if err != nil || len(blobs) != 2 {
		t.Fatal(blobs, err)
	}
	for _, b := range blobs {
		if got, err := fs.StorageOf(b.ID); err != nil || got != how {
			t.Errorf("blob %s was stored with %+v, error %v", b.ID, got, err)
		}
	}
}

func TestCheckExpiry(t *testing.T) {
	fs := memfs.New()
	c := fs.Client("c", nil)
	rule := filer.Expiry{Rule: "rule x", What: "ttl 3d"}
	fs.SetExpiry("/buckets/box/top", rule)
	var found *filer.ExpiryError
	if err := filer.CheckExpiry(t.Context(), c, "/buckets/box/checkpoints", "/buckets/box/topics/a"); !errors.As(err, &found) ||
		found.Dir != "/buckets/box/topics/a" || len(found.Rules) != 1 || found.Rules[0] != rule || !strings.Contains(err.Error(), "rule x: ttl 3d") {
		t.Errorf("error %v", err)
	}
	fs.SetExpiry("/buckets/box/top", filer.Expiry{})
	if err := filer.CheckExpiry(t.Context(), c, "/buckets/box/topics/a"); err != nil {
		t.Error(err)
	}
}
