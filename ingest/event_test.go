package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// s3Event is an element of Records: "kind key sequencer version".
func s3Event(what string) string {
	f := append(strings.Split(what, " "), "", "", "")
	names := map[string]string{
		"put": "ObjectCreated:Put", "copy": "s3:ObjectCreated:Copy", "del": "ObjectRemoved:Delete", "expire": "LifecycleExpiration:Delete", "tag": "ObjectTagging:Put",
	}
	return fmt.Sprintf(`{"eventName":%q,"eventTime":"2026-11-30T09:00:00.5Z","s3":{"bucket":{"name":"bkt"},"object":{"key":%q,"size":7,"eTag":"e","sequencer":%q,"versionId":%q}}}`,
		names[f[0]], f[1], f[2], f[3])
}

func notification(events ...string) []byte {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = s3Event(e)
	}
	return []byte(`{"Records":[` + strings.Join(list, ",") + `]}`)
}

// listener is a session as far as events are concerned.
type listener struct {
	session
	flush *flush
	last  uint64
}

func newListener() *listener {
	l := &listener{flush: newFlush(1)}
	l.decoder.source, l.objects = "lane.default.0.x", segment.NewObjectTable(nil)
	return l
}

// hear gives the records of the next message of the lane.
func (l *listener) hear(t *testing.T, def topic.Definition, data []byte) []record.Record {
	t.Helper()
	l.last++
	m := Message{Topic: def.Name, Event: true, Data: data, Sequence: l.last, Time: decodeTime}
	in, bad := l.read(l.flush, m)
	if bad != nil {
		t.Fatal(bad)
	}
	set := &record.Set{}
	rows, rejected, err := l.notify(set, m, in.news, def)
	if err != nil {
		t.Fatal(err)
	}
	records, err := set.Records()
	if err != nil || rows != len(records) {
		t.Fatalf("%d rows, %d records, %v", rows, len(records), err)
	}
	for i, r := range records {
		if r.Rejected != "" {
			rejected--
		}
		want := topic.SpreadSlot(l.decoder.source, r.Position)
		if r.Key != nil && def.Key != topic.KeyNone && (r.Rejected == "" || r.Ref != nil) {
			want = topic.SlotOf(r.Key)
		}
		if set.Recs[i].Slot != want {
			t.Errorf("record %s with key %q is in slot %d, want %d", r.Position, r.Key, set.Recs[i].Slot, want)
		}
	}
	if rejected != 0 {
		t.Errorf("the count of rejected records is off by %d", rejected)
	}
	return records
}

// outcome is a short form of a record that an event became.
func outcome(r record.Record) string {
	s := fmt.Sprintf("%d.%d %q", r.Position.Sequence, r.Position.Row, r.Key)
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %s=%s", h.Name, h.Value)
	}
	if r.Ref != nil {
		s += fmt.Sprintf(" ref=%s,%d,%s,%s", r.Ref.URL, r.Ref.Size, r.Ref.ETag, r.Ref.Version)
	}
	if r.Rejected != "" {
		s += " rejected: " + r.Rejected
	}
	return s
}

