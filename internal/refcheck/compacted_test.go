package refcheck

import (
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// compact seals the topic's segment, and has it compacted, its chunks deleted.
func (w *world) compact() {
	w.t.Helper()
	_, err := w.topic.Edit(w.t.Context(), time.Now(), func(l topic.Layout) (topic.Edit, error) { return l.Roll(l.Live[0].ID) })
	w.ok(err)
	r, err := compactor.New(compactor.Options{Store: w.store, Holder: "test"}).Topic(w.t.Context(), w.t.Context(), w.topic.Name)
	w.ok(err)
	if r.Trimmed != 1 {
		w.t.Fatalf("%+v", r)
	}
}

// mixed commits references in all states, and uploads that nobody or only a rejected
// record names.
func (w *world) mixed() {
	w.t.Helper()
	a, b, gone := w.put("box/a", "a", 0), w.put("box/b", "b", 0), w.put("far/gone", "gone", 0)
	w.pin(a)
	w.remove("far/gone")
	w.commit(entry{}, entry{ref: &a}, entry{ref: &gone, key: "k", pending: true})
	w.commit(entry{}, entry{})
	refused, named := w.put("box/spillway/images/refused", "r", 2*time.Hour), w.put("box/spillway/images/named", "n", 2*time.Hour)
	w.put("box/spillway/images/orphan", "o", 2*time.Hour)
	w.commit(entry{ref: &refused, rejected: "reference: wrong"})
	w.commit(append(to(b, named), entry{ref: &a, rejected: "reference: wrong"})...)
}

// TestCompacted: the references of a compacted segment are those that its chunks had.
func TestCompacted(t *testing.T) {
	w := newWorld(t)
	w.mixed()
	c := w.checker()
	c.Rejected = true // data files are read for all
	want, found := w.check(c)
	if want.References != 4 || want.Rejected.Records != 2 || want.Uploads.Found != 3 || len(found) < 3 {
		t.Fatalf("%+v, %q", want, found)
	}
	w.compact()
	for _, rejected := range []bool{false, true} {
		c := w.checker()
		c.Rejected = rejected
		got, again := w.check(c)
		if !slices.Equal(again, found) {
			t.Errorf("found %q, before %q", again, found)
		}
		if got.References != want.References || got.Dangling() != want.Dangling() || got.Unverified != want.Unverified ||
			got.Unpinned != want.Unpinned || got.Rejected.Records != want.Rejected.Records ||
			got.Uploads.Named != want.Uploads.Named || got.Uploads.Orphaned != want.Uploads.Orphaned || got.Uploads.Refused != want.Uploads.Refused {
			t.Errorf("%+v, before %+v", got, want)
		}
	}
}

// TestCompactedMeanwhile: a segment is compacted at each call of a check.
func TestCompactedMeanwhile(t *testing.T) {
	calls := 0
	for n := 0; n <= calls; n++ {
		w := newWorld(t)
		w.store.Inline = 0
		w.mixed()
		calls = 0
		store := segment.NewStore(w.fs.Client("reader", func(memfs.Op) memfs.Fault {
			if calls++; calls == n+1 {
				w.compact()
			}
			return memfs.Fault{}
		}), "test")
		top, err := store.Topic(t.Context(), "images")
		w.ok(err)
		var got []string
		for item, err := range newWalk(top, func(topic.SegmentID, segment.Chunk) bool { return true }).items(t.Context()) {
			if err != nil {
				t.Fatalf("at call %d: %v", n, err)
			}
			got = append(got, item.Ref.URL)
		}
		want := []string{"s3://box/a", "s3://far/gone", "s3://box/spillway/images/refused", "s3://box/b", "s3://box/spillway/images/named", "s3://box/a"}
		if !slices.Equal(got, want) {
			t.Errorf("at call %d: %q, want %q", n, got, want)
		}
	}
	if calls < 8 {
		t.Errorf("%d calls only", calls)
	}
}
