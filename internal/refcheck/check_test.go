package refcheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// TestStates: each reference is in exactly the state that its object is in, in the
// order of the records, and each object is looked at once.
func TestStates(t *testing.T) { inWorld(t, testStates) }

func testStates(t *testing.T, w *world) {
	t.Helper()
	good := w.put("box/good", "good", 0)
	w.pin(good)
	bare := w.put("box/bare", "bare", 0)
	far := w.put("far/k", "far", 0)
	gone := w.put("box/gone", "gone", 0)
	w.remove("box/gone")
	cut := w.put("box/cut", "long", 0)
	w.put("box/cut", "lo", 0)
	over := w.put("box/over", "aaaa", 0)
	w.put("box/over", "bbbb", 0)
	sum := w.put("box/again", "same", 0)
	w.pin(sum)
	w.put("box/again", "same", 0) // the same bytes, which takes the pin away
	marker := w.put("versioned/m", "m", 0)
	w.s3.fail["versioned/m"] = fmt.Errorf("head: %w", object.ErrDeleted)
	down := w.put("box/down", "down", 0)
	w.s3.fail["box/down"] = &object.UnavailableError{Op: "head", Err: errors.New("500")}
	not := record.Ref{URL: "s3://other/k"}
	version := w.put("versioned/v", "v", 0)

	w.commit(append(to(good, bare, good), entry{ref: &gone, key: "k", pending: true}, entry{})...)
	w.commit(to(far, cut, over, sum, marker, down, not, version, bare)...)
	w.commit(entry{}, entry{ref: &record.Ref{URL: "https://x/y"}, rejected: `reference "https://x/y": it names a host`})

	r, found := w.check(w.checker())
	equal(t, "findings", found,
		"unpinned box/bare@1", "missing box/gone@3", "changed box/cut@6", "changed box/over@7", "unpinned box/again@8",
		"deleted versioned/m@9", "pending box/down@10", "pending other/k@11", "unpinned versioned/v@12")
	want := Report{
		Topic: "images", Chunks: 2, References: 13, Objects: 10, Unverified: 1, Unpinned: 3, Elsewhere: 1,
		States:   map[ref.State]uint64{ref.Valid: 7, ref.Missing: 1, ref.Changed: 2, ref.Deleted: 1, ref.Pending: 2},
		Rejected: Rejected{Kinds: map[string]uint64{}},
		Uploads:  Uploads{Judged: true, Places: []string{"s3://box/spillway/images/", "s3://far/spillway/images/", "s3://versioned/spillway/images/"}},
	}
	if got, want := asJSON(t, r), asJSON(t, want); got != want {
		t.Errorf("report:\n got %s\nwant %s", got, want)
	}
	if n := w.s3.heads["box/good"]; n != 1 {
		t.Errorf("%d looks at one object", n)
	}
	// The one in a chunk without references is found if it is looked for.
	c := w.checker()
	c.Rejected = true
	if r, _ := w.check(c); r.Chunks != 3 || r.Rejected.Records != 1 || !r.Rejected.Complete || r.Rejected.Kinds[kindNoName] != 1 {
		t.Errorf("rejected: %+v, %d chunks", r.Rejected, r.Chunks)
	}
	// Without pins nothing is unpinned.
	c = w.checker()
	c.Pins = nil
	if r, found := w.check(c); r.Unpinned != 0 || len(found) != 6 {
		t.Errorf("without pins: %q", found)
	}
}

// TestSameBucketElsewhere: an object of another endpoint, in a bucket that the filer
// happens to have too, cannot be pinned and does not have to be.
func TestSameBucketElsewhere(t *testing.T) { inWorld(t, testSameBucketElsewhere) }

func testSameBucketElsewhere(t *testing.T, w *world) {
	t.Helper()
	w.put("box/k", "ours", 0)
	theirs := object.Info{Size: 6, ETag: "theirs"}
	w.s3.held["box/k"], w.s3.held["box/only"] = theirs, theirs
	w.s3.filer = w.fs.Client("none", nil)
	w.s3.fail = map[string]error{}
	c := w.checker()
	c.Objects = &plain{w.s3}
	w.commit(to(record.Ref{URL: "s3://box/k", Size: 6}, record.Ref{URL: "s3://box/only", Size: 6})...)
	if r, found := w.check(c); len(found) != 0 || r.Elsewhere != 2 || !r.OK {
		t.Errorf("%q, %+v", found, r)
	}
}

