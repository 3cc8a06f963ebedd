package object_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/internal/object"
)

// identities are the keys of the administrator, and of a guest who may read one
// bucket and nothing else.
const identities = `{"identities": [
 {"name": "admin", "credentials": [{"accessKey": "ADMIN", "secretKey": "admin-secret"}], "actions": ["Admin", "Read", "Write", "List", "Tagging"]},
 {"name": "guest", "credentials": [{"accessKey": "GUEST", "secretKey": "guest-secret"}], "actions": ["Read:open", "List:open"]}
]}`

// TestNoRights: valid keys that have no right to what they ask for, at a real
// gateway. What they do have a right to works.
func TestNoRights(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "s3.json"), []byte(identities), 0o600); err != nil {
		t.Fatal(err)
	}
	stack, err := devstack.Start(t.Context(), devstack.Config{Dir: dir, Bucket: "open", NoNATS: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(stack.KillWeed(), stack.Close(context.WithoutCancel(t.Context()))); err != nil {
			t.Log(err) // it was killed
		}
	})
	admin := open(t, object.Config{Endpoint: stack.Info.S3.URL, AccessKey: "ADMIN", SecretKey: "admin-secret"})
	guest := open(t, object.Config{Endpoint: stack.Info.S3.URL, AccessKey: "GUEST", SecretKey: "guest-secret"})
	mine := object.Name{Bucket: "open", Key: "k"}
	if _, err := admin.Put(t.Context(), mine, strings.NewReader("text"), 4, object.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if info, err := guest.Head(t.Context(), "open", "k", ""); err != nil || info.Size != 4 {
		t.Errorf("what it may: %+v, %v", info, err)
	}
	_, head := guest.Head(t.Context(), "closed", "k", "")
	_, _, get := guest.Get(t.Context(), object.Name{Bucket: "closed", Key: "k"}, 0, "")
	_, put := guest.Put(t.Context(), mine, strings.NewReader("x"), 1, object.PutOptions{})
	var list error
	for _, err := range guest.List(t.Context(), "closed", "", "") {
		list = err
	}
	for op, err := range map[string]error{"head": head, "get": get, "put": put, "list": list} {
		if !errors.Is(err, object.ErrForbidden) || strings.Contains(err.Error(), "guest-secret") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if info, err := admin.Head(t.Context(), "open", "k", ""); err != nil || info.Size != 4 {
		t.Errorf("the guest has changed it: %+v, %v", info, err)
	}
}
