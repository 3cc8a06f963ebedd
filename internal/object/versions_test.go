package object_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/object"
)

// TestVersionsOfAnswers: a version that no request could name is no version, and
// says nothing of the object.
func TestVersionsOfAnswers(t *testing.T) {
	for version, usable := range map[string]bool{
		"": true, "null": true, "3sL4kqtJlcpXroDTDmJ+rmSpXd3dIbrHY+MTRCxf3vjVBH40Nr8X8gdRQBpUMLUo": true, strings.Repeat("v", 1024): true,
		"ab cd": false, "v\xff": false, "é": false, strings.Repeat("v", 1025): false,
	} {
		s := endpoint(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X-Amz-Version-Id"] = []string{version}
			w.Header().Set("ETag", `"e"`)
			w.Header().Set("Content-Length", "0")
		})
		want := version
		if version == "null" || !usable {
			want = ""
		}
		head, headErr := s.Head(t.Context(), name.Bucket, name.Key, "")
		body, got, getErr := s.Get(t.Context(), name, 0, "")
		if getErr == nil {
			_ = body.Close()
		}
		put, err := s.Put(t.Context(), name, strings.NewReader("data"), 4, object.PutOptions{})
		if err != nil || head.Version != want || got.Version != want || put.Version != want {
			t.Errorf("%.20q: head %.20q, get %.20q, put %.20q, %v", version, head.Version, got.Version, put.Version, err)
		}
		for _, err := range []error{headErr, getErr} {
			if usable && err != nil {
				t.Errorf("%.20q: %v", version, err)
			} else if !usable {
				checkUnavailable(t, version, err)
			}
		}
	}
}
