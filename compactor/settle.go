package compactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
)

// settle does what comes last for a segment: its chunks go, and files that its manifest
// does not name. Then it needs nothing any more.
func (v *visit) settle(ctx context.Context, p *part) {
	if p.trimmed() || v.step(p) == Trim {
		if err := v.end(ctx, p); err != nil {
			if ctx.Err() == nil && !noTopic(v.gone(err)) {
				v.fault(fmt.Errorf("segment %s: %w", p.ID, err))
			}
			return
		}
	}
	if v.step(p) == Nothing && p.trimmed() {
		v.seat.done[p.ID] = struct{}{}
	}
}

// end sweeps, and trims the log to its seal if that is due, or finishes a trim that was cut
// off.
func (v *visit) end(ctx context.Context, p *part) error {
	there, err := v.files(ctx, p)
	if err != nil {
		return err
	}
	if !p.trimmed() {
		if err := v.mayTrim(ctx, p, there); err != nil {
			return err
		}
		if err := p.Trim(ctx, p.manifest.Seal); err != nil {
			return err
		}
		p.first = p.manifest.Seal
		v.report.Trimmed++
		v.Logger.Info("deleted the chunks of a compacted segment", "topic", v.topic.Name, "segment", p.ID, "seal", p.manifest.Seal)
	}
	return v.discard(ctx, p, there)
}

// MissingError says that a data file is not what the manifest says, so that the chunks,
// which still hold its records, are kept. It matches filer.ErrCorrupt.
type MissingError struct{ Path, Reason string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("data file %s: %s; the chunks that it was made of are kept", e.Path, e.Reason)
}

// Is makes it match filer.ErrCorrupt.
func (e *MissingError) Is(target error) bool { return target == filer.ErrCorrupt }

// mayTrim checks once more that nothing is lost with the chunks: the seal is where the
// manifest says, and each data file is there, with its size and digest.
func (v *visit) mayTrim(ctx context.Context, p *part, there map[string]filer.Entry) error {
	seal, err := p.ChunkAt(ctx, p.manifest.Seal)
	if err != nil {
		return err
	}
	if !seal.Sealed || seal.Base != p.manifest.End {
		return &segment.ChunkError{Path: seal.Entry.Path, Reason: fmt.Sprintf("it is not the seal at offset %d, which the manifest says it is", p.manifest.End)}
	}
	for _, f := range p.manifest.Files {
		e, ok := there[f.Name]
		switch path := p.DataPath(f.Name); {
		case !ok:
			return &MissingError{path, "it is not there"}
		case e.Size != f.Size:
			return &MissingError{path, fmt.Sprintf("it has %d bytes, the manifest says %d", e.Size, f.Size)}
		case e.Attrs[filer.AttrDigest] != f.Digest:
			return &MissingError{path, fmt.Sprintf("it has the digest %q, the manifest says %q", e.Attrs[filer.AttrDigest], f.Digest)}
		}
	}
	return nil
}

// files lists the segment's data folder.
func (v *visit) files(ctx context.Context, p *part) (map[string]filer.Entry, error) {
	there := map[string]filer.Entry{}
	for after := ""; ; {
		var page []filer.Entry
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			page, err = v.Store.Filer.List(ctx, p.DataDir(), after, 0)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", p.DataDir(), err)
		}
		if len(page) == 0 {
			return there, nil
		}
		for _, e := range page {
			e.Content, e.Blobs = nil, nil
			there[e.Name()] = e
		}
		after = page[len(page)-1].Name()
	}
}

// sweep deletes what the manifest does not name.
func (v *visit) sweep(ctx context.Context, p *part) error {
	there, err := v.files(ctx, p)
	if err != nil {
		return err
	}
	return v.discard(ctx, p, there)
}

// discard deletes files in the data folder that the manifest does not name: they belong
// to somebody who came too late, or got stuck. Manifests do not change, so no clock is
// asked.
func (v *visit) discard(ctx context.Context, p *part, there map[string]filer.Entry) error {
	for _, f := range p.manifest.Files {
		delete(there, f.Name)
	}
	var errs []error
	for name, e := range there {
		if first, ok := firstOffset(name); e.IsDir || ok && first < p.manifest.Base {
			continue // of somebody else, or of records that the manifest says nothing of
		}
		err := filer.Retry(ctx, func(ctx context.Context) error { return v.Store.Filer.Delete(ctx, p.DataPath(name), e.ID) })
		switch {
		case err == nil:
			v.report.Swept++
		case !errors.Is(err, filer.ErrConflict):
			errs = append(errs, fmt.Errorf("sweep %s: %w", p.DataPath(name), err))
		}
	}
	return errors.Join(errs...)
}
