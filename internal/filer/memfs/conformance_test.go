package memfs_test

import (
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/filertest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

func TestConformance(t *testing.T) {
	fs := memfs.New()
	filertest.Run(t, func(t *testing.T) filer.Store { return fs.Client(t.Name(), nil) })
	if problems := fs.Problems(); len(problems) > 0 {
		t.Errorf("problems: %q", problems)
	}
	if n := fs.Blobs(); n > 0 {
		t.Errorf("%d blobs are left that no file names", n)
	}
	if paths := fs.Paths(); len(paths) > 0 {
		t.Errorf("files are left: %q", paths)
	}
}
