package ingest

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// take adds a message to the flush: as its records, as a duplicate that is
// dropped, or as a rejected record.
func (s *session) take(ctx context.Context, f *flush, m Message) error {
	switch {
	case m.Sequence <= s.lastRead:
		return nil // delivered again
	case m.Sequence != s.lastRead+1:
		return &GapError{s.ID.String(), s.lastRead + 1, m.Sequence}
	}
	id, badID := batchID(m.Header)
	_, badAfter := aftersOf(m.Header)
	switch {
	case m.Topic == lane.Control: // it has held the lane back, and holds no record
	case id != nil && s.duplicate(f, m, id):
		f.counts.Duplicates++
	default:
		if err := s.add(ctx, f, m, id, errors.Join(badID, badAfter)); err != nil {
			return err
		}
	}
	s.lastRead = m.Sequence
	f.last, f.lastTime = m.Sequence, m.Time
	f.counts.Messages++
	if f.due.IsZero() {
		f.wait(s.Now().Add(topic.DefaultFlushAge))
	}
	return nil
}

// duplicate tells whether a batch was accepted before, and notes it if not. The
// decision depends on the lane's content alone (rule 20).
func (s *session) duplicate(f *flush, m Message, id *record.ID) bool {
	p, known := s.producers[id.Producer]
	if known && !p.Forgotten(m.Sequence) && id.Sequence <= p.Sequence {
		return true
	}
	p = segment.Producer{ID: id.Producer, Sequence: id.Sequence, At: m.Sequence}
	s.producers[id.Producer] = p
	f.seen[id.Producer] = p
	if m.Sequence%(segment.ProducerDistance/8) == 0 {
		for name, p := range s.producers {
			if p.Forgotten(m.Sequence) {
				delete(s.producers, name)
			}
		}
	}
	return false
}

func (s *session) add(ctx context.Context, f *flush, m Message, id *record.ID, bad error) error {
	t, err := s.topics.get(ctx, m.Topic)
	var why *refused
	if errors.As(err, &why) {
		f.refused[m.Topic] = true
		return s.unroute(ctx, f, m, id, why)
	}
	if err != nil {
		return err
	}
	if f.refused[m.Topic] {
		// Were this one committed, those before it would count as taken in.
		return errRolled
	}
	set := f.of(t.Name).set
	rows, rejected := 1, 1
	if bad != nil {
		err = s.reject(set, m, nil, bad.Error())
	} else {
		rows, rejected, err = s.into(set, m, id, t.Key)
	}
	f.counts.Records += uint64(rows)
	f.counts.Rejected += uint64(rejected)
	f.wait(s.Now().Add(flushAge(m, time.Duration(t.FlushAge))))
	return err
}

// unroute commits a message that names no topic to the system topic for those.
func (s *session) unroute(ctx context.Context, f *flush, m Message, id *record.ID, why *refused) error {
	t, err := s.topics.get(ctx, topic.Unrouted)
	if err != nil {
		return err
	}
	header := map[string][]string{HeaderTopic: {m.Topic}}
	for k, v := range m.Header {
		header[k] = v
	}
	m.Header = header
	f.counts.Records++
	f.counts.Rejected++
	f.wait(s.Now().Add(flushAge(m, time.Duration(t.FlushAge))))
	return s.reject(f.of(t.Name).set, m, id, why.reason)
}

// flushAge is how long a message may wait: short if its publisher does.
func flushAge(m Message, age time.Duration) time.Duration {
	if v := m.Header[lane.HeaderAck]; len(v) > 0 && v[0] == "stored" {
		return min(age, storedFlushAge)
	}
	return age
}
