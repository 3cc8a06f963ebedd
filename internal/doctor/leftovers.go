package doctor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	// mostEntries bounds how much of a left-over folder is looked through. One
	// that holds more was used, and is nothing to delete by itself.
	mostEntries = 20_000
	// mostSegments bounds for how many segments void chunks are counted.
	mostSegments = 500
	chunkExt     = ".avro"
	dataExt      = ".parquet"
)

// Leftover is a folder of a topic's incarnation that no topic.json names.
type Leftover struct {
	Dir    string
	Topic  string
	Newest time.Time // of what is in it
	// Chunks is how many files of records it holds, or more. Any at all means
	// that it was a topic, and that its topic.json was lost: nothing to sweep.
	Chunks int
}

// leftovers counts what interrupted work left behind, as far as that can be told
// from the folders. Bytes on volume servers that no file names cannot: SeaweedFS's
// volume.fsck finds those.
func leftovers(ctx context.Context, store *segment.Store, lanes []Lane, lanesKnown bool) []Finding {
	const check = "leftovers"
	folders, defs, err := scan(ctx, store)
	if err != nil {
		return []Finding{asked(check, "look at the folder with weed shell", err)}
	}
	var found []Finding
	half := 0
	for _, f := range folders {
		if f.Chunks > 0 {
			found = append(found, fail(check, "restore the topic's topic.json from a backup; do not delete the folder",
				"%s holds %d files of records or more, and no topic.json names it", f.Dir, f.Chunks))
			continue
		}
		half++
	}
	if half > 0 {
		found = append(found, warn(check, "spillway doctor --sweep deletes those older than "+SafeAge.String(), "%d folders of topics that are gone", half))
	}
	found = append(found, unfinished(defs)...)
	void, all, err := voidChunks(ctx, store, defs)
	switch more := map[bool]string{true: "", false: " or more"}[all]; {
	case err != nil:
		found = append(found, asked(check, "run spillway verify on the topics", err))
	case void > 0:
		found = append(found, warn(check, "nothing: the next trim of those segments deletes them", "%d%s chunks below the heads of their logs, void and not deleted yet", void, more))
	}
	if lanesKnown {
		found = append(found, strayCheckpoints(ctx, store, lanes)...)
	}
	if len(found) == 0 {
		return []Finding{ok(check, "none that the folders show")}
	}
	return found
}

// Leftovers lists the folders below topics that no topic.json names. They are
// listed before the topics are: a folder is made only after a topic.json named
// it, and its name is never used again, so one that is named no more never will
// be, however long somebody slept who worked on it.
func Leftovers(ctx context.Context, store *segment.Store) ([]Leftover, error) {
	found, _, err := scan(ctx, store)
	return found, err
}

// scan is Leftovers, with the topics that there are.
func scan(ctx context.Context, store *segment.Store) ([]Leftover, []topic.Definition, error) {
	var all []Leftover
	err := walk(ctx, store.Filer, store.KeptDirs()[0], func(e filer.Entry) error {
		if ours := e.IsDir && topic.CheckName(e.Name()) == nil; !ours {
			return nil
		}
		return walk(ctx, store.Filer, e.Path, func(inc filer.Entry) error {
			if inc.IsDir {
				all = append(all, Leftover{Dir: inc.Path, Topic: e.Name(), Newest: inc.MTime})
			}
			return nil
		})
	})
	if err != nil {
		return nil, nil, err
	}
	defs, err := store.Topics(ctx)
	if err != nil {
		return nil, nil, err
	}
	named := map[string]bool{}
	for _, d := range defs {
		named[path.Join(store.KeptDirs()[0], d.Name, d.Incarnation)] = true
	}
	var found []Leftover
	for _, l := range all {
		if named[l.Dir] {
			continue
		}
		if err := l.look(ctx, store.Filer); err != nil {
			return nil, nil, err
		}
		found = append(found, l)
	}
	return found, defs, nil
}

// unfinished tells of topics whose deletion was interrupted.
func unfinished(defs []topic.Definition) []Finding {
	const check = "leftovers"
	var found []Finding
	for _, d := range defs {
		if d.State == topic.StateDeleting {
			found = append(found, warn(check, fmt.Sprintf("spillway topic delete %s --yes finishes it, unless somebody is at it now", d.Name), "topic %s is being deleted", d.Name))
		}
	}
	return found
}

