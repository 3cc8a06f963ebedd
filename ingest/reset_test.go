package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// backup is a site whose NATS server can be set back to an earlier state.
type backup struct {
	*site
	srv    *server.Server
	dir    string
	faulty atomic.Pointer[memfs.Hook]
	lane   *ingest.JetStream
}

func newBackup(t *testing.T) *backup {
	t.Helper()
	b := &backup{dir: t.TempDir()}
	hook := func(op memfs.Op) memfs.Fault {
		if h := b.faulty.Load(); h != nil {
			return (*h)(op)
		}
		return memfs.Fault{}
	}
	b.site = &site{T: t, store: segment.NewStore(memfs.New().Client("site", hook), "site")}
	b.run()
	return b
}

func (b *backup) run() {
	b.Helper()
	b.srv = devtest.NATSOn(b.T, filepath.Join(b.dir, "now"), server.RANDOM_PORT)
	b.nc, b.js = dial(b.T, b.srv)
	b.lane = b.group(lane.Default, 1)[0]
}

func (b *backup) halt() {
	b.nc.Close()
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
}

// save keeps the server's state.
func (b *backup) save() {
	b.Helper()
	b.halt()
	if err := os.CopyFS(filepath.Join(b.dir, "then"), os.DirFS(filepath.Join(b.dir, "now"))); err != nil {
		b.Fatal(err)
	}
	b.run()
}

// restore sets the server back.
func (b *backup) restore() {
	b.Helper()
	b.halt()
	if err := os.RemoveAll(filepath.Join(b.dir, "now")); err != nil {
		b.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(b.dir, "now"), os.DirFS(filepath.Join(b.dir, "then"))); err != nil {
		b.Fatal(err)
	}
	b.run()
}

func (b *backup) fill(topic string, from, to int) (values []string) {
	b.Helper()
	for i := from; i <= to; i++ {
		v := fmt.Sprintf("%s%d", topic, i)
		b.publish(b.lane.ID, topic, v)
		values = append(values, v)
	}
	return values
}

func (b *backup) repair() ingest.Repair {
	return ingest.Repair{NATS: b.nc, Store: b.store, ID: b.lane.ID, By: "me"}
}

