package segment

import (
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestPositionsOutliveEdits: a position printed before a chain of edits reads on
// exactly after it, wherever in the topic it was.
func TestPositionsOutliveEdits(t *testing.T) {
	fs := memfs.New()
	top, _ := newTopic(t, fs, 2)
	commitBy(t, top, spread(t, "lane", 1, 30))
	var all []string
	var positions []string
	r := mustRead(t, top, nil)
	note := func() {
		positions = append(positions, r.Position().String())
	}
	note()
	for item, err := range r.Next(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(item.Value))
		note()
	}
	latest, err := top.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(31)
	for _, plan := range []func(topic.Layout) (topic.Edit, error){splitFirst, mergeAll, splitFirst, rollFirst, splitFirst, mergeAll} {
		mustEdit(t, top, plan)
		commitBy(t, top, spread(t, "lane", next, next+4))
		next += 5
		for item, err := range r.Next(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(item.Value))
			note()
		}
	}
	if len(all) != int(next-1) {
		t.Fatalf("read %d records of %d", len(all), next-1)
	}
	for i, s := range positions {
		p, err := ParseReadPosition(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := values(t, mustRead(t, top, p)); !sameSet(got, all[i:]) {
			t.Fatalf("from %s, after %d: read %q, want %q", s, i, got, all[i:])
		}
	}
	if got := values(t, mustRead(t, top, latest)); !sameSet(got, all[30:]) {
		t.Errorf("from latest: read %q", got)
	}
	if last := positions[len(positions)-1]; len(r.Position()) > 1 {
		t.Errorf("the position at the end names more than what is live: %s", last)
	}
}

// TestEveryStartOutlivesEdits: whatever a reader started from, a position that it
// printed before a chain of edits, also before its first record, reads on after it
// exactly as the reader itself does.
func TestEveryStartOutlivesEdits(t *testing.T) {
	for name, start := range map[string]func(*Topic) (*Reader, error){
		"earliest": func(top *Topic) (*Reader, error) { return top.Read(t.Context(), nil) },
		"latest": func(top *Topic) (*Reader, error) {
			p, err := top.Latest(t.Context())
			if err != nil {
				return nil, err
			}
			return top.Read(t.Context(), p)
		},
		"a time in a root":   func(top *Topic) (*Reader, error) { return top.ReadSince(t.Context(), noon.Add(13*time.Second)) },
		"a time in children": func(top *Topic) (*Reader, error) { return top.ReadSince(t.Context(), noon.Add(45*time.Second)) },
		"a time to come":     func(top *Topic) (*Reader, error) { return top.ReadSince(t.Context(), noon.Add(time.Hour)) },
	} {
		for stop := 0; stop < 30; stop += 7 {
			top, _ := newTopic(t, memfs.New(), 2)
			commitBy(t, top, spread(t, "lane", 1, 30))
			mustEdit(t, top, splitFirst)
			commitBy(t, top, spread(t, "lane", 31, 60))
			r, err := start(top)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, err := range r.Next(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if n++; n >= stop {
					break
				}
			}
			p := r.Position()
			for _, plan := range []func(topic.Layout) (topic.Edit, error){mergeAll, splitFirst, rollFirst} {
				mustEdit(t, top, plan)
			}
			commitBy(t, top, spread(t, "lane", 61, 70))
			if want, got := values(t, r), values(t, mustRead(t, top, p)); !slices.Equal(got, want) || len(want) < 10 {
				t.Errorf("%s, after %d, from %s: read %q, want %q", name, n, p, got, want)
			}
		}
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
