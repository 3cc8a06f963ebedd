package functions

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
)

// relayState is how far the events of a bucket have become notifications: a file in
// the folder of the topic's incarnation. Places are those of the filer's log, in
// nanoseconds since 1970.
type relayState struct {
	Bucket string `json:"bucket"`
	Prefix string `json:"prefix"`
	// Position is the place up to which all that the log tells is published.
	Position int64 `json:"position"`
	// Checked is the place up to which also what the log may have lost is: up to
	// there it was followed as it was written, or the bucket was listed since.
	Checked int64 `json:"checked"`
}

// merge is what two relays have done together.
func (s relayState) merge(o relayState) relayState {
	s.Position, s.Checked = max(s.Position, o.Position), max(s.Checked, o.Checked)
	return s
}

func relayFile(s filer.Store, dir, bucket, prefix string) cursor.File[relayState] {
	sum := sha256.Sum256([]byte(bucket + "/" + prefix))
	return cursor.At[relayState](s, path.Join(dir, fmt.Sprintf("s3-events-%x.json", sum[:8])))
}

// load reads the cursor, or makes it.
func (r *relay) load(ctx context.Context, dir string) (err error) {
	r.file = relayFile(r.deps.Store.Filer, dir, r.o.Bucket, r.o.Prefix)
	for {
		var s relayState
		s, r.version, err = r.file.Load(ctx)
		if err == nil {
			r.state, r.saved, r.kept = s.merge(r.state), s, r.now()
			r.seen, r.given, r.fresh = r.state.Position, nil, false
			r.sum.Position = time.Unix(0, r.state.Position).UTC()
			return nil
		}
		if !errors.Is(err, filer.ErrNotFound) {
			return err
		}
		if s = r.state; s.Position == 0 {
			from := r.now().Add(-r.o.Since).UnixNano()
			s = relayState{Bucket: r.o.Bucket, Prefix: r.o.Prefix, Position: from, Checked: from}
		}
		if _, err := r.file.Create(ctx, s); err != nil && !errors.Is(err, filer.ErrExists) {
			return err
		}
	}
}

// save writes the cursor. Another relay of the same bucket may have done so, which
// only takes it further.
func (r *relay) save(ctx context.Context) error {
	for want := r.state; ; {
		version, err := r.file.Save(ctx, want, r.version)
		if err == nil {
			r.version, r.saved, r.kept, r.fresh = version, r.state, r.now(), false
			return nil
		}
		if !errors.Is(err, filer.ErrConflict) {
			return err
		}
		other, version, err := r.file.Load(ctx)
		if err != nil {
			return err
		}
		want, r.version = r.state.merge(other), version
	}
}
