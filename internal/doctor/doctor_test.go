package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

var (
	noon     = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	errAway  = errors.New("connection refused")
	orders   = topic.Definition{Name: "orders", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default", Roots: 1}
	defaults = lane.ID{Group: lane.Default}
)

// fakeFiler is a filer that says what a test wants; fakeNATS likewise.
type fakeFiler struct {
	cluster seaweed.Cluster
	err     error
	wait    error
	placed  map[string]filer.Storage // by prefix
	clock   time.Time
}

func (f *fakeFiler) Cluster(context.Context) (seaweed.Cluster, error) { return f.cluster, f.err }
func (f *fakeFiler) Wait(context.Context, string) error               { return f.wait }
func (f *fakeFiler) Clock(context.Context) (time.Time, error)         { return f.clock, nil }

func (f *fakeFiler) Placed(_ context.Context, path string) (filer.Storage, error) {
	best, how := "", filer.Storage{}
	for prefix, s := range f.placed {
		if strings.HasPrefix(path, prefix) && len(prefix) >= len(best) {
			best, how = prefix, s
		}
	}
	return how, nil
}

type fakeNATS struct {
	version   string
	jetstream error
	lanes     []Lane
	lanesErr  error
	sync      Sync
	others    []Stream
	witness   map[uint64]time.Time
	witnErr   error
	clock     time.Time
	clockErr  error
}

func (n *fakeNATS) Version() string                          { return n.version }
func (n *fakeNATS) JetStream(context.Context) error          { return n.jetstream }
func (n *fakeNATS) Lanes(context.Context) ([]Lane, error)    { return n.lanes, n.lanesErr }
func (n *fakeNATS) Sync(context.Context) Sync                { return n.sync }
func (n *fakeNATS) Others(context.Context) ([]Stream, error) { return n.others, nil }
func (n *fakeNATS) Clock(context.Context) (time.Time, error) { return n.clock, n.clockErr }

func (n *fakeNATS) TimeOf(_ context.Context, _ lane.ID, sequence uint64) (time.Time, error) {
	at, ok := n.witness[sequence]
	if n.witnErr != nil || !ok {
		return at, errors.Join(n.witnErr, map[bool]error{false: ErrNoMessage}[ok])
	}
	return at, nil
}

// healthy is a setup in which nothing is wrong.
func healthy(t *testing.T) (*memfs.FS, *fakeFiler, *fakeNATS, Setup) {
	t.Helper()
	fs := memfs.New()
	f := &fakeFiler{
		cluster: seaweed.Cluster{Version: "30GB 4.53", Major: 4, Minor: 53, Replication: "000", Filers: []seaweed.Peer{{Address: "a:1", Store: 7}}},
		placed:  map[string]filer.Storage{"/": {Replication: "001", Fsync: true}}, clock: noon,
	}
	n := &fakeNATS{
		version: "2.12.0", others: []Stream{{"KV_spillway-leases", 3}}, lanes: []Lane{fit(9)}, sync: Sync{Known: true, Interval: 2 * time.Minute},
		witness: map[uint64]time.Time{5: noon}, clock: noon,
	}
	store := segment.NewStore(fs.Client("doctor", nil), "spillway")
	setCheckpoint(t, store, "now", 5)
	return fs, f, n, Setup{NATS: n, Filer: f, Store: store, Now: func() time.Time { return noon }}
}

// fit is the default lane with messages up to last.
func fit(last uint64) Lane {
	return Lane{Info: lane.Info{ID: defaults, Stream: defaults.Stream(), Incarnation: "now", Lanes: 1, First: 1, Last: last, Bytes: 10, MaxBytes: 100}, Replicas: 3}
}

func setCheckpoint(t *testing.T, s *segment.Store, incarnation string, seq uint64) {
	t.Helper()
	source := defaults.Source(incarnation)
	c := segment.Checkpoint{Source: source, Sequence: seq, Witness: noon, Producers: []segment.Producer{}, Marks: []segment.Mark{}}
	if _, err := s.CheckpointFile(source).Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// TestHealthy: one line per thing, all ok, and nothing is left in the bucket.
func TestHealthy(t *testing.T) {
	fs, _, _, setup := healthy(t)
	before := fs.Paths()
	r := Run(t.Context(), setup)
	var checks []string
	for _, f := range r.Findings {
		checks = append(checks, f.Check)
		if f.Status != OK || f.Do != "" || f.Seen == "" {
			t.Errorf("%+v", f)
		}
	}
	want := []string{"nats", "filer", "filers", "writes", "exclusive create", "expiry", "stored", "buffered", "lane", "clock", "clock", "leftovers", "compaction"}
	if diff := cmp.Diff(want, checks); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, fs.Paths()); diff != "" || r.Unfit() || r.Unreachable() {
		t.Errorf("unfit %v, unreachable %v, files:\n%s", r.Unfit(), r.Unreachable(), diff)
	}
}

// TestFindings changes one thing at a time.
func TestFindings(t *testing.T) {
	lanes := func(change func(*Lane)) func(*fakeNATS) {
		return func(n *fakeNATS) { change(&n.lanes[0]) }
	}
	cases := []struct {
		name   string
		nats   func(*fakeNATS)
		filer  func(*fakeFiler)
		fs     func(*memfs.FS)
		check  string
		status Status
		away   bool
		seen   string // a part of the line
	}{
		{name: "old NATS", nats: func(n *fakeNATS) { n.version = "2.9.25" }, check: "nats", status: Fail, seen: "at least 2.10"},
		{name: "strange NATS", nats: func(n *fakeNATS) { n.version = "" }, check: "nats", status: Fail, seen: "at least 2.10"},
		{name: "newer NATS", nats: func(n *fakeNATS) { n.version = "3.0.0-beta" }, check: "nats", status: OK, seen: "3.0.0-beta"},
		{name: "JetStream off", nats: func(n *fakeNATS) { n.jetstream = errOff }, check: "nats", status: Fail, seen: "jetstream not enabled"},
		{name: "NATS silent", nats: func(n *fakeNATS) { n.jetstream = errAway }, check: "nats", status: Fail, away: true, seen: "refused"},
		{name: "lanes not listed", nats: func(n *fakeNATS) { n.lanesErr = errAway }, check: "nats", status: Fail, away: true, seen: "refused"},
		{name: "no lanes", nats: func(n *fakeNATS) { n.lanes = nil }, check: "lane", status: OK, seen: "none yet"},
		{name: "one replica", nats: lanes(func(l *Lane) { l.Replicas = 1 }), check: "buffered", status: Warn, seen: "lose the last 2m0s"},
		{name: "interval changed", nats: func(n *fakeNATS) { n.lanes[0].Replicas, n.sync.Interval = 1, 10*time.Second }, check: "buffered", status: Warn, seen: "lose the last 10s"},
		{name: "interval unknown", nats: func(n *fakeNATS) { n.lanes[0].Replicas, n.sync = 1, Sync{} }, check: "buffered", status: Warn, seen: "unless its sync interval was changed"},
		{name: "one replica, synced", nats: func(n *fakeNATS) { n.lanes[0].Replicas, n.sync = 1, Sync{Known: true, Always: true} }, check: "buffered", status: OK, seen: "not the loss of the disk"},
		{name: "three replicas", check: "buffered", status: OK, seen: "survives the loss of 1 of the servers"},
		{name: "five replicas", nats: lanes(func(l *Lane) { l.Replicas = 5 }), check: "buffered", status: OK, seen: "loss of 2 of"},
		{name: "a replica offline", nats: lanes(func(l *Lane) { l.Missing = 1 }), check: "buffered", status: Warn, seen: "1 of 3 replicas are offline"},
		{name: "unfit stream", nats: lanes(func(l *Lane) { l.Err = &lane.MismatchError{Stream: "x", Reasons: []string{"it has a maximum age"}} }), check: "lane", status: Fail, seen: "maximum age"},
		{name: "closed", nats: lanes(func(l *Lane) { l.Closed, l.Err = true, &lane.MismatchError{Stream: "x"} }), check: "lane", status: Warn, seen: "is closed"},
		{name: "lease on one server", nats: func(n *fakeNATS) { n.others[0].Replicas = 1 }, check: "nats", status: Warn, seen: "KV_spillway-leases has 1 replicas and lanes have 3"},
		{name: "no checkpoint", nats: lanes(func(l *Lane) { l.Incarnation = "other" }), check: "lane", status: Fail, seen: "lane.default.0.other.json is missing"},
		{name: "busy lane", nats: lanes(func(l *Lane) { l.Last = 4 }), check: "lane", status: OK, seen: "0 messages above"},
		{name: "lane shorter", nats: func(n *fakeNATS) { n.lanes[0].Last, n.witness = 4, nil }, check: "lane", status: Fail, seen: "its last message is 4, but 5 is committed"},
		{name: "gap", nats: lanes(func(l *Lane) { l.First = 7 }), check: "lane", status: Fail, seen: "a gap"},
		{name: "no gap", nats: func(n *fakeNATS) { n.lanes[0].First = 6 }, check: "lane", status: OK, seen: "4 messages above"},
		{name: "witness gone", nats: func(n *fakeNATS) { n.witness = nil }, check: "lane", status: Fail, seen: "message 5, the last committed one, is gone"},
		{name: "other witness", nats: func(n *fakeNATS) { n.witness[5] = noon.Add(1) }, check: "lane", status: Fail, seen: "12:00:00.000000001Z"},
		{name: "witness not read", nats: func(n *fakeNATS) { n.witnErr = errAway }, check: "lane", status: Fail, away: true, seen: "refused"},
		{name: "nearly full", nats: lanes(func(l *Lane) { l.Bytes = 80 }), check: "lane", status: Warn, seen: "holds 80 B of 100 B"},
		{name: "half a group", nats: lanes(func(l *Lane) { l.Lanes = 4 }), check: "lane", status: Fail, seen: "1 of its 4 lanes"},
		{name: "old filer", filer: func(f *fakeFiler) { f.cluster.Minor = 52 }, check: "filer", status: Fail, seen: "at least 4.53"},
		{name: "filer silent", filer: func(f *fakeFiler) { f.cluster, f.err = seaweed.Cluster{}, errAway }, check: "filer", status: Fail, away: true, seen: "refused"},
		{name: "master silent", filer: func(f *fakeFiler) { f.err = errAway }, check: "filers", status: Warn, seen: "not known"},
		{name: "two stores", filer: func(f *fakeFiler) {
			f.cluster.Filers = append(f.cluster.Filers, seaweed.Peer{Address: "b:1", Store: 8}, seaweed.Peer{Address: "c:1", Store: 7})
		}, check: "filers", status: Warn, seen: "3 filers with 2 stores (a:1+c:1, b:1)"},
		{name: "one store", filer: func(f *fakeFiler) {
			f.cluster.Filers = append(f.cluster.Filers, seaweed.Peer{Address: "b:1", Store: 7})
		}, check: "filers", status: OK, seen: "2 on one store"},
		{name: "peer silent", filer: func(f *fakeFiler) {
			f.cluster.Filers = append(f.cluster.Filers, seaweed.Peer{Address: "b:1", Err: errAway})
		}, check: "filers", status: Warn, seen: "which store b:1 uses is not known"},
		{name: "read-only", filer: func(f *fakeFiler) { f.wait = filer.ErrReadOnly }, check: "writes", status: Fail, seen: "read-only"},
		{name: "no writes", filer: func(f *fakeFiler) { f.wait = errAway }, check: "writes", status: Fail, away: true, seen: "topics takes no writes"},
		{name: "TTL", fs: func(fs *memfs.FS) {
			fs.SetExpiry("/buckets/spillway/topics/a/", filer.Expiry{Rule: "rule r", What: "ttl 1d"})
		}, check: "expiry", status: Fail, seen: "topics would expire by rule r: ttl 1d"},
		{name: "TTL of checkpoints", fs: func(fs *memfs.FS) {
			fs.SetExpiry("/buckets/spillway/check", filer.Expiry{Rule: "rule r", What: "ttl 1d"})
		}, check: "expiry", status: Fail, seen: "checkpoints would expire"},
		{name: "TTL elsewhere", fs: func(fs *memfs.FS) {
			fs.SetExpiry("/buckets/spillway/payloads/", filer.Expiry{Rule: "rule r", What: "ttl 1d"})
		}, check: "expiry", status: OK, seen: "no TTL"},
		{name: "nothing synced", filer: func(f *fakeFiler) { f.placed = nil }, check: "stored", status: Warn, seen: "1 copy: survives crashes"},
		{name: "not replicated", filer: func(f *fakeFiler) { f.placed["/"] = filer.Storage{Fsync: true} }, check: "stored", status: Warn, seen: "bytes and entries are synced"},
		{name: "stored", check: "stored", status: OK, seen: "2 copies: survives the loss of 1 volume servers' disks; bytes and entries are synced"},
		{name: "filer ahead", filer: func(f *fakeFiler) { f.clock = noon.Add(3 * time.Second) }, check: "clock", status: Warn, seen: "the filer's is 3s ahead"},
		{name: "NATS behind", nats: func(n *fakeNATS) { n.clock = noon.Add(-time.Hour) }, check: "clock", status: Warn, seen: "NATS's is 1h0m0s behind"},
		{name: "clocks nearly agree", nats: func(n *fakeNATS) { n.clock = noon.Add(time.Second) }, check: "clock", status: OK, seen: "agree within 1s"},
		{name: "no clock", nats: func(n *fakeNATS) { n.clockErr = ErrNoClock }, check: "clock", status: OK, seen: "NATS: nothing there shows its time yet"},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			fs, f, n, setup := healthy(t)
			if tt.nats != nil {
				tt.nats(n)
			}
			if tt.filer != nil {
				tt.filer(f)
			}
			if tt.fs != nil {
				tt.fs(fs)
			}
			r := Run(t.Context(), setup)
			wantFinding(t, r, Finding{Check: tt.check, Status: tt.status, Seen: tt.seen, Away: tt.away})
			if r.Unfit() != (tt.status == Fail && !tt.away) || r.Unreachable() != tt.away {
				t.Errorf("unfit %v, unreachable %v", r.Unfit(), r.Unreachable())
			}
		})
	}
}