// TestUploads: what producers uploaded, and who names it.
func TestUploads(t *testing.T) { inWorld(t, testUploads) }

func testUploads(t *testing.T, w *world) {
	t.Helper()
	up := func(name string, age time.Duration) record.Ref {
		return w.put("box/spillway/images/"+name, name, age)
	}
	named, refused, both := up("named", 5*time.Hour), up("refused", 5*time.Hour), up("both", 5*time.Hour)
	up("orphan", 5*time.Hour)
	up("young", 30*time.Minute)
	w.pin(up("held", 5*time.Hour))
	w.put("box/spillway/imagesx/other", "x", 5*time.Hour)
	w.put("box/other", "x", 5*time.Hour)
	w.put("far/spillway/images/far", "far", 5*time.Hour)
	w.put("settings/spillway/images/s", "s", 5*time.Hour)
	w.pin(named)
	w.pin(both)
	w.commit(append(to(named, both), entry{ref: &refused, rejected: "topic \"images\" allows no references to it"}, entry{ref: &both, rejected: "x"})...)

	r, found := w.check(w.checker())
	equal(t, "findings", found, "held box/spillway/images/held", "orphaned box/spillway/images/orphan", "refused box/spillway/images/refused", "orphaned far/spillway/images/far")
	u := r.Uploads
	if !u.Judged || u.Found != 7 || u.Named != 2 || u.Young != 1 || u.Orphaned != 2 || u.Held != 1 || u.Refused != 1 || u.Bytes != 9 || r.OK {
		t.Errorf("%+v", u)
	}
	c := w.checker()
	c.Bucket = "settings"
	if _, found := w.check(c); !slices.Contains(found, "orphaned settings/spillway/images/s") {
		t.Errorf("bucket of the settings: %q", found)
	}
	// Of a check that did not see all records, nothing is an orphan.
	for name, change := range map[string]func(*Checker){
		"since": func(c *Checker) { c.Since = time.Now().Add(-time.Hour) },
		"limit": func(c *Checker) { c.Limit = 1 },
	} {
		c := w.checker()
		change(c)
		if r, found := w.check(c); len(found) != 0 || r.Uploads.Judged || r.Uploads.Why == "" || r.Limited != (name == "limit") {
			t.Errorf("%s: %q, %+v", name, found, r)
		}
	}
}

// TestRecordsMeanwhile: a record that is committed while uploads are listed names
// its upload in time.
func TestRecordsMeanwhile(t *testing.T) { inWorld(t, testRecordsMeanwhile) }

func testRecordsMeanwhile(t *testing.T, w *world) {
	t.Helper()
	late := w.put("box/spillway/images/late", "x", 5*time.Hour)
	w.put("box/spillway/images/orphan", "x", 5*time.Hour)
	w.commit(entry{})
	once := true
	w.s3.listing = func() error {
		if once {
			w.commit(to(late)...)
		}
		once = false
		return nil
	}
	if r, found := w.check(w.checker()); !slices.Equal(found, []string{"orphaned box/spillway/images/orphan"}) || r.Uploads.Named != 1 {
		t.Errorf("%q, %+v", found, r.Uploads)
	}
}

// TestTrimmedMeanwhile: chunks that are trimmed while others are read are passed over.
func TestTrimmedMeanwhile(t *testing.T) { inWorld(t, testTrimmedMeanwhile) }

func testTrimmedMeanwhile(t *testing.T, w *world) {
	t.Helper()
	w.store.Inline = 0 // their bytes are read one by one
	const n = 3 * ahead
	for i := range n {
		w.commit(to(record.Ref{URL: fmt.Sprintf("s3://box/%d", i)})...)
	}
	c := w.checker()
	seen := map[string]int{}
	c.Found = func(f Finding) error {
		seen[f.URL]++
		if len(seen) > 1 {
			return nil
		}
		return w.seg.Trim(t.Context(), n-2)
	}
	r, err := c.Check(t.Context())
	w.ok(err)
	if seen["s3://box/0"] != 1 || seen[fmt.Sprintf("s3://box/%d", n-1)] != 1 || len(seen) >= n || r.References != uint64(len(seen)) {
		t.Errorf("%d of %d seen, %+v", len(seen), n, r)
	}
}

