package segment

import (
	"context"
	"path"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

// storageOf is how the chunks of a topic are to be kept (rule 7).
func storageOf(def topic.Definition) filer.Storage {
	return filer.Storage{Replication: def.Replication, Fsync: def.Fsync}
}

// KeptDirs are the folders whose files must stay until they are deleted by what
// made them: no lifecycle rule and no TTL may match them (rule 6).
func (s *Store) KeptDirs() []string {
	return []string{s.topicsDir(), path.Join(s.Root(), "checkpoints")}
}

// fit checks before a topic exists that the filer will keep its files: nothing
// expires them or the checkpoints, and bytes can be stored as the topic asks. A
// topic whose chunks cannot be stored would hold up all others of its lane.
func (s *Store) fit(ctx context.Context, def topic.Definition) error {
	dir := s.topicDir(def.Name)
	if err := filer.CheckExpiry(ctx, s.Filer, dir, path.Join(s.Root(), "checkpoints")); err != nil {
		return err
	}
	if how := storageOf(def); how != (filer.Storage{}) {
		return filer.TryStorage(ctx, s.Filer, dir, how)
	}
	return nil
}
