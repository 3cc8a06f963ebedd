package segment

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
)

// InTable says which table names a segment's data files, and which others have it too.
type InTable struct {
	Table    string    `json:"table"`
	UUID     string    `json:"uuid"` // a table that is dropped and made again has another one
	Snapshot int64     `json:"snapshot"`
	At       time.Time `json:"at"`
	// Earlier are the tables of which it was said before: they may still be there, in
	// another catalog, and are not to get the segment again. At most [MaxTables] in all.
	Earlier []InTable `json:"earlier,omitempty"`
}

// MaxTables is how many tables a segment can be in.
const MaxTables = 100

// Names tells whether it says of a table that it has the segment.
func (in InTable) Names(uuid string) bool {
	return uuid != "" && (in.UUID == uuid || slices.ContainsFunc(in.Earlier, func(e InTable) bool { return e.UUID == uuid }))
}

// With is what to say when one more table has the segment.
func (in InTable) With(one InTable) InTable {
	one.Earlier = slices.Clone(in.Earlier)
	if in.UUID != "" {
		in.Earlier = nil
		one.Earlier = slices.Insert(one.Earlier, 0, in)
	}
	return one
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
	if len(in.Earlier) >= MaxTables {
		return fmt.Errorf("segment %s is in %d tables already: delete %s if they are gone", s.ID, len(in.Earlier), s.inTable().Path())
	}
	var err error
	if loaded == "" {
		_, err = s.inTable().Create(ctx, in)
	} else {
		_, err = s.inTable().Save(ctx, in, loaded)
	}
	return err
}
