package inspect

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
)

// dataFiles adds the load of records before an offset whose chunks are gone because
// their segment is compacted, evenly over the times of each data file. It is false if
// the segment is not.
func (r *past) dataFiles(ctx context.Context, s *segment.Segment, before uint64, l *load) (bool, error) {
	m, err := s.Manifest(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, f := range m.Files {
		if f.Last >= before || m.Records == 0 {
			break // the rest is counted with its chunks
		}
		share := float64(f.Records) / float64(m.Records)
		r.bins.spread(l, f.From.Add(-r.flush()), f.To, loadBin{bytes: share * float64(m.Bytes), records: float64(f.Records)})
	}
	return true, nil
}
