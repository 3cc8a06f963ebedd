package object_test

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/object"
)

// TestDelete: what is asked for, and what becomes of the answers.
func TestDelete(t *testing.T) {
	for _, c := range []struct {
		status int
		want   error // nil: none
	}{
		{http.StatusNoContent, nil},
		{http.StatusNotFound, object.ErrNotFound},
		{http.StatusForbidden, object.ErrForbidden},
		{http.StatusPreconditionFailed, object.ErrChanged},
		{http.StatusNotImplemented, object.ErrInvalid},
	} {
		asked := ""
		s := endpoint(t, time.Second, func(w http.ResponseWriter, r *http.Request) {
			asked = r.Method + " " + r.URL.Path + " " + r.Header.Get("If-Match")
			w.WriteHeader(c.status)
		})
		if err := s.Delete(t.Context(), name, "e"); !errors.Is(err, c.want) || asked != `DELETE /bucket/the/key "e"` {
			t.Errorf("%d: %v, after %q", c.status, err, asked)
		}
		if err := s.Delete(t.Context(), name, ""); !errors.Is(err, c.want) || asked != `DELETE /bucket/the/key ` {
			t.Errorf("%d without a condition: %v, after %q", c.status, err, asked)
		}
	}
	down := at(t, impatient, "http://127.0.0.1:1")
	var away *object.UnavailableError
	if err := down.Delete(t.Context(), name, ""); !errors.As(err, &away) || away.Op != "delete" {
		t.Errorf("down: %v", err)
	}
	for _, n := range []object.Name{{Bucket: "B", Key: "k"}, {Bucket: "bucket", Key: "a/../b"}, {Bucket: "bucket", Key: "k", Version: "v"}} {
		if err := down.Delete(t.Context(), n, ""); !errors.Is(err, object.ErrInvalid) {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

// TestDeleteOnWeed: it is gone, and going again is no error.
func TestDeleteOnWeed(t *testing.T) {
	w := onWeed(t)
	n := object.Name{Bucket: w.bucket, Key: "a/b c%2B"}
	info, err := w.Put(t.Context(), n, strings.NewReader("data"), 4, object.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), n, strings.Repeat("0", 32)); !errors.Is(err, object.ErrChanged) {
		t.Errorf("another ETag: %v", err)
	}
	for _, etag := range []string{info.ETag, ""} {
		if err := w.Delete(t.Context(), n, etag); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Head(t.Context(), n.Bucket, n.Key, ""); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("after it was deleted: %v", err)
		}
	}
}

// TestPins: Head tells the pins, and an object that is put again with them has them.
func TestPins(t *testing.T) {
	w := onWeed(t)
	n := object.Name{Bucket: w.bucket, Key: "k"}
	pins := map[string]string{"spillway-pin-k3j9": "orders 2026-01-02T03:04:05Z abc"}
	for _, size := range []int64{4, object.PartSize + 1} {
		o := object.PutOptions{Pins: map[string]string{"spillway-adopt": "x", "other": "y"}}
		maps.Copy(o.Pins, pins)
		if _, err := w.Put(t.Context(), n, zeros{}, size, o); err != nil {
			t.Fatal(err)
		}
		info, err := w.Head(t.Context(), n.Bucket, n.Key, "")
		if err != nil || !maps.Equal(info.Pins, pins) {
			t.Errorf("%d bytes: %v, %v", size, info.Pins, err)
		}
	}
}