// TestEventOutcomes: docs/S3-EVENTS.md has this as a table.
func TestEventOutcomes(t *testing.T) {
	plain := topic.Definition{Name: "t", Key: topic.KeyHeader}
	removals := plain
	removals.RecordRemovals = true
	put := func(at, key, seq string) string {
		return fmt.Sprintf("%s %q S3-Event=ObjectCreated:Put S3-Sequencer=%s ref=s3://bkt/%s,7,e,", at, key, seq, key)
	}
	const late = " rejected: an event of this object with a later sequencer came before"
	for name, c := range map[string]struct {
		def      topic.Definition
		messages []string // each with events, separated by commas
		want     []string
		twice    int
	}{
		"created":            {plain, []string{"put a 01"}, []string{put("1.0", "a", "01")}, 0},
		"the same again":     {plain, []string{"put a 01", "put a 01"}, []string{put("1.0", "a", "01")}, 1},
		"again, in one":      {plain, []string{"put a 01,put a 01,put b 01"}, []string{put("1.0", "a", "01"), put("1.2", "b", "01")}, 1},
		"padded the same":    {plain, []string{"put a 01", "put a 0100"}, []string{put("1.0", "a", "01")}, 1},
		"overwritten":        {plain, []string{"put a 01", "put a 02"}, []string{put("1.0", "a", "01"), put("2.0", "a", "02")}, 0},
		"late":               {plain, []string{"put a 02", "put a 01"}, []string{put("1.0", "a", "02"), put("2.0", "a", "01") + late}, 0},
		"late, twice":        {plain, []string{"put a 02", "put a 01", "put a 01"}, []string{put("1.0", "a", "02"), put("2.0", "a", "01") + late, put("3.0", "a", "01") + late}, 0},
		"other kind":         {plain, []string{"copy a 01"}, []string{`1.0 "a" S3-Event=ObjectCreated:Copy S3-Sequencer=01 ref=s3://bkt/a,7,e,`}, 0},
		"versions":           {plain, []string{"put a 02 v2", "put a 01 v1", "put a 02 v2"}, []string{put("1.0", "a", "02") + "v2", put("2.0", "a", "01") + "v1"}, 1},
		"null is no version": {plain, []string{"put a 01 null", "put a 01"}, []string{put("1.0", "a", "01") + "null"}, 1},
		"no sequencer":       {plain, []string{"put a", "put a"}, []string{`1.0 "a" S3-Event=ObjectCreated:Put ref=s3://bkt/a,7,e,`, `2.0 "a" S3-Event=ObjectCreated:Put ref=s3://bkt/a,7,e,`}, 0},
		"removed":            {plain, []string{"del a 01"}, nil, 0},
		"created, removed":   {plain, []string{"put a 01", "del a 02"}, []string{put("1.0", "a", "01")}, 0},
		"removed, created":   {plain, []string{"del a 02", "put a 03"}, []string{put("2.0", "a", "03")}, 0},
		"created before it was removed, and told after": {plain, []string{"del a 02", "put a 01"}, []string{put("2.0", "a", "01") + late}, 0},
		"removal, late":          {plain, []string{"put a 02", "del a 01"}, []string{put("1.0", "a", "02")}, 0},
		"removed, recorded":      {removals, []string{"del a 01", "del a 01"}, []string{`1.0 "a" S3-Event=ObjectRemoved:Delete S3-Sequencer=01 S3-Object=s3://bkt/a`}, 1},
		"expired, recorded":      {removals, []string{"expire a 01 v1"}, []string{`1.0 "a" S3-Event=LifecycleExpiration:Delete S3-Sequencer=01 S3-Object=s3://bkt/a S3-Version=v1`}, 0},
		"late removal, recorded": {removals, []string{"put a 02", "del a 01"}, []string{put("1.0", "a", "02"), `2.0 "a" S3-Event=ObjectRemoved:Delete S3-Sequencer=01 S3-Object=s3://bkt/a` + late}, 0},
		"ignored":                {removals, []string{"tag a 09,put a 01"}, []string{put("1.1", "a", "01")}, 0},
		"a bad one among others": {plain, []string{"put a%2 01,put b 01"}, []string{`1.0 "" S3-Event=ObjectCreated:Put rejected: s3.object.key: it is not URL-encoded: invalid URL escape "%2"`, put("1.1", "b", "01")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newListener()
			var got []string
			for _, m := range c.messages {
				data := notification(strings.Split(m, ",")...)
				for _, r := range l.hear(t, c.def, data) {
					got = append(got, outcome(r))
					value := ""
					if r.Rejected != "" && r.Rejected != lateEvent {
						value = s3Event(strings.Split(m, ",")[r.Position.Row])
					}
					if string(r.Value) != value || (r.Value == nil) != (value == "") {
						t.Errorf("record %s has the value %q, want %q", r.Position, r.Value, value)
					}
					if at := time.Date(2026, 11, 30, 9, 0, 0, 500_000_000, time.UTC); value == "" && !r.EventTime.Equal(at) {
						t.Errorf("record %s happened at %s", r.Position, r.EventTime)
					}
				}
			}
			if g, w := strings.Join(got, "\n"), strings.Join(c.want, "\n"); g != w {
				t.Errorf("got\n%s\nwant\n%s", g, w)
			}
			if l.flush.counts.Duplicates != uint64(c.twice) {
				t.Errorf("%d duplicates, want %d", l.flush.counts.Duplicates, c.twice)
			}
		})
	}
}

