package ingest

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/s3event"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Headers of records that S3 events become.
const (
	HeaderEvent     = "S3-Event"     // its name, as in ObjectCreated:Put; empty if it has none
	HeaderSequencer = "S3-Sequencer" // as it was sent; absent if it has none
	HeaderObject    = "S3-Object"    // of a removal: s3://bucket/key
	HeaderVersion   = "S3-Version"   // of a removal: the version, if there is one
)

// lateEvent is why an event is rejected that comes after a later one.
const lateEvent = "an event of this object with a later sequencer came before"

// notice is an S3 event with its place among those of its object.
type notice struct {
	s3event.Event
	order segment.ObjectOrder
}

// notices reads a notification, and holds its events against those that came before
// them. Both depend on the lane's content alone (rule 20), not on the topic or its
// settings. An error says why the message is none; it is rejected for it.
func (s *session) notices(f *flush, m Message) ([]notice, error) {
	events, err := s3event.Parse(m.Data)
	if err != nil {
		return nil, err
	}
	news := make([]notice, len(events))
	for i, e := range events {
		news[i].Event = e
		order, ok := e.Order()
		if !ok || e.Kind == s3event.Ignored || e.Refused != nil {
			continue
		}
		o := segment.Object{ID: objectID(m.Topic, &e), Sequencer: order, At: m.Sequence}
		switch news[i].order = s.objects.Order(o); news[i].order {
		case segment.ObjectNewest:
			s.objects.Take(o)
			f.took(o)
		case segment.ObjectDuplicate:
			f.counts.Duplicates++
		}
	}
	return news, nil
}

// took notes an event for the next checkpoint.
func (f *flush) took(o segment.Object) {
	if f.objects == nil {
		f.objects = segment.NewObjectTable(nil)
	}
	f.objects.Take(o)
}

// objectID: "null" is what S3 calls the version of an object that has none.
func objectID(topic string, e *s3event.Event) uint64 {
	version := e.Object.Version
	if version == "null" {
		version = ""
	}
	return segment.ObjectID(topic, e.Object.Bucket, e.Object.Key, version)
}

// told appends the records of a notification for a topic, by settings of it that
// are not old: whether removals are recorded is changed at any time.
func (s *session) told(ctx context.Context, set *record.Set, m incoming, t *openTopic) (rows, rejected int, err error) {
	def := t.Definition
	now, err := s.topics.fresh(ctx, t.Name, definitionAge)
	var why *refused
	switch {
	case err == nil:
		def = now.Definition
	case !errors.As(err, &why): // else the topic goes, and its records with it
		return 0, 0, err
	}
	return s.notify(set, m.Message, m.news, def)
}

// notify appends what a notification's events have to tell. An event's row is its
// number in the notification, also where others have nothing to tell.
func (d decoder) notify(set *record.Set, m Message, news []notice, t topic.Definition) (rows, rejected int, err error) {
	for row := range news {
		n := &news[row]
		if !n.tells(t) {
			continue
		}
		r := record.Record{Time: m.Time, Position: topic.Position{Sequence: m.Sequence, Row: uint32(row)}, Headers: n.headers()}
		bad := n.describe(&r, t.Key)
		if bad == nil {
			bad = d.place(set, &r, t.Key)
		}
		if bad != nil {
			r = record.Record{Time: r.Time, Position: r.Position, Headers: r.Headers, Key: r.Key, Value: []byte(n.JSON), Rejected: bad.Error()}
			if err := d.place(set, &r, t.Key); err != nil {
				return rows, rejected, err
			}
		}
		rows++
		if r.Rejected != "" {
			rejected++
		}
	}
	return rows, rejected, nil
}

// place appends a record. Refused ones without a reference are spread, whatever
// their key.
func (d decoder) place(set *record.Set, r *record.Record, key topic.Key) error {
	if r.Rejected != "" && r.Ref == nil {
		return set.Append(r, topic.SpreadSlot(d.source, r.Position))
	}
	return set.Append(r, d.slotOf(key)(r.Position, r.Key))
}

// tells says whether an event becomes a record, accepted or not.
func (n *notice) tells(t topic.Definition) bool {
	switch {
	case n.Refused != nil:
		return true
	case n.order == segment.ObjectDuplicate, n.Kind == s3event.Ignored:
		return false
	}
	return n.Kind == s3event.Created || t.RecordRemovals
}

// describe fills in the record of an event. One that is late is rejected, and has
// all that it would have if it had come in time. An error says why there is no such
// record; its key is filled in if it is known.
func (n *notice) describe(r *record.Record, key topic.Key) error {
	if n.Refused != nil {
		return n.Refused
	}
	switch pointer := key.Pointer(); {
	case pointer != nil: // into the event: the object is elsewhere
		k, err := keyAt([]byte(n.JSON), pointer)
		if err != nil {
			return err
		}
		r.Key = k
	case key != topic.KeyNone:
		r.Key = []byte(n.Object.Key)
	}
	if n.order == segment.ObjectLate {
		r.Rejected = lateEvent
	}
	r.EventTime = n.Time
	if n.Kind == s3event.Created {
		r.Ref = &record.Ref{
			URL: n.Object.String(), Size: n.Size, ETag: n.ETag, Version: n.Object.Version, ContentType: n.ContentType,
		}
	}
	return nil
}

// headers of an event's record. The first one is always there, so that records that
// come of events can be told from others.
func (n *notice) headers() []record.Header {
	list := []record.Header{{Name: HeaderEvent, Value: []byte(n.Name)}}
	add := func(name, value string) {
		if value != "" {
			list = append(list, record.Header{Name: name, Value: []byte(value)})
		}
	}
	add(HeaderSequencer, n.Sequencer)
	if n.Kind == s3event.Removed && n.Refused == nil {
		add(HeaderObject, n.Object.String())
		add(HeaderVersion, n.Object.Version)
	}
	return list
}