// wantFinding looks for a finding whose line contains want.Seen. Findings that
// are not ok say what to do, and nothing else is wrong.
func wantFinding(t *testing.T, r Report, want Finding) {
	t.Helper()
	found := false
	for _, f := range r.Findings {
		hit := f.Check == want.Check && f.Status == want.Status && f.Away == want.Away && strings.Contains(f.Seen, want.Seen)
		found = found || hit
		if (f.Status == OK) != (f.Do == "") || strings.ContainsAny(f.Seen+f.Do, "\n\t") {
			t.Errorf("%+v", f)
		}
		if f.Status == Fail && !hit {
			t.Errorf("unexpected: %+v", f)
		}
	}
	if !found {
		t.Errorf("no finding like %+v in\n%+v", want, r.Findings)
	}
}

// TestMissing: what could not be connected to is one line, and the rest is checked.
func TestMissing(t *testing.T) {
	_, _, _, setup := healthy(t)
	setup.NATS, setup.Missing = nil, []Finding{Missing("nats", errAway, false)}
	r := Run(t.Context(), setup)
	wantFinding(t, r, Finding{Check: "nats", Status: Fail, Seen: "refused", Away: true})
	wantFinding(t, r, Finding{Check: "nats", Status: Fail, Seen: "refused", Away: true})
	if n := len(r.Findings); n != 10 || r.Unfit() || !r.Unreachable() {
		t.Errorf("%d findings, unfit %v, unreachable %v", n, r.Unfit(), r.Unreachable())
	}
	setup.Filer, setup.Store = nil, nil
	setup.Missing = append(setup.Missing, Missing("filer", errors.New("a\nb"), true))
	r = Run(t.Context(), setup)
	if len(r.Findings) != 2 || !r.Unfit() || !r.Unreachable() || r.Findings[1].Seen != "a b" {
		t.Errorf("got %+v", r.Findings)
	}
}

