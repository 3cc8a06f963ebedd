package ingest

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// definitionAge is how old what a worker knows of a topic's settings may be when
// it decides about a reference by them.
const definitionAge = 10 * time.Second

// refer has the objects looked at that the records of a topic from index on refer
// to.
func (s *session) refer(ctx context.Context, f *flush, t *topicRecords, from int) error {
	for i := from; i < len(t.set.Recs); i++ {
		if !t.set.Recs[i].HasRef {
			continue
		}
		t.set.Recs[i].Pending = true // until there is a verdict
		r, err := t.set.Record(i)
		if err != nil {
			return err
		}
		b, _, bad := ref.BatchOf(&r)
		if bad != nil { // whatever its object is
			if err := t.set.Refuse(i, "reference: "+bad.Error()); err != nil {
				return err
			}
			f.counts.Rejected++
			continue
		}
		if b.Expand {
			t.expand = append(t.expand, i)
		}
		d, err := s.settingsFor(ctx, f, t.name, *r.Ref)
		var why *refused
		if errors.As(err, &why) {
			continue // the topic goes, and its records with it
		}
		if err != nil {
			return err
		}
		if f.looks == nil {
			f.looks = s.lookers.begin(s.base)
		}
		s.lookers.add(f.looks, d, lookedAt{set: t.set, index: i}, *r.Ref)
	}
	return nil
}

// settingsFor is the definition by which to look at a reference. It is read again,
// once a flush, for one that it does not allow: it may allow it since.
func (s *session) settingsFor(ctx context.Context, f *flush, name string, r record.Ref) (topic.Definition, error) {
	t, err := s.topics.fresh(ctx, name, definitionAge)
	if err != nil {
		return topic.Definition{}, err
	}
	if _, bad := verdict.Allowed(t.Definition, r); bad == nil || f.reread[name] {
		return t.Definition, nil
	}
	f.reread[name] = true
	if t, err = s.topics.fresh(ctx, name, 0); err != nil {
		return topic.Definition{}, err
	}
	return t.Definition, nil
}

// fresh opens a topic, anew if what is known of it is older than age.
func (ts *topics) fresh(ctx context.Context, name string, age time.Duration) (*openTopic, error) {
	t, err := ts.get(ctx, name)
	if err != nil || age > 0 && ts.now().Sub(t.loaded) <= age {
		return t, err
	}
	if err := ts.refresh(ctx, name); err != nil {
		return nil, err
	}
	return ts.get(ctx, name)
}

// judge waits for the verdicts about a flush's references and writes them into its
// records. After that the flush is as it will be committed, whatever layouts it
// meets: a record has one verdict of each worker, and the chunk that wins says
// which one counts.
func (s *session) judge(ctx context.Context, f *flush) error {
	if f.looks == nil {
		return nil
	}
	start := time.Now()
	if err := s.lookers.wait(ctx, f.looks, f.due); err != nil {
		return err
	}
	if err := s.reconsider(ctx, s.lookers.notAllowed(f.looks)); err != nil {
		return err
	}
	refused, pending, err := s.lookers.apply(f.looks)
	f.counts.References += uint64(len(f.looks.refs))
	f.counts.Rejected += uint64(refused)
	f.counts.Pending += uint64(pending)
	s.Metrics.lookSeconds.Observe(time.Since(start).Seconds())
	f.looks = nil
	return err
}

// reconsider reads the settings again of topics that did not allow a reference. One
// that is allowed by now stays pending.
func (s *session) reconsider(ctx context.Context, list []*look) error {
	read := map[string]topic.Definition{}
	for _, k := range list {
		d, ok := read[k.topic.Name]
		if !ok {
			t, err := s.topics.fresh(ctx, k.topic.Name, 0)
			var why *refused
			if errors.As(err, &why) {
				continue // the topic goes, and its records with it
			}
			if err != nil {
				return err
			}
			d = t.Definition
			read[d.Name] = d
		}
		if _, bad := verdict.Allowed(d, k.ref); bad == nil {
			s.lookers.reopen(k)
		}
	}
	return nil
}
