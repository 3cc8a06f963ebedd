package pin_test

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
)

const bucket = "pinned"

var (
	key    = object.Name{Bucket: bucket, Key: "dir/k"}
	orders = pin.Holder{Topic: "orders", Incarnation: "k3j9x2ab"}
	audit  = pin.Holder{Topic: "audit-2", Incarnation: "2zzzzzzz"}
)

// lab is a filer in memory with one object, and pins whose clock says when.
type lab struct {
	*memfs.FS
	*pin.Pins
	info object.Info
	now  time.Time
}

func newLab(t *testing.T, hook memfs.Hook) *lab {
	t.Helper()
	l := &lab{FS: memfs.New(), now: time.Date(2026, 3, 4, 5, 6, 7, 8, time.FixedZone("", 3600))}
	l.Pins = l.pins("p", hook)
	l.MakeBucket(bucket, false)
	l.info = l.put(t, key.Key, "bytes", nil)
	return l
}

func (l *lab) pins(name string, hook memfs.Hook) *pin.Pins {
	return &pin.Pins{Filer: l.Client(name, hook), Now: func() time.Time { return l.now }}
}

// put returns what a HEAD would.
func (l *lab) put(t *testing.T, key, data string, attrs filer.Attrs) object.Info {
	t.Helper()
	version, err := l.PutObject(bucket, key, []byte(data), attrs)
	if err != nil {
		t.Fatal(err)
	}
	return object.Info{Size: int64(len(data)), ETag: fmt.Sprintf("%x", md5.Sum([]byte(data))), Version: version}
}

