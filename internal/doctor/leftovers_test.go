package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

const topicsDir = "/buckets/spillway/topics/"

// put makes a file of a time.
func put(t *testing.T, store *segment.Store, path string, at time.Time) {
	t.Helper()
	f := filer.File{ID: filer.NewID(), Content: []byte("x"), MTime: at}
	if err := store.Filer.Create(t.Context(), path, f); err != nil {
		t.Fatal(err)
	}
}

// halfMade puts what the creation or deletion of a topic can leave.
func halfMade(t *testing.T, store *segment.Store, dir string, at time.Time) {
	t.Helper()
	put(t, store, dir+"/layout/head", at.Add(-time.Hour))
	put(t, store, dir+"/segments/00000000-00-x/head", at)
	put(t, store, dir+"/segments/00000000-00-x/segment.json", at.Add(-time.Minute))
}

func TestSweep(t *testing.T) {
	fs := memfs.New()
	store := segment.NewStore(fs.Client("c", nil), "spillway")
	if _, err := store.CreateTopic(t.Context(), orders, 2, noon); err != nil {
		t.Fatal(err)
	}
	kept := fs.Paths()
	halfMade(t, store, topicsDir+"orders/aaaaaaaa", noon.Add(-25*time.Hour)) // of an earlier topic of the name
	halfMade(t, store, topicsDir+"gone/bbbbbbbb", noon.Add(-1000*time.Hour))
	halfMade(t, store, topicsDir+"new/cccccccc", noon.Add(-23*time.Hour))
	halfMade(t, store, topicsDir+"used/dddddddd", noon.Add(-1000*time.Hour))
	put(t, store, topicsDir+"used/dddddddd/segments/00000000-00-x/0000000000000000.avro", noon.Add(-2000*time.Hour))
	put(t, store, topicsDir+"Not a topic/x/segments/y/head", time.Unix(0, 0))
	put(t, store, topicsDir+"stray", time.Unix(0, 0))

	findings := leftovers(t.Context(), store, nil, false)
	r := Report{Findings: findings}
	if len(findings) != 2 || r.Count(Fail) != 1 || !strings.Contains(findings[0].Seen, "used/dddddddd holds 1 files of records") ||
		findings[1].Status != Warn || !strings.Contains(findings[1].Seen, "3 folders") {
		t.Errorf("got %+v", findings)
	}
	want := Swept{
		Deleted: []string{topicsDir + "gone/bbbbbbbb", topicsDir + "orders/aaaaaaaa"},
		Young:   []string{topicsDir + "new/cccccccc"}, Used: []string{topicsDir + "used/dddddddd"},
	}
	for range 2 {
		got, err := Sweep(t.Context(), store, noon)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("error %v:\n%s", err, diff)
		}
		want.Deleted = []string{}
	}
	for _, p := range kept {
		if !slices.Contains(fs.Paths(), p) {
			t.Errorf("%s is gone", p)
		}
	}
	if entries, err := store.Filer.List(t.Context(), topicsDir[:len(topicsDir)-1], "", 0); err != nil ||
		slices.ContainsFunc(entries, func(e filer.Entry) bool { return e.Name() == "gone" }) {
		t.Errorf("the folder of the swept topic is still there, or error %v", err)
	}
}

