package segment

import (
	"slices"
	"testing"

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

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