// TestSince: what was appended before is not read.
func TestSince(t *testing.T) { inWorld(t, testSince) }

func testSince(t *testing.T, w *world) {
	t.Helper()
	w.commit(to(record.Ref{URL: "s3://box/old"})...)
	w.later(time.Hour)
	w.commit(to(record.Ref{URL: "s3://box/new"})...)
	c := w.checker()
	c.Since = time.Now().Add(-time.Minute)
	if r, found := w.check(c); !slices.Equal(found, []string{"missing box/new@1"}) || r.Chunks != 1 {
		t.Errorf("%q, %+v", found, r)
	}
}

// TestManyReferences: more than wait at a time, in order, and each state counted.
func TestManyReferences(t *testing.T) { inWorld(t, testManyReferences) }

func testManyReferences(t *testing.T, w *world) {
	t.Helper()
	var want []string
	for chunk := range 10 {
		var entries []entry
		for i := range 100 {
			n := chunk*100 + i
			f := w.put(fmt.Sprintf("box/%04d", n), "x", 0)
			w.pin(f)
			if n%7 == 0 {
				w.remove(fmt.Sprintf("box/%04d", n))
				want = append(want, fmt.Sprintf("missing box/%04d@%d", n, n))
			}
			entries = append(entries, to(f)...)
		}
		w.commit(entries...)
	}
	r, found := w.check(w.checker())
	equal(t, "findings", found, want...)
	if r.References != 1000 || r.Dangling() != 143 || r.States[ref.Valid] != 857 || r.Uploads.Found != 0 {
		t.Errorf("%+v", r)
	}
}

// TestCheckFails: what a check cannot do without ends it, with its error.
func TestCheckFails(t *testing.T) { inWorld(t, testCheckFails) }

func testCheckFails(t *testing.T, w *world) {
	t.Helper()
	w.commit(to(w.put("box/k", "x", 0))...)
	c := w.checker()
	c.Topic.Endpoint = "http://elsewhere"
	var wrong *verdict.ElsewhereError
	if _, err := c.Check(t.Context()); !errors.As(err, &wrong) {
		t.Errorf("another endpoint: %v", err)
	}
	c.Topic.Endpoint = ""
	c.Found = func(Finding) error { return errors.New("enough of it") }
	if _, err := c.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "enough of it") {
		t.Errorf("who is told: %v", err)
	}
	w.s3.listing = func() error { return &object.UnavailableError{Op: "list", Err: errors.New("down")} }
	var down *object.UnavailableError
	c.Found = nil
	if _, err := c.Check(t.Context()); !errors.As(err, &down) {
		t.Errorf("listing: %v", err)
	}
	w.s3.listing = func() error { return object.ErrNoBucket }
	if r, err := c.Check(t.Context()); err != nil || !r.Uploads.Judged {
		t.Errorf("no bucket: %v, %+v", err, r.Uploads)
	}
}

// TestSilence: an endpoint that does not answer is given up; one that answers now and
// then is not.
func TestSilence(t *testing.T) { inWorld(t, testSilence) }

func testSilence(t *testing.T, w *world) {
	t.Helper()
	const n = 20 * maxSilent
	down := &object.UnavailableError{Op: "head", Err: errors.New("down")}
	var refs []record.Ref
	for i := range n {
		name := fmt.Sprintf("far/%d", i)
		refs = append(refs, w.put(name, "x", 0))
		if i%(parallel/2) != 0 { // looks overtake each other
			w.s3.fail[name] = down
		}
	}
	w.commit(to(refs...)...)
	if r, err := w.checker().Check(t.Context()); err != nil || r.States[ref.Valid] != n/(parallel/2) {
		t.Errorf("now and then: %v, %+v", err, r)
	}
	for i := range n {
		w.s3.fail[fmt.Sprintf("far/%d", i)] = down
	}
	clear(w.s3.heads)
	var got *object.UnavailableError
	if _, err := w.checker().Check(t.Context()); !errors.As(err, &got) || len(w.s3.heads) > maxSilent+2*ahead {
		t.Errorf("never: %v after %d looks", err, len(w.s3.heads))
	}
}

