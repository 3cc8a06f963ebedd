package lane

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

// makeGroup makes the lanes of a group that are listed, of n.
func makeGroup(t *testing.T, js jetstream.JetStream, group string, n int, which ...int) {
	t.Helper()
	for _, i := range which {
		if _, err := Ensure(t.Context(), js, ID{group, i}, Settings{MaxBytes: 1 << 20, Lanes: n}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGroups(t *testing.T) {
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	if _, err := OpenGroup(t.Context(), js, "big"); !errors.Is(err, ErrNoLane) {
		t.Errorf("no group: %v", err)
	}
	makeGroup(t, js, "big", 4, 0, 1)
	lacks, ok := errors.AsType[*IncompleteError](second(OpenGroup(t.Context(), js, "big")))
	if !ok || lacks.Lanes != 4 || !slices.Equal(lacks.Missing, []int{2, 3}) {
		t.Errorf("half a group: %v", lacks)
	}
	makeGroup(t, js, "big", 4, 2, 3)
	makeGroup(t, js, "a-1", 1, 0)
	makeGroup(t, js, Default, 1, 0)
	lanes, err := OpenGroup(t.Context(), js, "big")
	if err != nil || len(lanes) != 4 || lanes[3].ID != (ID{"big", 3}) {
		t.Errorf("%+v, %v", lanes, err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "spillway-lane-x", Subjects: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	groups, err := Groups(t.Context(), js)
	if diff := cmp.Diff([]string{"a-1", "big", "default"}, groups); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if err := Remove(t.Context(), js, ID{"big", 1}); err != nil {
		t.Fatal(err)
	}
	makeGroup(t, js, "big", 5, 1) // somebody with other ideas
	if _, err := OpenGroup(t.Context(), js, "big"); !strings.Contains(errorText(err), "lane 0 says 4") {
		t.Errorf("lanes that disagree: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		group string
		n     int
		ok    bool
	}{{"big", 1, true}, {"big", MaxLanes, true}, {"big", 0, false}, {"big", -1, false}, {"big", 1000, false}, {Default, 1, true}, {Default, 2, false}} {
		err := CheckSize(c.group, c.n)
		if _, is := errors.AsType[*SizeError](err); is == c.ok || (err == nil) != c.ok {
			t.Errorf("%s, %d: %v", c.group, c.n, err)
		}
	}
	for _, name := range []string{"", "Big", "a.b", "a*", "_x", strings.Repeat("x", 33), "größe"} {
		if _, is := errors.AsType[*topic.NameError](CheckSize(name, 2)); !is {
			t.Errorf("%q is accepted", name)
		}
	}
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	if _, err := Ensure(t.Context(), js, ID{"big", 0}, Settings{Lanes: 1000}); err == nil {
		t.Error("a lane of a group of 1000 was made")
	}
	if _, err := Ensure(t.Context(), js, ID{"big", 2}, Settings{Lanes: 2}); err == nil {
		t.Error("lane 2 of a group of two was made")
	}
}

func TestAClosedLaneTakesNothing(t *testing.T) {
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	id := ID{"big", 0}
	makeGroup(t, js, "big", 1, 0)
	publish := func() error {
		return second(js.Publish(t.Context(), id.Subject("t"), []byte("x"), jetstream.WithRetryAttempts(0)))
	}
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		info, err := Close(t.Context(), js, id)
		if err != nil || info.Last != 1 {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	if err := publish(); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Errorf("publish to a closed lane: %v", err)
	}
	if _, err := Open(t.Context(), js, id); !isMismatch(err) {
		t.Errorf("open a closed lane: %v", err)
	}
	if _, err := Reopen(t.Context(), js, id); err != nil {
		t.Fatal(err)
	}
	if err := publish(); err != nil {
		t.Error(err)
	}
	info, err := Renew(t.Context(), js, id, "abcdefgh")
	if err != nil || info.Incarnation != "abcdefgh" || info.Last != 2 || info.Lanes != 1 {
		t.Errorf("renewed: %+v, %v", info, err)
	}
	for range 2 {
		if err := Remove(t.Context(), js, id); err != nil {
			t.Error(err)
		}
	}
	if _, err := Close(t.Context(), js, id); !errors.Is(err, ErrNoLane) {
		t.Errorf("close a lane that is gone: %v", err)
	}
}

func isMismatch(err error) bool { _, is := errors.AsType[*MismatchError](err); return is }

func TestLaneForCoversAllLanesEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, MaxLanes).Draw(t, "lanes")
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		if l := Choose(key, n); l < 0 || l >= n {
			t.Fatalf("lane %d of %d", l, n)
		}
	})
	counts := make([]int, 8)
	for i := range 80_000 {
		counts[Choose([]byte{byte(i), byte(i >> 8), byte(i >> 16)}, 8)]++
	}
	for l, c := range counts {
		if c < 9_000 || c > 11_000 {
			t.Errorf("lane %d got %d of 80000 keys", l, c)
		}
	}
}

func TestAfters(t *testing.T) {
	all := []After{{ID{Default, 0}, "k3j9x2ab", 123}, {ID{"big", 7}, "abc", 1}}
	text := FormatAfters(all)
	if text != "default.0=k3j9x2ab:123,big.7=abc:1" {
		t.Errorf("%q", text)
	}
	got, err := ParseAfters(text)
	if diff := cmp.Diff(all, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	many := make([]After, MaxLanes)
	for i := range many {
		many[i] = After{ID{strings.Repeat("g", 32), i}, "abcdefgh", 1<<63 - 1}
	}
	if text := FormatAfters(many); len(text) > 3000 {
		t.Errorf("the longest header has %d bytes", len(text))
	} else if got, err := ParseAfters(text); err != nil || len(got) != MaxLanes {
		t.Errorf("%d, %v", len(got), err)
	}
	for _, bad := range []string{
		"", ",", "x", "big.0", "big.0=", "big.0=abc", "big.0=abc:", "big.0=abc:0", "big.0=abc:-1", "big.0=abc:x",
		"big.0=../x:1", "big.0=ABC:1", "Big.0=abc:1", "big.00=abc:1", "big.0=abc:9223372036854775808",
		"big.0=abc:1,", "big.0=abc:1,,big.1=abc:1", text + strings.Repeat(",big.0=abc:1", 40), "big.0=" + strings.Repeat("a", 33) + ":1",
	} {
		if _, err := ParseAfters(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		} else if _, is := errors.AsType[*AfterError](err); !is {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzAfters(f *testing.F) {
	f.Add("default.0=k3j9x2ab:123,big.7=abc:1")
	f.Add("=:,")
	f.Fuzz(func(t *testing.T, s string) {
		all, err := ParseAfters(s)
		if err != nil {
			return
		}
		again, err := ParseAfters(FormatAfters(all))
		if err != nil || !slices.Equal(all, again) {
			t.Errorf("%q: %v, %v", s, again, err)
		}
	})
}

func TestBindings(t *testing.T) {
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	ctx := t.Context()
	if all, err := Bindings(ctx, js); err != nil || len(all) != 0 {
		t.Errorf("before anything is bound: %v, %v", all, err)
	}
	if err := Unbind(ctx, js, "t"); err != nil {
		t.Error(err)
	}
	b := Binding{Group: "big", Lanes: 8, Topic: "abc"}
	for _, name := range []string{"orders", "clicks"} {
		if err := Bind(ctx, js, name, b); err != nil {
			t.Fatal(err)
		}
	}
	for name, bad := range map[string]Binding{
		"a.b": b, "x": {Group: "big"}, "y": {Group: "Big", Lanes: 2}, "z": {Group: "big", Lanes: 1000},
	} {
		if err := Bind(ctx, js, name, bad); err == nil {
			t.Errorf("%s was bound to %+v", name, bad)
		}
	}
	kv, err := js.KeyValue(ctx, BindingsBucket)
	if err != nil {
		t.Fatal(err)
	}
	for name, garbage := range map[string]string{"g1": "{", "g2": `{"group":"big","lanes":-1}`, "g3.x": `{"group":"big","lanes":1}`} {
		if _, err := kv.PutString(ctx, name, garbage); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Bindings(ctx, js)
	if diff := cmp.Diff(map[string]Binding{"orders": b, "clicks": b}, all); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if err := Unbind(ctx, js, "clicks"); err != nil {
		t.Fatal(err)
	}
	all, err = Bindings(ctx, js)
	if names := slices.Collect(maps.Keys(all)); err != nil || !slices.Equal(names, []string{"orders"}) {
		t.Errorf("%v, %v", names, err)
	}
}

func TestBindingChangesAreTold(t *testing.T) {
	s := startServer(t, t.TempDir(), -1)
	_, js := connect(t, s)
	b := Binding{Group: "big", Lanes: 8, Topic: "abc"}
	if err := Bind(t.Context(), js, "t", b); err != nil {
		t.Fatal(err)
	}
	changes, ended := make(chan BindingChange, 10), make(chan error, 1)
	go func() { ended <- FollowBindings(t.Context(), js, func(c BindingChange) { changes <- c }) }()
	expect := func(want BindingChange) {
		t.Helper()
		select {
		case got := <-changes:
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
		case err := <-ended:
			t.Fatal(err)
		}
	}
	expect(BindingChange{Topic: "t", Binding: b, Bound: true})
	expect(BindingChange{})
	b.Group = "bigger"
	if err := Bind(t.Context(), js, "t", b); err != nil {
		t.Fatal(err)
	}
	expect(BindingChange{Topic: "t", Binding: b, Bound: true})
	if err := Unbind(t.Context(), js, "t"); err != nil {
		t.Fatal(err)
	}
	expect(BindingChange{Topic: "t"})
}