// look finds out what is in the folder.
func (l *Leftover) look(ctx context.Context, s filer.Store) error {
	seen := 0
	var into func(dir string) error
	into = func(dir string) error {
		return walk(ctx, s, dir, func(e filer.Entry) error {
			if seen++; seen > mostEntries {
				l.Chunks++
				return errEnough
			}
			if e.MTime.After(l.Newest) {
				l.Newest = e.MTime
			}
			if e.IsDir {
				return into(e.Path)
			}
			if strings.HasSuffix(e.Name(), chunkExt) || strings.HasSuffix(e.Name(), dataExt) {
				l.Chunks++
			}
			return nil
		})
	}
	if err := into(l.Dir); !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

var errEnough = errors.New("enough seen")

// walk calls do for every entry of a directory.
func walk(ctx context.Context, s filer.Store, dir string, do func(filer.Entry) error) error {
	for after := ""; ; {
		var page []filer.Entry
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			page, err = s.List(ctx, dir, after, 0)
			return err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", dir, err)
		}
		if len(page) == 0 {
			return nil
		}
		for _, e := range page {
			if err := do(e); err != nil {
				return err
			}
		}
		after = page[len(page)-1].Name()
	}
}

// voidChunks counts the chunks below the heads of their logs: what a trim that
// was interrupted left, or a writer that came too late. It looks at the first
// page of each segment only; all is false when there was more to look at.
func voidChunks(ctx context.Context, store *segment.Store, defs []topic.Definition) (void int, all bool, err error) {
	segments := 0
	for _, def := range defs {
		dir := path.Join(store.KeptDirs()[0], def.Name, def.Incarnation, "segments")
		err := walk(ctx, store.Filer, dir, func(e filer.Entry) error {
			if segments++; segments > mostSegments {
				return errEnough
			}
			n, err := voidIn(ctx, store.Filer, e.Path)
			void += n
			return err
		})
		if errors.Is(err, errEnough) {
			return void, false, nil
		}
		if err != nil {
			return void, false, err
		}
	}
	return void, true, nil
}

func voidIn(ctx context.Context, s filer.Store, dir string) (int, error) {
	log := commitlog.New(s, dir, chunkExt)
	head, _, err := log.Head(ctx)
	if errors.Is(err, commitlog.ErrNoLog) {
		return 0, nil // being made or deleted
	}
	if err != nil || head == 0 {
		return 0, err
	}
	var page []filer.Entry
	err = filer.Retry(ctx, func(ctx context.Context) (err error) {
		page, err = s.List(ctx, dir, "", 0)
		return err
	})
	n := 0
	for _, e := range page {
		if strings.HasSuffix(e.Name(), chunkExt) && e.Name() < log.Name(head) {
			n++
		}
	}
	return n, err
}

// strayCheckpoints counts the checkpoints of lanes' incarnations that no lane has.
// They are small, and tell what was committed of a lane that is gone.
func strayCheckpoints(ctx context.Context, store *segment.Store, lanes []Lane) []Finding {
	const check = "leftovers"
	known, present := map[string]bool{}, map[string]bool{}
	for _, l := range lanes {
		known[l.ID.Source(l.Incarnation)+".json"] = true
		present[l.ID.String()] = true
	}
	old := 0
	var found []Finding
	err := walk(ctx, store.Filer, store.KeptDirs()[1], func(e filer.Entry) error {
		id, ok := laneOf(e.Name())
		switch {
		case !ok || known[e.Name()]:
		case present[id.String()]:
			old++
		default:
			found = append(found, warn(check, "nothing, if the lane was deleted; else see OPERATIONS, “The lane's stream is gone”",
				"%s is of lane %s, which does not exist", e.Path, id))
		}
		return nil
	})
	if err != nil {
		return append(found, asked(check, "look at the folder with weed shell", err))
	}
	if old > 0 {
		found = append(found, ok(check, "%d checkpoints of earlier incarnations of lanes, kept as a record", old))
	}
	return found
}

// laneOf reads the lane off the name of its checkpoint, lane.<group>.<n>.<incarnation>.json.
func laneOf(name string) (lane.ID, bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 5 || parts[0] != "lane" || parts[4] != "json" {
		return lane.ID{}, false
	}
	id, err := lane.ParseID(parts[1] + "." + parts[2])
	return id, err == nil
}