func TestEventKeys(t *testing.T) {
	for key, c := range map[topic.Key]struct {
		key      string // "-": none
		rejected string
	}{
		topic.KeyHeader:                {"dir/a b", ""},
		topic.KeyNone:                  {"-", ""},
		"json:/s3/object/key":          {"dir%2Fa+b", ""},
		"json:/s3/bucket/name":         {"bkt", ""},
		"json:/s3/object/userMetadata": {"-", ""},
		"json:/s3/object":              {"-", "object or array"},
	} {
		records := newListener().hear(t, topic.Definition{Name: "t", Key: key}, notification("put dir%2Fa+b 01"))
		if len(records) != 1 {
			t.Fatalf("%s: %d records", key, len(records))
		}
		r := records[0]
		if !strings.Contains(r.Rejected, c.rejected) || (r.Rejected == "") != (c.rejected == "") || (r.Ref == nil) != (c.rejected != "") {
			t.Errorf("%s: %+v, want it rejected because of %q", key, r, c.rejected)
		}
		if (r.Key == nil) != (c.key == "-") || r.Key != nil && string(r.Key) != c.key {
			t.Errorf("%s: key %q, want %q", key, r.Key, c.key)
		}
	}
}

// TestTopicsDoNotShareObjects: each topic has every event once.
func TestTopicsDoNotShareObjects(t *testing.T) {
	l := newListener()
	for _, name := range []string{"t", "u"} {
		if records := l.hear(t, topic.Definition{Name: name, Key: topic.KeyHeader}, notification("put a 01")); len(records) != 1 {
			t.Errorf("topic %s: %d records", name, len(records))
		}
	}
}

// TestEventsThatARecordCannotHold are refused one by one.
func TestEventsThatARecordCannotHold(t *testing.T) {
	data := []byte(strings.Replace(string(notification("put a 01", "put b 01")), "2026-11-30", "0000-11-30", 1))
	records := newListener().hear(t, topic.Definition{Name: "t", Key: topic.KeyHeader}, data)
	if len(records) != 2 || !strings.Contains(records[0].Rejected, "event") || string(records[0].Key) != "a" || records[1].Rejected != "" {
		t.Errorf("%+v", records)
	}
}

// TestManyEvents: as many as a notification may have, of the least size.
func TestManyEvents(t *testing.T) {
	data := []byte(`{"Records":[{}` + strings.Repeat(",{}", 4095) + `]}`)
	records := newListener().hear(t, topic.Definition{Name: "t", Key: topic.KeyHeader}, data)
	if len(records) != 4096 || records[4095].Position.Row != 4095 || string(records[7].Value) != "{}" || records[7].Headers[0].Name != HeaderEvent {
		t.Errorf("%d records, one is %+v", len(records), records[7])
	}
}

// TestWhatARestartKnows: a worker that starts from the checkpoint of a flush goes
// on as the one that made it.
func TestWhatARestartKnows(t *testing.T) {
	def := topic.Definition{Name: "t", Key: topic.KeyHeader}
	l := newListener()
	l.hear(t, def, notification("put a 02", "put b 05"))
	c := segment.Checkpoint{Source: l.decoder.source}.Advance(l.last, decodeTime, nil).WithObjects(l.flush.objects.Rows())
	again := newListener()
	again.last, again.objects = l.last, segment.NewObjectTable(c.Objects)
	records := again.hear(t, def, notification("put a 02", "put b 04", "put b 06"))
	if len(records) != 2 || records[0].Rejected != lateEvent || records[1].Rejected != "" {
		t.Errorf("%+v", records)
	}
}
