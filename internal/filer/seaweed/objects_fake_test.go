package seaweed_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

var fakeName = filer.ObjectName{Bucket: "fake", Key: "k"}

func object(attrs map[string]string) *filer_pb.Entry {
	e := &filer_pb.Entry{Attributes: &filer_pb.FuseAttributes{FileSize: 1}, Extended: map[string][]byte{}}
	for k, v := range attrs {
		e.Extended[k] = []byte(v)
	}
	return e
}

// TestMarkAnswers: what a filer can answer to a mark.
func TestMarkAnswers(t *testing.T) {
	f := newFake(t, answering(http.StatusInternalServerError, "no proxy"))
	c := f.dial(t, seaweed.Config{})
	f.set(func() { f.entries = map[string]*filer_pb.Entry{"/buckets/fake/k": object(nil)} })
	o, err := c.Look(t.Context(), fakeName)
	if err != nil {
		t.Fatal(err)
	}
	unknown := errors.New("unknown")
	for what, a := range map[string]struct {
		resp *filer_pb.ObjectTransactionResponse
		err  error
		want error
	}{
		"done":              {resp: &filer_pb.ObjectTransactionResponse{}},
		"another entry":     {resp: &filer_pb.ObjectTransactionResponse{Error: "x", ErrorCode: filer_pb.FilerError_PRECONDITION_FAILED}, want: filer.ErrConflict},
		"a failure":         {resp: &filer_pb.ObjectTransactionResponse{Error: "mutation 0: disk"}, want: unknown},
		"an owner unknown":  {err: status.Error(codes.Unavailable, "no owner"), want: unknown},
		"an older filer":    {err: status.Error(codes.Unimplemented, "unknown method"), want: filer.ErrInvalid},
		"no right, or late": {err: status.Error(codes.PermissionDenied, "x"), want: unknown},
	} {
		f.set(func() {
			f.transact = func(*filer_pb.ObjectTransactionRequest) (*filer_pb.ObjectTransactionResponse, error) {
				return a.resp, a.err
			}
		})
		err := c.Mark(t.Context(), o, "Test", "1")
		switch {
		case a.want == unknown && (err == nil || filer.Definite(err)), //nolint:errorlint // a marker
			a.want == nil && err != nil,
			a.want != unknown && a.want != nil && !errors.Is(err, a.want): //nolint:errorlint // a marker
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Mark(ctx, o, "Test", "1"); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	if _, err := c.Look(ctx, fakeName); !errors.Is(err, context.Canceled) {
		t.Errorf("look with a context that has ended: %v", err)
	}
}

// TestPointers: what a folder of versions can say about the current one.
func TestPointers(t *testing.T) {
	const pointer, marker = "Seaweed-X-Amz-Latest-Version-File-Name", "Seaweed-X-Amz-Delete-Marker"
	f := newFake(t, answering(http.StatusInternalServerError, "no proxy"))
	c := f.dial(t, seaweed.Config{})
	for what, p := range map[string]struct {
		attrs map[string]string
		path  string
		want  error
	}{
		"a version":       {map[string]string{pointer: "v_1"}, "/buckets/fake/k.versions/v_1", nil},
		"none":            {nil, "/buckets/fake/k", nil},
		"something else":  {map[string]string{pointer: "1"}, "/buckets/fake/k", nil},
		"one that is not": {map[string]string{pointer: "v_2"}, "", filer.ErrNotFound},
		"a marker":        {map[string]string{pointer: "v_3"}, "", filer.ErrNotFound},
		"a null marker":   {map[string]string{pointer: "v_null"}, "", filer.ErrNotFound},
		"a way out":       {map[string]string{pointer: "v_/../../../other/k"}, "", filer.ErrInvalid},
	} {
		f.set(func() {
			f.entries = map[string]*filer_pb.Entry{
				"/buckets/fake": {IsDirectory: true}, "/buckets/fake/k": object(nil), "/buckets/other/k": object(nil),
				"/buckets/fake/k.versions": object(p.attrs), "/buckets/fake/k.versions/v_1": object(nil),
				"/buckets/fake/k.versions/v_3": object(map[string]string{marker: "true"}),
			}
		})
		o, err := c.Look(t.Context(), fakeName)
		if o.Path != p.path || !errors.Is(err, p.want) {
			t.Errorf("%s: %q, %v", what, o.Path, err)
		}
	}
}

func TestS3ETag(t *testing.T) {
	sum := []byte{0xab, 0xcd}
	chunk := func(etag string) *filer_pb.FileChunk { return &filer_pb.FileChunk{ETag: etag} }
	const base64 = "q80=" // of the sum
	attrs := &filer_pb.FuseAttributes{Md5: sum, FileSize: 7}
	for want, e := range map[string]*filer_pb.Entry{
		"kept":   {Extended: map[string][]byte{"Seaweed-X-Amz-ETag": []byte(`"kept"`)}, Attributes: attrs},
		"abcd":   {Attributes: attrs, Chunks: []*filer_pb.FileChunk{chunk("x"), chunk("y")}},
		"":       {},
		"remote": {Attributes: attrs, RemoteEntry: &filer_pb.RemoteEntry{RemoteETag: "remote", RemoteSize: 7}},
		"2f249230a8e7c2bf6005ccd2679259ec": {Attributes: &filer_pb.FuseAttributes{FileSize: 7}, Content: []byte("changed"), RemoteEntry: &filer_pb.RemoteEntry{RemoteETag: "r", RemoteSize: 7},
			Chunks: []*filer_pb.FileChunk{chunk("LySSMKjnwr9gBczSZ5JZ7A==")}},
		"ecdd9bbd5c6567a87375f4d8ae2225cb-2": {Chunks: []*filer_pb.FileChunk{chunk(base64), chunk(base64)}},
	} {
		if got := seaweed.S3ETag(e); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := seaweed.S3ETag(&filer_pb.Entry{Chunks: []*filer_pb.FileChunk{chunk("not base64!")}}); got != "" {
		t.Errorf("of a chunk without a checksum: %q", got)
	}
}
