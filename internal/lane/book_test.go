package lane

import (
	"errors"
	"net"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(p)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBook compares the book with a plain list of who waits.
func TestBook(t *testing.T) {
	type wait struct {
		w        *waiter
		got      []error
		want     error
		settled  bool
		resigned bool
	}
	rapid.Check(t, func(t *rapid.T) {
		var b book
		var all []*wait
		known := map[string]uint64{}
		closed := false
		incs := rapid.SampledFrom([]string{"a", "b", "c"})
		settle := func(match func(*wait) bool, err error) {
			for _, x := range all {
				if !x.settled && !x.resigned && match(x) {
					x.settled, x.want = true, err
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				inc, seq := incs.Draw(t, "inc"), rapid.Uint64Range(0, 20).Draw(t, "seq")
				x := &wait{}
				x.w = &waiter{incarnation: inc, seq: seq, done: func(err error) { x.got = append(x.got, err) }}
				cp, ok := known[inc]
				switch {
				case ok && cp >= seq:
					x.settled = true
				case closed:
					x.settled, x.want = true, ErrWatchClosed
				}
				all = append(all, x)
				if added := b.add(x.w); added == x.settled {
					t.Fatalf("add: %v, settled: %v", added, x.settled)
				}
			},
			"advance": func(t *rapid.T) {
				inc, cp := incs.Draw(t, "inc"), rapid.Uint64Range(0, 20).Draw(t, "checkpoint")
				known[inc] = max(known[inc], cp)
				settle(func(x *wait) bool { return x.w.incarnation == inc && x.w.seq <= cp }, nil)
				others := false
				for _, x := range all {
					others = others || !x.settled && !x.resigned && x.w.incarnation != inc
				}
				if got := b.advance(inc, cp); got != others {
					t.Fatalf("others: %v, want %v", got, others)
				}
			},
			"expire": func(t *rapid.T) {
				cur := incs.Draw(t, "inc")
				settle(func(x *wait) bool { return x.w.incarnation != cur }, ErrIncarnation)
				b.expire(b.incarnations(), cur)
			},
			"resign": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				x := rapid.SampledFrom(all).Draw(t, "waiter")
				x.resigned = true
				b.remove(x.w)
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					closed = true
					settle(func(*wait) bool { return true }, ErrWatchClosed)
					b.close()
				}
			},
			"": func(t *rapid.T) {
				for i, x := range all {
					n := 0
					if x.settled {
						n = 1
					}
					if len(x.got) != n || n == 1 && !errors.Is(x.got[0], x.want) {
						t.Fatalf("waiter %d: got %v, settled %v with %v", i, x.got, x.settled, x.want)
					}
				}
			},
		})
	})
}
