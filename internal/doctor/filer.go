package doctor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Clusterer asks a filer about its cluster. What it learnt before an error counts.
type Clusterer interface {
	Cluster(ctx context.Context) (seaweed.Cluster, error)
}

// oldestFiler is the first version whose exclusive creates can be relied on.
var oldestFiler = [2]int{4, 53}

// cluster looks at the filer's version and at the other filers.
func (v *view) cluster(ctx context.Context, f Clusterer) []Finding {
	const check = "filer"
	c, err := f.Cluster(ctx)
	v.replication = c.Replication
	if c.Version == "" {
		return []Finding{away(check, err)}
	}
	var found []Finding
	got := [2]int{c.Major, c.Minor}
	if slices.Compare(got[:], oldestFiler[:]) < 0 {
		found = append(found, fail(check, "run a newer SeaweedFS", "version %s, at least %d.%d is needed", c.Version, oldestFiler[0], oldestFiler[1]))
	} else {
		found = append(found, ok(check, "version %s", c.Version))
	}
	if err != nil {
		return append(found, warn("filers", "see that the master can be reached from here by the address that the filer knows it by",
			"whether there are other filers is not known: %s", oneLine(err)))
	}
	return append(found, filers(c.Filers))
}

// filers tells whether all filers work on one store (rule 5).
func filers(peers []seaweed.Peer) Finding {
	const check = "filers"
	stores := map[int32][]string{}
	for _, p := range peers {
		if p.Err != nil {
			return warn(check, "see that it can be reached from here", "%d filers; which store %s uses is not known: %s", len(peers), p.Address, oneLine(p.Err))
		}
		stores[p.Store] = append(stores[p.Store], p.Address)
	}
	switch {
	case len(peers) <= 1:
		return ok(check, "one, so all creates meet in one place")
	case len(stores) == 1:
		return ok(check, "%d on one store; it must be strongly consistent, as an SQL database is", len(peers))
	}
	var groups []string
	for _, addrs := range stores {
		groups = append(groups, strings.Join(addrs, "+"))
	}
	slices.Sort(groups)
	return warn(check, "put all filers on one strongly consistent store, or run one",
		"%d filers with %d stores (%s): while their ring changes, two of them can both accept one create, and a log forks", len(peers), len(stores), strings.Join(groups, ", "))
}

// Writer tells whether a folder takes writes: bytes, a file, its deletion.
type Writer interface {
	Wait(ctx context.Context, dir string) error
}

// writable tries a write in each folder.
func writable(ctx context.Context, w Writer, dirs []string) []Finding {
	const check = "writes"
	for _, dir := range dirs {
		err := w.Wait(ctx, dir)
		switch {
		case errors.Is(err, filer.ErrReadOnly):
			return []Finding{fail(check, "lift the rule or the quota, or make room: fs.configure and s3.bucket.quota in weed shell show them", "%s", oneLine(err))}
		case err != nil:
			return []Finding{asked(check, "see the filer's log", fmt.Errorf("%s takes no writes: %w", dir, err))}
		}
	}
	return []Finding{ok(check, "%s take them", strings.Join(dirs, " and "))}
}

// exclusive races a few writers, as a worker does when it starts.
func exclusive(ctx context.Context, store *segment.Store) []Finding {
	const check = "exclusive create"
	err := filer.SelfCheck(ctx, store.Filer, path.Join(store.Root(), ".spillway-check"))
	var race *filer.RaceError
	switch {
	case errors.As(err, &race):
		return []Finding{fail(check, "run one filer, or several on one strongly consistent store, of at least 4.53", "%s", oneLine(err))}
	case err != nil:
		return []Finding{asked(check, "see the filer's log", err)}
	}
	return []Finding{ok(check, "of writers that race for a file exactly one wins")}
}

// expiry tells whether rules would delete what must stay (rule 6).
func expiry(ctx context.Context, store *segment.Store) []Finding {
	const check = "expiry"
	var found []Finding
	for _, dir := range store.KeptDirs() {
		err := filer.CheckExpiry(ctx, store.Filer, dir)
		var rules *filer.ExpiryError
		switch {
		case errors.As(err, &rules):
			found = append(found, fail(check, "remove the rule, or keep it away from this folder: what it deletes is lost and stops the workers", "%s", oneLine(err)))
		case err != nil:
			found = append(found, asked(check, "mend the rules: fs.configure in weed shell, or the bucket's lifecycle configuration", err))
		}
	}
	if len(found) == 0 {
		return []Finding{ok(check, "no TTL and no lifecycle rule matches topics or checkpoints")}
	}
	return found
}

