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
	if s.objects == nil { // the session's first message; the checkpoint moves later
		s.objects = segment.NewObjectTable(s.checkpoint.Objects)
	}
	in, bad := s.read(f, m)
	switch {
	case m.Topic == lane.Control && !m.Event: // it has held the lane back, and holds no record
	case in.id != nil && s.duplicate(f, m, in.id):
		f.counts.Duplicates++
	default:
		if err := s.add(ctx, f, in, bad); err != nil {
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

// incoming is a message with what was read of it before its topic was looked up.
type incoming struct {
	Message
	id   *record.ID // of a batch
	news []notice   // of an S3 event notification
}

// read reads the headers of a message, and the events of a notification, to which
// no headers but Spillway-After and Spillway-Ack apply. An error says why the
// message is to be rejected as a whole.
func (s *session) read(f *flush, m Message) (in incoming, bad error) {
	in.Message = m
	if _, bad = aftersOf(m.Header); bad == nil && m.Event {
		in.news, bad = s.notices(f, m)
	}
	if !m.Event {
		var badID error
		in.id, badID = batchID(m.Header)
		bad = errors.Join(badID, bad)
	}
	return in, bad
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

func (s *session) add(ctx context.Context, f *flush, m incoming, bad error) error {
	t, err := s.topics.get(ctx, m.Topic)
	var why *refused
	if errors.As(err, &why) {
		f.refused[m.Topic] = true
		return s.unroute(ctx, f, m, why)
	}
	if err != nil {
		return err
	}
	if f.refused[m.Topic] {
		// Were this one committed, those before it would count as taken in.
		return errRolled
	}
	records := f.of(t.Name)
	before := len(records.set.Recs)
	rows, rejected := 1, 1
	switch {
	case bad != nil:
		err = s.reject(records.set, m.Message, nil, bad.Error())
	case m.Event:
		rows, rejected, err = s.told(ctx, records.set, m, t)
	default:
		rows, rejected, err = s.into(records.set, m.Message, m.id, t.Key)
	}
	if err != nil {
		return err
	}
	f.counts.Records += uint64(rows)
	f.counts.Rejected += uint64(rejected)
	f.wait(s.Now().Add(flushAge(m.Message, time.Duration(t.FlushAge))))
	return s.refer(ctx, f, records, before)
}

// unroute commits a message that names no topic to the system topic for those.
func (s *session) unroute(ctx context.Context, f *flush, m incoming, why *refused) error {
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
	f.wait(s.Now().Add(flushAge(m.Message, time.Duration(t.FlushAge))))
	return s.reject(f.of(t.Name).set, m.Message, m.id, why.reason)
}

// flushAge is how long a message may wait: short if its publisher does.
func flushAge(m Message, age time.Duration) time.Duration {
	if v := m.Header[lane.HeaderAck]; len(v) > 0 && v[0] == "stored" {
		return min(age, storedFlushAge)
	}
	return age
}
