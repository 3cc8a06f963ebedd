package ref_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
)

// answer is what a fake endpoint does to one Get.
type answer struct {
	err  error       // instead of an answer
	info object.Info // Size as the endpoint says it
	data []byte      // what comes, from the offset on
	end  error       // after data; nil: io.EOF
}

// fake answers Gets in order, and keeps what was asked.
type fake struct {
	answers []answer
	asked   []string
	open    int
}

func (f *fake) Get(_ context.Context, n ref.Name, off int64, ifMatch string) (io.ReadCloser, object.Info, error) {
	f.asked = append(f.asked, fmt.Sprintf("%s version=%s off=%d etag=%s", n, n.Version, off, ifMatch))
	if len(f.answers) == 0 {
		return nil, object.Info{}, errors.New("one Get too many")
	}
	a := f.answers[0]
	f.answers = f.answers[1:]
	if a.err != nil {
		return nil, object.Info{}, a.err
	}
	end := a.end
	if end == nil {
		end = io.EOF
	}
	f.open++
	return &fakeBody{f, io.MultiReader(bytes.NewReader(a.data), iotest.ErrReader(end))}, a.info, nil
}

type fakeBody struct {
	f *fake
	io.Reader
}

func (b *fakeBody) Close() error { b.f.open--; return nil }

var (
	payload = []byte("the payload of a record")
	sum     = sha256.Sum256(payload)
	size    = int64(len(payload))
	sound   = object.Info{Size: size, ETag: "e", Version: "v", SHA256: sum[:]}
	full    = record.Ref{URL: "s3://bucket/k", Size: size, ETag: "e", Version: "v", SHA256: sum[:]}
	broken  = &object.UnavailableError{Op: "get", Err: io.ErrUnexpectedEOF}
)

// run reads a reference to its end, and checks that everything is closed.
func run(t *testing.T, f record.Ref, answers ...answer) (got []byte, asked []string, err error) {
	t.Helper()
	store := &fake{answers: answers}
	r := ref.NewReader(t.Context(), store, f)
	got, err = io.ReadAll(r)
	if _, again := r.Read(make([]byte, 1)); !errors.Is(again, cmp.Or(err, io.EOF)) {
		t.Errorf("the error does not stay: %v, then %v", err, again)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if store.open != 0 {
		t.Errorf("%d bodies left open", store.open)
	}
	return got, store.asked, err
}

// TestReader: what is sound is read with one Get, of exactly the object.
func TestReader(t *testing.T) {
	loose := object.Info{Size: size}
	for name, c := range map[string]struct {
		f     record.Ref
		info  object.Info
		asked string
	}{
		"all said":      {full, sound, "s3://bucket/k version=v off=0 etag=e"},
		"nothing said":  {record.Ref{URL: full.URL}, loose, "s3://bucket/k version= off=0 etag="},
		"null, quoted":  {record.Ref{URL: full.URL, Version: "null", ETag: `"e"`}, sound, "s3://bucket/k version= off=0 etag=e"},
		"digest alone":  {record.Ref{URL: full.URL, SHA256: sum[:]}, loose, "s3://bucket/k version= off=0 etag="},
		"a batch of 40": {record.Ref{URL: full.URL, Size: size, Records: &size}, loose, "s3://bucket/k version= off=0 etag="},
	} {
		got, asked, err := run(t, c.f, answer{info: c.info, data: payload})
		if err != nil || !bytes.Equal(got, payload) || !slices.Equal(asked, []string{c.asked}) {
			t.Errorf("%s: %q, %v, %q", name, got, err, asked)
		}
	}
	empty := sha256.Sum256(nil)
	if got, _, err := run(t, record.Ref{URL: full.URL, SHA256: empty[:]}, answer{}); err != nil || len(got) != 0 {
		t.Errorf("no bytes: %q, %v", got, err)
	}
}

// TestLazy: nothing is asked before the first byte is wanted, and nothing after
// Close.
func TestLazy(t *testing.T) {
	store := &fake{answers: []answer{{info: sound, data: payload}}}
	r := ref.NewReader(t.Context(), store, full)
	if n, err := r.Read(make([]byte, 4)); n != 4 || err != nil || len(store.asked) != 1 {
		t.Errorf("%d, %v, %q", n, err, store.asked)
	}
	if err := r.Close(); err != nil || store.open != 0 {
		t.Error(err)
	}
	unused := ref.NewReader(t.Context(), store, full)
	for _, r := range []*ref.Reader{r, unused} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Read(make([]byte, 4)); !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
	}
	if len(store.asked) != 1 {
		t.Errorf("%q", store.asked)
	}
}