// TestSweepMeetsCreation: a topic that is made while folders are looked at is
// safe at any age and whatever the clocks say, since its topic.json comes first
// and is read last.
func TestSweepMeetsCreation(t *testing.T) {
	fs := memfs.New()
	maker := segment.NewStore(fs.Client("maker", nil), "spillway")
	made := false
	sweeper := segment.NewStore(fs.Client("sweeper", func(op memfs.Op) memfs.Fault {
		if !made && op.Name == "List" && op.Path == topicsDir+"orders" {
			made = true
			if _, err := maker.CreateTopic(t.Context(), orders, 1, time.Unix(0, 0)); err != nil {
				t.Error(err)
			}
		}
		return memfs.Fault{}
	}), "spillway")
	halfMade(t, maker, topicsDir+"orders/aaaaaaaa", time.Unix(0, 0))
	swept, err := Sweep(t.Context(), sweeper, noon.Add(1e6*time.Hour))
	if diff := cmp.Diff([]string{topicsDir + "orders/aaaaaaaa"}, swept.Deleted); diff != "" || err != nil || !made {
		t.Errorf("made %v, error %v:\n%s", made, err, diff)
	}
	top, err := maker.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := top.Segments(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLargeLeftover(t *testing.T) {
	fs := memfs.New()
	store := segment.NewStore(fs.Client("c", nil), "spillway")
	for i := range mostEntries + 1 {
		put(t, store, fmt.Sprintf("%sbig/aaaaaaaa/x/%06d", topicsDir, i), time.Unix(0, 0))
	}
	if swept, err := Sweep(t.Context(), store, noon); err != nil || len(swept.Used) != 1 || len(swept.Deleted) > 0 {
		t.Errorf("swept %+v, error %v", swept, err)
	}
}

func TestVoidChunks(t *testing.T) {
	fs := memfs.New()
	store := segment.NewStore(fs.Client("c", nil), "spillway")
	top, err := store.CreateTopic(t.Context(), orders, 1, noon)
	if err != nil {
		t.Fatal(err)
	}
	segs, err := top.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := top.Dir() + "/segments/" + string(segs[0].ID)
	head, err := store.Filer.Lookup(t.Context(), dir+"/head")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		put(t, store, fmt.Sprintf("%s/%016d.avro", dir, i), noon)
	}
	if n, all, err := voidChunks(t.Context(), store, []topic.Definition{top.Definition}); n != 0 || !all || err != nil {
		t.Errorf("before the head moved: %d, %v, error %v", n, all, err)
	}
	move := func(to string) {
		for name := range head.Attrs {
			head.Attrs[name] = to
		}
		next := filer.File{ID: filer.NewID(), Attrs: head.Attrs}
		if err := store.Filer.Update(t.Context(), head.Path, head.ID, next); err != nil {
			t.Fatal(err)
		}
		head.ID = next.ID
	}
	move("3")
	if n, all, err := voidChunks(t.Context(), store, []topic.Definition{top.Definition}); n != 3 || !all || err != nil {
		t.Errorf("got %d, %v, error %v", n, all, err)
	}
	wantFinding(t, Report{Findings: leftovers(t.Context(), store, nil, false)}, Finding{Check: "leftovers", Status: Warn, Seen: "3 chunks below the heads"})
	move("nonsense")
	wantFinding(t, Report{Findings: leftovers(t.Context(), store, nil, false)}, Finding{Check: "leftovers", Status: Fail, Seen: "bad head"})
}

func TestStrayCheckpoints(t *testing.T) {
	fs := memfs.New()
	store := segment.NewStore(fs.Client("c", nil), "spillway")
	for _, name := range []string{"lane.default.0.now.json", "lane.default.0.old1.json", "lane.default.0.old2.json", "lane.big.3.x.json", "backfill.x.json", "lane.json"} {
		put(t, store, "/buckets/spillway/checkpoints/"+name, noon)
	}
	r := Report{Findings: leftovers(t.Context(), store, []Lane{fit(9)}, true)}
	if len(r.Findings) != 2 {
		t.Errorf("got %+v", r.Findings)
	}
	wantFinding(t, r, Finding{Check: "leftovers", Status: OK, Seen: "2 checkpoints of earlier incarnations"})
	wantFinding(t, r, Finding{Check: "leftovers", Status: Warn, Seen: "lane.big.3.x.json is of lane big.3, which does not exist"})
}

func TestUnfinishedDeletion(t *testing.T) {
	fs := memfs.New()
	store := segment.NewStore(fs.Client("c", nil), "spillway")
	if _, err := store.CreateTopic(t.Context(), orders, 1, noon); err != nil {
		t.Fatal(err)
	}
	cut := segment.NewStore(fs.Client("cut", func(op memfs.Op) memfs.Fault {
		if op.Name == "DeleteTree" {
			return memfs.Fault{Before: filer.ErrReadOnly}
		}
		return memfs.Fault{}
	}), "spillway")
	if err := cut.DeleteTopic(t.Context(), "orders", noon); err == nil {
		t.Fatal("the deletion was not interrupted")
	}
	wantFinding(t, Report{Findings: leftovers(t.Context(), store, nil, false)}, Finding{Check: "leftovers", Status: Warn, Seen: "topic orders is being deleted"})
}
