package segment

import (
	"context"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
)

// InTable says which table names a segment's data files.
type InTable struct {
	Table    string    `json:"table"`
	UUID     string    `json:"uuid"` // a table that is dropped and made again has another one
	Snapshot int64     `json:"snapshot"`
	At       time.Time `json:"at"`
}

func (s *Segment) inTable() cursor.File[InTable] {
	return cursor.At[InTable](s.topic.store.Filer, path.Join(s.log.Dir(), "table.json"))
}

// InTable reads which table has the segment. filer.ErrNotFound: no table has had it.
func (s *Segment) InTable(ctx context.Context) (InTable, cursor.Version, error) {
	return s.inTable().Load(ctx)
}

// SaveInTable says which table has the segment, instead of what was loaded; without
// a version, if nothing was said before. filer.ErrExists and filer.ErrConflict:
// somebody else did meanwhile; load again. filer.ErrNotFound: the topic was deleted.
func (s *Segment) SaveInTable(ctx context.Context, in InTable, loaded cursor.Version) error {
	in.At = in.At.UTC()
	var err error
	if loaded == "" {
		_, err = s.inTable().Create(ctx, in)
	} else {
		_, err = s.inTable().Save(ctx, in, loaded)
	}
	return err
}