// TestReaderFails: which of them failed.
func TestReaderFails(t *testing.T) {
	other := bytes.Repeat([]byte("x"), len(payload))
	noDigest := full
	noDigest.SHA256 = nil
	unknown := object.Info{Size: size, ETag: "e", Version: "v"} // the endpoint has no digest
	changed := fmt.Errorf("get: %w", object.ErrChanged)
	for name, c := range map[string]struct {
		f       record.Ref
		answers []answer
		what    string // of a MismatchError
		want    error
		state   ref.State
	}{
		"no name":            {f: record.Ref{URL: "https://x/y"}, state: ref.Missing},
		"no version":         {f: record.Ref{URL: full.URL, Version: "a\nb"}, state: ref.Missing},
		"missing":            {f: full, answers: []answer{{err: object.ErrNotFound}}, want: object.ErrNotFound, state: ref.Missing},
		"deleted":            {f: full, answers: []answer{{err: object.ErrDeleted}}, want: object.ErrDeleted, state: ref.Deleted},
		"forbidden":          {f: full, answers: []answer{{err: object.ErrForbidden}}, want: object.ErrForbidden, state: ref.Pending},
		"unavailable":        {f: full, answers: []answer{{err: broken}}, want: broken, state: ref.Pending},
		"another ETag":       {f: noDigest, answers: []answer{{err: changed}}, what: "etag", want: object.ErrChanged, state: ref.Changed},
		"another size":       {f: full, answers: []answer{{info: object.Info{Size: size + 1, ETag: "e", Version: "v"}, data: payload}}, what: "size", state: ref.Changed},
		"another version":    {f: full, answers: []answer{{info: object.Info{Size: size, ETag: "e", Version: "w"}, data: payload}}, what: "version", state: ref.Changed},
		"other bytes":        {f: full, answers: []answer{{info: unknown, data: other}}, what: "sha256", state: ref.Changed},
		"more bytes":         {f: full, answers: []answer{{info: unknown, data: append(slices.Clone(payload), 'x')}}, what: "size", state: ref.Changed},
		"damaged at the end": {f: noDigest, answers: []answer{{info: unknown, data: payload, end: object.ErrCorrupt}}, want: object.ErrCorrupt, state: ref.Changed},
		"fewer bytes, twice": {f: full, answers: []answer{{info: unknown, data: payload[:4]}, {info: unknown}}, what: "size", state: ref.Changed},
		"breaks twice":       {f: full, answers: []answer{{info: unknown, data: payload[:4], end: broken}, {info: unknown, end: broken}}, want: broken, state: ref.Pending},
		"changed when it broke": {f: noDigest, answers: []answer{{info: unknown, data: payload[:4], end: broken}, {err: changed}},
			what: "etag", want: object.ErrChanged, state: ref.Changed},
		"deleted when it broke": {f: full, answers: []answer{{info: unknown, data: payload[:4], end: broken}, {err: object.ErrNotFound}},
			want: object.ErrNotFound, state: ref.Missing},
		"another size when it broke": {f: full, answers: []answer{{info: unknown, data: payload[:4], end: broken}, {info: object.Info{Size: 9}, data: payload[4:]}},
			what: "size", state: ref.Changed},
		"nothing to go on with": {f: record.Ref{URL: full.URL}, answers: []answer{{info: object.Info{Size: size}, data: payload[:4], end: broken}}, want: broken, state: ref.Pending},
		"short, nothing to go on with": {f: record.Ref{URL: full.URL}, answers: []answer{{info: object.Info{Size: size}, data: payload[:4]}},
			want: io.ErrUnexpectedEOF, state: ref.Pending},
	} {
		got, _, err := run(t, c.f, c.answers...)
		var m *ref.MismatchError
		if errors.As(err, &m); m == nil && c.what != "" || m != nil && m.What != c.what {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil || c.want != nil && !errors.Is(err, c.want) || ref.StateOf(err) != c.state {
			t.Errorf("%s: %v: %s", name, err, ref.StateOf(err))
		}
		if int64(len(got)) > size {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}
}

// TestResume: a connection that breaks once costs nothing but a second Get of the
// rest of the same object.
func TestResume(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		at := rapid.IntRange(0, len(payload)-1).Draw(rt, "at")
		f := full
		if rapid.Bool().Draw(rt, "no etag") {
			f.ETag = ""
		}
		var end error
		if rapid.Bool().Draw(rt, "broken") {
			end = broken
		}
		got, asked, err := run(t, f, answer{info: sound, data: payload[:at], end: end}, answer{info: sound, data: payload[at:]})
		want := fmt.Sprintf("s3://bucket/k version=v off=%d etag=e", at)
		if err != nil || !bytes.Equal(got, payload) || len(asked) != 2 || asked[1] != want {
			rt.Fatalf("%q, %v, %q", got, err, asked)
		}
	})
}

// TestSameBytes: an object that was put once more with the same bytes has another
// ETag, and is valid if the reference can prove it.
func TestSameBytes(t *testing.T) {
	again := object.Info{Size: size, ETag: "e-2", Version: "v", SHA256: sum[:]}
	changed := answer{err: object.ErrChanged}
	got, asked, err := run(t, full, changed, answer{info: again, data: payload})
	if err != nil || !bytes.Equal(got, payload) || len(asked) != 2 {
		t.Errorf("%q, %v, %q", got, err, asked)
	}
	lies := answer{info: again, data: bytes.Repeat([]byte("x"), len(payload))}
	var m *ref.MismatchError
	if _, _, err := run(t, full, changed, lies); !errors.As(err, &m) || m.What != "sha256" {
		t.Errorf("other bytes under the same digest: %v", err)
	}
	again.SHA256 = nil
	if got, _, err := run(t, full, changed, answer{info: again, data: payload}); !errors.As(err, &m) || m.What != "etag" || len(got) != 0 {
		t.Errorf("no digest at the endpoint: %q, %v", got, err)
	}
}

// TestSmallReads: however it is read, it is the same.
func TestSmallReads(t *testing.T) {
	store := &fake{answers: []answer{{info: sound, data: payload}}}
	r := ref.NewReader(t.Context(), store, full)
	defer func() { _ = r.Close() }()
	if err := iotest.TestReader(r, payload); err != nil {
		t.Error(err)
	}
}