func (b *backup) reset() ingest.ResetReport {
	b.Helper()
	rep, err := b.repair().Reset(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	state, err := b.lane.State(b.Context())
	if err != nil || state.Incarnation != rep.Is || rep.Is == rep.Was {
		b.Errorf("the lane has incarnation %s, %v; %+v", state.Incarnation, err, rep)
	}
	trail, err := ingest.Audit(b.Context(), b.store, b.lane.ID.Source(rep.Was))
	if err != nil || len(trail.Events) == 0 || trail.Events[len(trail.Events)-1].Successor != rep.Is {
		b.Errorf("audit: %+v, %v", trail, err)
	}
	return rep
}

func (b *backup) expect(topic string, want []string) {
	b.Helper()
	if got := b.values(topic); !slices.Equal(got, want) {
		b.Errorf("topic %s: %q, want %q", topic, got, want)
	}
}

// TestResetAfterARestore: a lane that lost its end goes on, with what was
// published since, and without what was committed.
func TestResetAfterARestore(t *testing.T) {
	t.Parallel()
	b := newBackup(t)
	b.topic("t")
	want := b.fill("t", 1, 10)
	b.save()
	want = append(want, b.fill("t", 11, 20)...)
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	if _, err := b.repair().Reset(t.Context()); !errors.Is(err, ingest.ErrNotBack) {
		t.Errorf("a lane that did not go back: %v", err)
	}
	b.restore()
	want = append(want, b.fill("t", 21, 25)...)
	if err := b.drain(b.lane); !is[*ingest.LaneBackError](err) {
		t.Fatalf("the worker ends with %v", err)
	}
	rep := b.reset()
	if rep.First != 11 || rep.Messages != 5 || rep.Missing != 5 || rep.Finished != 0 {
		t.Errorf("%+v", rep)
	}
	want = append(want, b.fill("t", 26, 28)...)
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	b.expect("t", want)
	if _, err := b.repair().Reset(t.Context()); !errors.Is(err, ingest.ErrNotBack) {
		t.Errorf("a second reset: %v", err)
	}
}

// TestResetOfAnEmptiedLane: nothing is left of it, not even the witness.
func TestResetOfAnEmptiedLane(t *testing.T) {
	t.Parallel()
	b := newBackup(t)
	b.topic("t")
	b.save()
	want := b.fill("t", 1, 20)
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	b.restore()
	if rep := b.reset(); rep.First != 1 || rep.Messages != 0 {
		t.Errorf("%+v", rep)
	}
	want = append(want, b.fill("t", 21, 25)...)
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	b.expect("t", want)
}

// TestResetOfAPurgedLane: somebody purged it above the checkpoint.
func TestResetOfAPurgedLane(t *testing.T) {
	t.Parallel()
	b := newBackup(t)
	b.topic("t")
	want := b.fill("t", 1, 10)
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	b.fill("t", 11, 15)
	if err := b.lane.Trim(t.Context(), 16); err != nil {
		t.Fatal(err)
	}
	want = append(want, b.fill("t", 16, 20)...)
	if err := b.drain(b.lane); !is[*ingest.LaneBackError](err) {
		t.Fatalf("the worker ends with %v", err)
	}
	if rep := b.reset(); rep.First != 16 || rep.Messages != 5 {
		t.Errorf("%+v", rep)
	}
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	b.expect("t", want)
}

// halfCommitted is a lane that lost its end after a worker had died, which had
// committed one of two topics above the checkpoint. Both have new messages since.
func halfCommitted(t *testing.T) (b *backup, wantT, wantU []string) {
	t.Helper()
	b = newBackup(t)
	b.topic("t")
	b.topic("u")
	wantT, wantU = b.fill("t", 1, 5), b.fill("u", 1, 5)
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	wantT = append(wantT, b.fill("t", 6, 7)...)
	wantU = append(wantU, b.fill("u", 6, 7)...)
	b.save()
	wantT = append(wantT, b.fill("t", 8, 9)...)
	b.fill("u", 8, 9) // they will be lost before they are committed
	hook := memfs.Hook(func(op memfs.Op) memfs.Fault {
		if op.Name == "Create" && strings.Contains(op.Path, "/topics/u/") || strings.Contains(op.Path, "/checkpoints/") && op.Name == "Update" {
			return memfs.Fault{Before: errors.New("the filer is out of order")}
		}
		return memfs.Fault{}
	})
	b.faulty.Store(&hook)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.worker(b.lane, true).Run(ctx, ctx) }()
	b.eventually("topic t is committed", func() bool { return len(b.values("t")) == len(wantT) })
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("the worker did not notice that the filer was out of order")
	}
	b.faulty.Store(nil)
	b.restore()
	return b, append(wantT, b.fill("t", 10, 12)...), append(wantU, b.fill("u", 10, 12)...)
}

// TestResetWithCommitsAboveTheCheckpoint: what the lane still has of the last
// flush is completed, in the segments that lack it and in no other.
func TestResetWithCommitsAboveTheCheckpoint(t *testing.T) {
	t.Parallel()
	b, wantT, wantU := halfCommitted(t)
	rep := b.reset()
	if rep.Finished != 2 || rep.First != 13 || rep.Missing != 0 || rep.Twice != 0 {
		t.Errorf("%+v", rep)
	}
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	b.expect("t", wantT)
	b.expect("u", wantU)
}

// TestResetAfterAWorkerWentOn: a worker has read the lane since it lost its end,
// until it met a segment that showed it. Nothing is lost; what it took in
// meanwhile may be there twice, and the report says so.
func TestResetAfterAWorkerWentOn(t *testing.T) {
	t.Parallel()
	for range 5 { // how far the worker gets is a matter of chance
		b, wantT, wantU := halfCommitted(t)
		if err := b.drain(b.lane); !errors.Is(err, segment.ErrSourceWentBack) {
			t.Fatalf("the worker ends with %v", err)
		}
		rep := b.reset()
		if err := b.drain(b.lane); err != nil {
			t.Fatal(err)
		}
		b.expect("t", wantT)
		got := b.values("u")
		if rep.Twice == 0 {
			b.expect("u", wantU)
		} else if want := append(slices.Clone(wantU), wantU[len(wantU)-3:]...); !slices.Equal(got, want) {
			t.Errorf("%q, want %q; %+v", got, want, rep)
		}
	}
}