// Placer tells how bytes for a path would be stored by the storage rules.
type Placer interface {
	Placed(ctx context.Context, path string) (filer.Storage, error)
}

// mostTopics is for how many topics storage is looked at one by one.
const mostTopics = 200

// stored says what an acknowledgement by the filer survives, for the topics'
// folder and for the topics that differ from it.
func stored(ctx context.Context, p Placer, store *segment.Store, replication string) []Finding {
	const check = "stored"
	dir := store.KeptDirs()[0]
	rules, err := p.Placed(ctx, path.Join(dir, "any"))
	if err != nil {
		return []Finding{asked(check, "see the filer's log", err)}
	}
	common := kept{rules, rules.Fsync}.or(replication)
	found := []Finding{common.finding("topics", path.Dir(dir)+"/")}
	defs, err := store.Topics(ctx)
	if err != nil {
		return append(found, asked(check, "see `spillway topic list`", err))
	}
	for _, def := range defs[:min(len(defs), mostTopics)] {
		one, err := storedTopic(ctx, p, store, def)
		switch {
		case err != nil:
			found = append(found, fail(check, "bring volume servers back, or make room: workers of this topic's lane wait until then", "topic %s: %s", def.Name, oneLine(err)))
		case one.or(replication) != common:
			found = append(found, one.or(replication).finding("topic "+def.Name, path.Join(dir, def.Name)+"/"))
		}
	}
	if len(defs) > mostTopics {
		found = append(found, ok(check, "the first %d of %d topics were looked at", mostTopics, len(defs)))
	}
	return found
}

// storedTopic is how one topic's chunks are kept.
func storedTopic(ctx context.Context, p Placer, store *segment.Store, def topic.Definition) (kept, error) {
	dir := path.Join(store.KeptDirs()[0], def.Name, def.Incarnation)
	rules, err := p.Placed(ctx, path.Join(dir, "any"))
	k := kept{rules, rules.Fsync}
	if err == nil && def.Replication != "" {
		err = filer.TryStorage(ctx, store.Filer, path.Join(dir, "any"), filer.Storage{Replication: def.Replication, Fsync: def.Fsync})
		k.Replication = def.Replication
	}
	k.Fsync = k.Fsync || def.Fsync
	return k, err
}

// kept is how bytes are stored, and whether the entries that name them are synced.
type kept struct {
	filer.Storage
	entries bool
}

// or fills in the master's default.
func (k kept) or(replication string) kept {
	if k.Replication == "" {
		k.Replication = replication
	}
	return k
}

func (k kept) finding(what, prefix string) Finding {
	copies, survives := "1 copy", "survives crashes of SeaweedFS, not the loss of a volume server's disk"
	switch n := k.Copies(); {
	case n == 0:
		copies, survives = "copies as the master decides", "survives crashes of SeaweedFS"
	case n > 1:
		copies, survives = fmt.Sprintf("%d copies", n), fmt.Sprintf("survives the loss of %d volume servers' disks", n-1)
	}
	power := "bytes and entries are synced, so power failures too"
	var flags []string
	switch {
	case !k.Fsync:
		power = "nothing is synced, so a power failure can lose the last seconds"
	case !k.entries:
		power = "bytes are synced and their entries are not, so a power failure of a filer that keeps them itself (leveldb) can lose the last seconds"
	}
	if !k.Fsync || !k.entries {
		flags = append(flags, "-fsync")
	}
	if k.Copies() <= 1 {
		flags = append(flags, "-replication=001")
	}
	seen := fmt.Sprintf("%s: %s: %s; %s. Entries are as safe as the filer's own store", what, copies, survives, power)
	if len(flags) == 0 {
		return ok("stored", "%s", seen)
	}
	return warn("stored", fmt.Sprintf("in weed shell: fs.configure -locationPrefix=%s %s -apply", prefix, strings.Join(flags, " ")), "%s", seen)
}
