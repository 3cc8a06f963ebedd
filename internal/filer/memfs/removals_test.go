package memfs_test

import (
	"context"
	"errors"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/filertest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

func TestRemovals(t *testing.T) {
	fs := memfs.New()
	filertest.RunRemovals(t, fs.Client("objects", nil), fs.Client("store", nil), gateway{fs})
	if problems := fs.Problems(); len(problems) > 0 {
		t.Errorf("problems: %q", problems)
	}
}

// TestRemovalLosesItsReply: what became of a removal without an answer is found
// out, and a request that arrives late removes nothing that came since.
func TestRemovalLosesItsReply(t *testing.T) {
	for name, fault := range map[string]memfs.Fault{
		"before": {Before: errors.New("lost request")},
		"after":  {After: errors.New("lost reply")},
	} {
		fs, failed := memfs.New(), false
		fs.MakeBucket("bucket", false)
		c := fs.Client("c", func(op memfs.Op) memfs.Fault {
			if op.Name != "Remove" || failed {
				return memfs.Fault{}
			}
			failed = true
			return fault
		})
		if _, err := fs.PutObject("bucket", "k", []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
		n := filer.ObjectName{Bucket: "bucket", Key: "k"}
		o, err := c.Look(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if err := filer.Remove(t.Context(), c, o); err != nil || !failed {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.Look(t.Context(), n); !errors.Is(err, filer.ErrNotFound) {
			t.Errorf("%s: it is still there: %v", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	fs := memfs.New()
	fs.MakeBucket("bucket", false)
	_, err := fs.PutObject("bucket", "k", []byte("x"), nil)
	o, err2 := fs.Client("c", nil).Look(t.Context(), filer.ObjectName{Bucket: "bucket", Key: "k"})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := filer.Remove(ended, fs.Client("c", nil), o); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context: %v", err)
	}
}