func (l *lab) held(t *testing.T, n object.Name) []pin.Mark {
	t.Helper()
	marks, err := l.pins("look", nil).Held(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return marks
}

func (l *lab) attrs(t *testing.T) filer.Attrs {
	t.Helper()
	o, err := l.Client("look", nil).Look(t.Context(), filer.ObjectName{Bucket: bucket, Key: key.Key})
	if err != nil {
		t.Fatal(err)
	}
	return o.Attrs
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPinHeldUnpin(t *testing.T) {
	l := newLab(t, nil)
	ctx := t.Context()
	if marks := l.held(t, key); len(marks) != 0 {
		t.Errorf("before: %v", marks)
	}
	ok(t, l.Pin(ctx, key, l.info, orders))
	ok(t, l.Pin(ctx, key, l.info, audit))
	marks := l.held(t, key)
	if len(marks) != 2 || marks[0].Holder != audit || marks[1].Holder != orders || !marks[0].At.Equal(l.now.Truncate(time.Second)) {
		t.Fatalf("held by %+v", marks)
	}
	want := "orders 2026-03-04T04:06:07Z "
	if value := l.attrs(t)["Pin-K3j9x2ab"]; !strings.HasPrefix(value, want) || len(value) != len(want)+16 {
		t.Errorf("the mark is %q", value)
	}
	l.now = l.now.Add(time.Hour)
	ok(t, l.Pin(ctx, key, l.info, orders))
	if err := l.Unpin(ctx, key, marks[1]); !errors.Is(err, filer.ErrConflict) {
		t.Errorf("unpin of a mark that was renewed: %v", err)
	}
	again := l.held(t, key)
	if len(again) != 2 || again[1].Holder != orders || !again[1].At.Equal(l.now.Truncate(time.Second)) {
		t.Fatalf("held by %+v", again)
	}
	for range 2 {
		ok(t, l.Unpin(ctx, key, again[1]))
		ok(t, l.Unpin(ctx, key, marks[0]))
	}
	if attrs := l.attrs(t); len(attrs) != 0 {
		t.Errorf("left: %v", attrs)
	}
}

// TestSameSecond: two marks of one second are two marks.
func TestSameSecond(t *testing.T) {
	l := newLab(t, nil)
	ok(t, l.Pin(t.Context(), key, l.info, orders))
	old := l.held(t, key)[0]
	ok(t, l.Pin(t.Context(), key, l.info, orders))
	if err := l.Unpin(t.Context(), key, old); !errors.Is(err, filer.ErrConflict) {
		t.Errorf("unpin: %v", err)
	}
}

func TestPinErrors(t *testing.T) {
	l := newLab(t, nil)
	ok(t, l.Client("c", nil).Create(t.Context(), "/buckets/"+bucket+"/topics/t/own", filer.File{ID: "x"}))
	name := func(bucket, key, version string) object.Name {
		return object.Name{Bucket: bucket, Key: key, Version: version}
	}
	for what, c := range map[string]struct {
		n    object.Name
		info object.Info
		h    pin.Holder
		want error
	}{
		"another endpoint's bucket": {name("elsewhere", "k", ""), l.info, orders, pin.ErrElsewhere},
		"nothing there":             {name(bucket, "other", ""), l.info, orders, object.ErrNotFound},
		"no such version":           {name(bucket, key.Key, "abc"), l.info, orders, object.ErrNotFound},
		"another size":              {key, object.Info{Size: 6, ETag: l.info.ETag}, orders, object.ErrChanged},
		"another ETag":              {key, object.Info{Size: 5, ETag: "x"}, orders, object.ErrChanged},
		"a version of no request":   {key, object.Info{Size: 5, ETag: l.info.ETag, Version: "a b"}, orders, object.ErrNotFound},
		"the same elsewhere":        {name("elsewhere", "k", ""), object.Info{Version: "a/b " + strings.Repeat("v", 2000)}, orders, pin.ErrElsewhere},
		"a key that leads up":       {name(bucket, "../k", ""), l.info, orders, filer.ErrInvalid},
		"a version that leads up":   {name(bucket, key.Key, "../k"), l.info, orders, filer.ErrInvalid},
		"a bucket of the filer's":   {name(".system", "k", ""), l.info, orders, filer.ErrInvalid},
		"a file of our own":         {name(bucket, "topics/t/own", ""), l.info, orders, filer.ErrInvalid},
		"no topic":                  {key, l.info, pin.Holder{Incarnation: "a"}, filer.ErrInvalid},
		"a topic with a space":      {key, l.info, pin.Holder{Topic: "a b", Incarnation: "a"}, filer.ErrInvalid},
		"no incarnation":            {key, l.info, pin.Holder{Topic: "a"}, filer.ErrInvalid},
		"another case":              {key, l.info, pin.Holder{Topic: "a", Incarnation: "aB"}, filer.ErrInvalid},
		"a hyphen":                  {key, l.info, pin.Holder{Topic: "a", Incarnation: "a-b"}, filer.ErrInvalid},
		"not ASCII":                 {key, l.info, pin.Holder{Topic: "a", Incarnation: "ä"}, filer.ErrInvalid},
		"too long":                  {key, l.info, pin.Holder{Topic: "a", Incarnation: strings.Repeat("a", 33)}, filer.ErrInvalid},
	} {
		err := l.Pin(t.Context(), c.n, c.info, c.h)
		var bad *object.NameError
		if !errors.Is(err, c.want) || errors.As(err, &bad) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, n := range map[string]object.Name{"elsewhere": name("elsewhere", "k", ""), "gone": name(bucket, "other", "")} {
		if err := l.Unpin(t.Context(), n, pin.Mark{Holder: orders}); err != nil {
			t.Errorf("unpin %s: %v", what, err)
		}
	}
	if _, err := l.Held(t.Context(), name("elsewhere", "k", "")); !errors.Is(err, pin.ErrElsewhere) {
		t.Errorf("held elsewhere: %v", err)
	}
	if _, err := l.Held(t.Context(), name(bucket, "other", "")); !errors.Is(err, object.ErrNotFound) || !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("held by nothing: %v", err)
	}
	if len(l.attrs(t)) != 0 {
		t.Errorf("marked: %v", l.attrs(t))
	}
}

func TestTooMany(t *testing.T) {
	l := newLab(t, nil)
	holder := func(i int) pin.Holder { return pin.Holder{Topic: "t", Incarnation: fmt.Sprintf("i%d", i)} }
	for i := range pin.MaxHolders {
		ok(t, l.Pin(t.Context(), key, l.info, holder(i)))
	}
	if err := l.Pin(t.Context(), key, l.info, orders); !errors.Is(err, pin.ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	ok(t, l.Pin(t.Context(), key, l.info, holder(3))) // who holds it already may go on
	marks := l.held(t, key)
	if len(marks) != pin.MaxHolders {
		t.Fatalf("%d holders", len(marks))
	}
	ok(t, l.Unpin(t.Context(), key, marks[0]))
	ok(t, l.Pin(t.Context(), key, l.info, orders))
}

// TestVersions: the version that was looked at is pinned, and no other.
func TestVersions(t *testing.T) {
	l := newLab(t, nil)
	old := l.put(t, "v", "without versions", nil)
	l.MakeBucket(bucket, true)
	one, two := l.put(t, "v", "one", nil), l.put(t, "v", "two!", nil)
	n := object.Name{Bucket: bucket, Key: "v"}
	ok(t, l.Pin(t.Context(), n, one, orders))
	ok(t, l.Pin(t.Context(), n, old, audit)) // looked at before there were versions
	at := func(version string) object.Name { return object.Name{Bucket: bucket, Key: "v", Version: version} }
	for version, want := range map[string][]pin.Holder{one.Version: {orders}, two.Version: nil, "": nil, filer.NullVersion: {audit}} {
		marks := l.held(t, at(version))
		if len(marks) != len(want) || len(want) == 1 && marks[0].Holder != want[0] {
			t.Errorf("version %q is held by %v, want %v", version, marks, want)
		}
	}
	ok(t, l.Pin(t.Context(), at(two.Version), two, orders))
	if len(l.held(t, n)) != 1 {
		t.Error("the current version is not pinned")
	}
	ok(t, l.DeleteObject(filer.ObjectName{Bucket: bucket, Key: "v", Version: one.Version}))
	if err := l.Pin(t.Context(), n, one, orders); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("a version that is gone: %v", err)
	}
}

// TestForeign: what others have put there under names like ours is neither
// believed nor in the way.
func TestForeign(t *testing.T) {
	l := newLab(t, nil)
	info := l.put(t, key.Key, "bytes", filer.Attrs{
		"Sha256": "x", "Pin-": "x", "Pin-A-B": "x", "Pin-Ab": "x", "Pin-Ac": "t 2026-01-01T00:00:00Z", "Pin-Ad": "T 2026-01-01T00:00:00Z x",
		"Pin-Ae": "t yesterday x", "Pinned": "x", "Pin-Af": "t 2026-01-01T00:00:00Z x",
	})
	ok(t, l.Pin(t.Context(), key, info, orders))
	marks := l.held(t, key)
	var got []string
	for _, m := range marks {
		got = append(got, m.Holder.Incarnation+":"+m.Holder.Topic)
		if (m.Holder.Topic == "") != m.At.IsZero() {
			t.Errorf("%+v", m)
		}
		ok(t, l.Unpin(t.Context(), key, m))
	}
	if s := strings.Join(got, " "); s != "ab: ac: ad: ae: af:t k3j9x2ab:orders" {
		t.Errorf("marks %s", s)
	}
	if left := l.attrs(t); len(left) != 4 {
		t.Errorf("left %v", left)
	}
}

// TestRace: eight that pin for one holder, eight for others, one that puts the
// same bytes again, one that puts other bytes at the end.
func TestRace(t *testing.T) {
	l := newLab(t, nil)
	var g errgroup.Group
	for i := range 16 {
		p := l.pins(fmt.Sprint(i), nil)
		h := orders
		if i%2 == 1 {
			h = pin.Holder{Topic: "t", Incarnation: fmt.Sprintf("i%d", i)}
		}
		g.Go(func() error {
			for range 20 {
				if err := p.Pin(t.Context(), key, l.info, h); err != nil && !errors.Is(err, filer.ErrConflict) {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		for range 20 {
			if _, err := l.PutObject(bucket, key.Key, []byte("bytes"), nil); err != nil {
				return err
			}
		}
		return nil
	})
	ok(t, g.Wait())
	l.put(t, key.Key, "other", nil)
	if err := l.Pin(t.Context(), key, l.info, orders); !errors.Is(err, object.ErrChanged) {
		t.Errorf("pin of what is another object now: %v", err)
	}
	if marks := l.held(t, key); len(marks) != 0 {
		t.Errorf("an object that was never pinned has %v", marks)
	}
}

// TestBusy: who meets others at each try says so, and is not there for ever.
func TestBusy(t *testing.T) {
	l := newLab(t, nil)
	other := l.pins("other", nil)
	p := l.pins("p", func(op memfs.Op) memfs.Fault {
		if op.Name == "Mark" {
			ok(t, other.Pin(context.Background(), key, l.info, audit))
		}
		return memfs.Fault{}
	})
	if err := p.Pin(t.Context(), key, l.info, orders); !errors.Is(err, filer.ErrConflict) {
		t.Errorf("pin: %v", err)
	}
	if marks := l.held(t, key); len(marks) != 1 || marks[0].Holder != audit {
		t.Errorf("held by %v", marks)
	}
}

// TestFaults: whatever happens to the first four calls, a pin that returned nil
// is there, an unpin that returned nil is done, and both stay so.
func TestFaults(t *testing.T) {
	faults := []memfs.Fault{
		{}, {Before: errors.New("refused")}, {After: memfs.ErrLost}, {Late: 30 * time.Millisecond}, {Late: time.Hour}, {Hold: time.Hour},
	}
	for i := range len(faults) * len(faults) * len(faults) * len(faults) {
		seq := make([]memfs.Fault, 0, 4)
		for n, left := 0, i; n < 4; n, left = n+1, left/len(faults) {
			seq = append(seq, faults[left%len(faults)])
		}
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			l := newLab(t, func(memfs.Op) memfs.Fault {
				if calls++; calls > len(seq) {
					return memfs.Fault{}
				}
				return seq[calls-1]
			})
			if err := l.Pin(t.Context(), key, l.info, orders); err != nil {
				t.Fatalf("%v: pin: %v", seq, err)
			}
			l.Settle()
			marks := l.held(t, key)
			if len(marks) != 1 || marks[0].Holder != orders {
				t.Fatalf("%v: held by %v", seq, marks)
			}
			calls = 0
			if err := l.Unpin(t.Context(), key, marks[0]); err != nil {
				t.Fatalf("%v: unpin: %v", seq, err)
			}
			l.Settle()
			if attrs := l.attrs(t); len(attrs) != 0 {
				t.Errorf("%v: left: %v", seq, attrs)
			}
		})
	}
}

// TestUnpinAgainstPin: however a pin falls between what an unpin does, and
// whichever of their replies are lost, the object is pinned in the end.
func TestUnpinAgainstPin(t *testing.T) {
	delays := []memfs.Fault{{}, {Delay: time.Second}, {Hold: time.Second}, {Late: 2 * time.Second}, {After: memfs.ErrLost}}
	for _, pinLook := range delays {
		for _, pinMark := range delays {
			for _, unpinLook := range delays {
				for _, unpinMark := range delays {
					synctest.Test(t, func(t *testing.T) {
						l := newLab(t, nil)
						ok(t, l.Pin(t.Context(), key, l.info, orders))
						old := l.held(t, key)[0]
						var g errgroup.Group
						g.Go(func() error {
							return l.pins("pin", firsts(pinLook, pinMark)).Pin(t.Context(), key, l.info, orders)
						})
						g.Go(func() error {
							err := l.pins("unpin", firsts(unpinLook, unpinMark)).Unpin(t.Context(), key, old)
							if errors.Is(err, filer.ErrConflict) {
								return nil
							}
							return err
						})
						ok(t, g.Wait())
						l.Settle()
						if marks := l.held(t, key); len(marks) != 1 || marks[0] == old {
							t.Errorf("%v %v %v %v: held by %v", pinLook, pinMark, unpinLook, unpinMark, marks)
						}
					})
				}
			}
		}
	}
}

// firsts injects faults into the first look and the first mark.
func firsts(look, mark memfs.Fault) memfs.Hook {
	return func(op memfs.Op) memfs.Fault {
		switch {
		case op.N == 1 && op.Name == "Look":
			return look
		case op.N == 1 && op.Name == "Mark":
			return mark
		}
		return memfs.Fault{}
	}
}