// TestPlaces: where a topic's uploads may be, each once.
func TestPlaces(t *testing.T) { inWorld(t, testPlaces) }

func testPlaces(t *testing.T, w *world) {
	t.Helper()
	for _, c := range []struct {
		buckets []string
		setting string
		want    string
	}{
		{nil, "", ""},
		{nil, "s", "s3://s/spillway/images/"},
		{[]string{"a"}, "", "s3://a/spillway/images/"},
		{[]string{"a", "a/spillway/", "a/spillway/images/x"}, "a", "s3://a/spillway/images/"},
		{[]string{"a/spillway/images/x", "a/spillway/images/y"}, "", "s3://a/spillway/images/x s3://a/spillway/images/y"},
		{[]string{"a/spillway/im", "a/spillway/other/", "a/photos"}, "", "s3://a/spillway/images/"},
	} {
		k := w.checker()
		k.Topic.Buckets, k.Bucket = c.buckets, c.setting
		var got []string
		for _, p := range k.places() {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q and %q: %q", c.buckets, c.setting, got)
		}
	}
}

// TestKinds: the reasons are those that ingest gives.
func TestKinds(t *testing.T) {
	_, noURL := ref.Parse("https://x/y")
	noName := (object.Name{Bucket: "B", Key: "k"}).Check()
	for want, err := range map[string]error{
		"another size":    &ref.MismatchError{What: "size", Want: "1", Got: "2"},
		"another etag":    &ref.MismatchError{What: "etag", Want: "1"},
		"another version": &ref.MismatchError{What: "version", Want: "1"},
		"another sha256":  &ref.MismatchError{What: "sha256", Want: "1"},
		kindNotAllowed:    &verdict.NotAllowedError{Topic: "t", Name: object.Name{Bucket: "box", Key: "k"}},
		kindNoName:        noURL,
		kindOther:         errors.New("whatever"),
	} {
		for _, reason := range []string{"reference: " + err.Error(), err.Error()} {
			if got := kindOf(reason); got != want {
				t.Errorf("%q: %q, want %q", reason, got, want)
			}
		}
	}
	if got := kindOf("reference: " + noName.Error()); got != kindNoName {
		t.Errorf("%v: %q", noName, got)
	}
}

// TestNames: the set has what was added, and nothing else.
func TestNames(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s names
		all := map[id]bool{}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		for range rapid.IntRange(0, 20_000).Draw(rt, "how many") {
			n := random.IntN(20_000)
			s.add(idOf("%d", n))
			all[idOf("%d", n)] = true
		}
		s.settle()
		if len(s.sorted) != len(all) {
			rt.Fatalf("%d of %d", len(s.sorted), len(all))
		}
		for range 1000 {
			n := random.IntN(20_100)
			if s.has(idOf("%d", n)) != all[idOf("%d", n)] {
				rt.Fatalf("%d: %v", n, s.has(idOf("%d", n)))
			}
		}
	})
}

// TestFindingJSON: what --json shows.
func TestFindingJSON(t *testing.T) {
	off, text, raw := uint64(0), Key("k"), Key("\xff")
	for want, f := range map[string]Finding{
		`{"kind":"orphaned","url":"s3://box/k","size":0}`: {Kind: Orphaned, URL: "s3://box/k"},
		`{"kind":"dangling","state":"missing","segment":"s","offset":0,"key":"k","unverified":true,"url":"s3://box/k","size":0,"reason":"r"}`: {
			Kind: Dangling, State: ref.Missing, Segment: "s", Offset: &off, Key: &text, Unverified: true, URL: "s3://box/k", Reason: "r"},
		`{"kind":"unpinned","key":{"base64":"/w=="},"url":"","size":0}`: {Kind: Unpinned, Key: &raw},
	} {
		if got := asJSON(t, f); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := asJSON(t, Deed{Done: Kept, Finding: Finding{URL: "u"}}); got != `{"done":"kept","kind":"","url":"u","size":0}` {
		t.Errorf("deed: %s", got)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