// TestEnded: a context that ends gives what was seen until then.
func TestEnded(t *testing.T) {
	_, _, _, setup := healthy(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := Run(ctx, setup); len(r.Findings) > 1 {
		t.Errorf("got %+v", r.Findings)
	}
}

// TestStoredByTopic: topics are told about that differ from the rest.
func TestStoredByTopic(t *testing.T) {
	fs, f, _, setup := healthy(t)
	f.placed = map[string]filer.Storage{"/": {}, "/buckets/spillway/topics/ruled/": {Replication: "010", Fsync: true}}
	for name, how := range map[string]filer.Storage{"plain": {}, "ruled": {}, "synced": {Fsync: true}, "copied": {Replication: "002"}} {
		def := orders
		def.Name, def.Replication, def.Fsync = name, how.Replication, how.Fsync
		if _, err := setup.Store.CreateTopic(t.Context(), def, 1, noon); err != nil {
			t.Fatal(err)
		}
	}
	r := Report{Findings: stored(t.Context(), f, setup.Store, "000")}
	var got []string
	for _, f := range r.Findings {
		line, _, _ := strings.Cut(f.Seen, ". Entries")
		got = append(got, string(f.Status)+" "+line+" > "+f.Do)
	}
	want := []string{
		"warn topics: 1 copy: survives crashes of SeaweedFS, not the loss of a volume server's disk; nothing is synced, so a power failure can lose the last seconds > in weed shell: fs.configure -locationPrefix=/buckets/spillway/ -fsync -replication=001 -apply",
		"warn topic copied: 3 copies: survives the loss of 2 volume servers' disks; nothing is synced, so a power failure can lose the last seconds > in weed shell: fs.configure -locationPrefix=/buckets/spillway/topics/copied/ -fsync -apply",
		"ok topic ruled: 2 copies: survives the loss of 1 volume servers' disks; bytes and entries are synced, so power failures too > ",
		"warn topic synced: 1 copy: survives crashes of SeaweedFS, not the loss of a volume server's disk; bytes are synced and their entries are not, so a power failure of a filer that keeps them itself (leveldb) can lose the last seconds > in weed shell: fs.configure -locationPrefix=/buckets/spillway/topics/synced/ -fsync -replication=001 -apply",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	fs.SetReadOnly("/buckets/spillway/topics/copied", true)
	wantFinding(t, Report{Findings: stored(t.Context(), f, setup.Store, "000")},
		Finding{Check: "stored", Status: Fail, Seen: "topic copied: the filer stores nothing below"})
	if n := fs.Blobs(); n > 0 {
		t.Errorf("%d blobs were left", n)
	}
}