// TestAcceptGap: messages above the checkpoint are gone, others are there.
func TestAcceptGap(t *testing.T) {
	t.Parallel()
	b := newBackup(t)
	b.topic("t")
	want := b.fill("t", 1, 3)
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	if _, err := b.repair().AcceptGap(t.Context(), 4); !is[*ingest.NoGapError](err) {
		t.Errorf("nothing is there yet: %v", err)
	}
	b.fill("lost", 4, 6)
	if _, err := b.repair().AcceptGap(t.Context(), 4); !is[*ingest.NoGapError](err) {
		t.Errorf("nothing is missing: %v", err)
	}
	want = append(want, b.fill("t", 7, 8)...)
	stream, err := b.js.Stream(t.Context(), b.lane.ID.Stream())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(b.lane.ID.Subject("lost"))); err != nil {
		t.Fatal(err)
	}
	if err := b.drain(b.lane); !is[*ingest.GapError](err) {
		t.Fatalf("the worker ends with %v", err)
	}
	if _, err := b.repair().Reset(t.Context()); !errors.Is(err, ingest.ErrNotBack) {
		t.Errorf("a gap is no reason for a reset: %v", err)
	}
	for _, to := range []uint64{0, 3, 7, 8, 100} {
		if _, err := b.repair().AcceptGap(t.Context(), to); !is[*ingest.NoGapError](err) {
			t.Errorf("up to %d: %v", to, err)
		}
	}
	for i, to := range []uint64{4, 6} { // in two steps
		from, err := b.repair().AcceptGap(t.Context(), to)
		if err != nil || from != []uint64{3, 4}[i] {
			t.Fatalf("from %d, %v", from, err)
		}
	}
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	b.expect("t", want)
	trail, err := ingest.Audit(t.Context(), b.store, b.lane.ID.Source(b.lane.Incarnation))
	if err != nil || len(trail.Events) != 2 || trail.Events[1].From != 4 || trail.Events[1].To != 6 || trail.Events[1].By != "me" {
		t.Errorf("%+v, %v", trail, err)
	}
	if c := b.checkpoint(b.lane); c.Gap || c.Sequence != 8 {
		t.Errorf("%+v", c)
	}
}

// interrupted is a filer that does something else once, after a file was read.
type interrupted struct {
	filer.Store
	path string
	then func()
}

func (i *interrupted) Lookup(ctx context.Context, path string) (filer.Entry, error) {
	e, err := i.Store.Lookup(ctx, path)
	if then := i.then; path == i.path && then != nil {
		i.then = nil
		then()
	}
	return e, err
}

// TestResetBesideAWorker: a lane whose worker goes on, and trims, while it is looked
// at has not gone back.
func TestResetBesideAWorker(t *testing.T) {
	t.Parallel()
	b := newBackup(t)
	b.topic("t")
	b.fill("t", 1, 3)
	if err := b.drain(b.lane); err != nil {
		t.Fatal(err)
	}
	want := b.fill("t", 4, 6)
	store := *b.store
	path := b.store.CheckpointFile(b.checkpoint(b.lane).Source).Path()
	store.Filer = &interrupted{store.Filer, path, func() {
		if err := b.drain(b.lane); err != nil {
			t.Fatal(err)
		}
		if err := b.lane.Trim(t.Context(), b.checkpoint(b.lane).Sequence); err != nil {
			t.Fatal(err)
		}
	}}
	r := b.repair()
	r.Store = &store
	rep, err := r.Reset(t.Context())
	if !errors.Is(err, ingest.ErrNotBack) {
		t.Errorf("a healthy lane was reset: %+v, error %v", rep, err)
	}
	if got := b.values("t"); len(got) != 6 || !slices.Equal(got[3:], want) {
		t.Errorf("the topic has %q", got)
	}
}
