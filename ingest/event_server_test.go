package ingest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// sample is a notification as a server sends it, unmodified.
func sample(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "internal", "s3event", "testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// buckets are those that the samples name.
var buckets = []string{"mybucket", "mybucket1", "orders-in"}

// eventTopic makes a topic that takes references into the samples' buckets.
func (s *site) eventTopic(name string, change func(*topic.Definition)) {
	s.Helper()
	def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: lane.Default, Buckets: buckets}
	change(&def)
	if _, err := s.store.CreateTopic(s.Context(), def, 2, time.Now()); err != nil {
		s.Fatal(err)
	}
}

// event publishes a notification as MinIO and a bridge do: with an acknowledgement
// from JetStream, and nothing else.
func (s *site) event(topic string, data []byte, opts ...jetstream.PublishOpt) {
	s.Helper()
	if _, err := s.js.Publish(s.Context(), "spillway.s3."+topic, data, opts...); err != nil {
		s.Fatal(err)
	}
}

// records lists a topic in the order of the lane.
func (s *site) records(name string) (all []record.Record) {
	s.Helper()
	t, err := s.store.Topic(s.Context(), name)
	if err != nil {
		s.Fatal(err)
	}
	segments, err := t.Segments(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	for _, seg := range segments {
		for c, err := range seg.Chunks(s.Context(), 0) {
			if err != nil {
				s.Fatal(err)
			}
			for r, err := range seg.Records(s.Context(), c) {
				if err != nil {
					s.Fatal(err)
				}
				all = append(all, r.Clone())
			}
		}
	}
	slices.SortFunc(all, func(a, b record.Record) int { return a.Position.Compare(b.Position) })
	return all
}

// shown is a record in short.
func shown(r record.Record) string {
	s := fmt.Sprintf("%s %q", r.Position, r.Key)
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

func (s *site) wantRecords(name string, want ...string) {
	s.Helper()
	var got []string
	for _, r := range s.records(name) {
		got = append(got, shown(r))
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		s.Errorf("topic %s has\n%s\nwant\n%s", name, g, w)
	}
}

// TestNotificationsBecomeRecords: what AWS, MinIO and Ceph send goes through a real
// nats-server, unmodified, beside ordinary messages in the same lane.
func TestNotificationsBecomeRecords(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.eventTopic("orders", func(d *topic.Definition) { d.RecordRemovals = true })
	l := s.group(lane.Default, 1)[0]
	s.event("orders", sample(t, "aws-test"))
	s.event("orders", sample(t, "aws-put"), jetstream.WithMsgID("a"))
	s.event("orders", sample(t, "minio-put"))
	s.publish(l.ID, "orders", "an ordinary message")
	s.event("orders", sample(t, "aws-many"))
	s.event("orders", sample(t, "sns-put"), jetstream.WithMsgID("b")) // the same event as aws-put
	s.event("orders", sample(t, "minio-delete"))
	s.event("orders", sample(t, "minio-put")) // late: sent again after the delete
	s.event("orders", sample(t, "ceph-put"))
	s.event("orders", sample(t, "eventbridge"))
	w := s.worker(l, true)
	if err := w.Run(t.Context(), context.Background()); err != nil {
		t.Fatal(err)
	}
	s.wantRecords("orders",
		`2:0 "HappyFace.jpg" S3-Event=ObjectCreated:Put S3-Sequencer=0055AED6DCD90281E5 ref=s3://mybucket/HappyFace.jpg,1024,d41d8cd98f00b204e9800998ecf8427e,096fKKXTRTtl3on89fVO.nfljtsv6qko`,
		`3:0 "a b/hello.jpg" S3-Event=ObjectCreated:Put S3-Sequencer=187C8B1AF9304D1A ref=s3://orders-in/a b/hello.jpg,224662,5fc7298143efe1276d39a3466d4e255f-1,`,
		`4:0 "k"`,
		`5:0 "2026/11/30/a+b c%2B.csv" S3-Event=ObjectCreated:CompleteMultipartUpload S3-Sequencer=00692C0A7F1B2C3D4E ref=s3://orders-in/2026/11/30/a+b c%2B.csv,5368709120,9bb58f26192e4ba00f01e2e7b136bbd8-640,`,
		`5:2 "old/🌊.txt" S3-Event=ObjectRemoved:Delete S3-Sequencer=00692C0A80 S3-Object=s3://orders-in/old/🌊.txt`,
		`5:3 "old/marked.txt" S3-Event=ObjectRemoved:DeleteMarkerCreated S3-Sequencer=00692C0A81 S3-Object=s3://orders-in/old/marked.txt S3-Version=null`,
		`5:4 "old/expired.txt" S3-Event=LifecycleExpiration:Delete S3-Sequencer=00692C0A82 S3-Object=s3://orders-in/old/expired.txt`,
		`5:5 "" S3-Event=ObjectCreated:Put rejected: s3.object.key: it is not URL-encoded: invalid URL escape "%.t"`,
		`7:0 "a b/hello.jpg" S3-Event=ObjectRemoved:Delete S3-Sequencer=187C8B3E5D7A0000 S3-Object=s3://orders-in/a b/hello.jpg`,
		`8:0 "a b/hello.jpg" S3-Event=ObjectCreated:Put S3-Sequencer=187C8B1AF9304D1A ref=s3://orders-in/a b/hello.jpg,224662,5fc7298143efe1276d39a3466d4e255f-1, rejected: an event of this object with a later sequencer came before`,
		`9:0 "myimage1.jpg" S3-Event=ObjectCreated:Put S3-Sequencer=F7E6D75DC742D108 ref=s3://mybucket1/myimage1.jpg,1024,37b51d194a7513e45b56f6524f2d51f2,`,
		`10:0 "" rejected: S3 event notification: it is in EventBridge's shape, which has no sequence of records and other names; have the bucket notify SQS or SNS, and publish what those get`,
	)
	all := s.records("orders")
	if last := all[len(all)-1]; string(last.Value) != string(sample(t, "eventbridge")) {
		t.Errorf("what cannot be read is kept as %q", last.Value)
	}
	if !json.Valid(all[7].Value) {
		t.Errorf("what is bad in one event is kept as %q", all[7].Value)
	}
	if c := w.Counts(); c.Messages != 10 || c.Duplicates != 1 || c.Rejected != 3 || c.Records != 12 {
		t.Errorf("%+v", c)
	}
}

// TestNotificationsForNoTopic go to "unrouted", as other messages do, and so does
// one whose topic's name is that of messages without records.
func TestNotificationsForNoTopic(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := s.group(lane.Default, 1)[0]
	s.event("nowhere", sample(t, "aws-put"))
	s.event(lane.Control, sample(t, "aws-put"))
	if err := s.drain(l); err != nil {
		t.Fatal(err)
	}
	all := s.records(topic.Unrouted)
	if len(all) != 2 || string(all[0].Value) != string(sample(t, "aws-put")) || all[0].Headers[0].Name != ingest.HeaderTopic {
		t.Errorf("%+v", all)
	}
}

// TestNotificationsOfATopicInAnotherGroup take the default lane, which all have.
func TestNotificationsOfATopicInAnotherGroup(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("big", 2)
	s.eventTopic("orders", func(d *topic.Definition) { d.Lanes = "big" })
	l := s.group(lane.Default, 1)[0]
	s.event("orders", sample(t, "aws-put"))
	if err := s.drain(l); err != nil {
		t.Fatal(err)
	}
	if all := s.records("orders"); len(all) != 1 || all[0].Ref == nil {
		t.Errorf("%+v", all)
	}
}

// TestAnOldLaneTakesEvents once a worker has opened it, and keeps what it holds.
func TestAnOldLaneTakesEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.eventTopic("orders", func(*topic.Definition) {})
	l := s.group(lane.Default, 1)[0]
	stream, err := s.js.Stream(t.Context(), l.ID.Stream())
	if err != nil {
		t.Fatal(err)
	}
	old := stream.CachedInfo().Config
	old.Subjects = []string{"spillway.in.*"}
	if _, err := s.js.UpdateStream(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	s.publish(l.ID, "orders", "from before")
	if _, err := s.js.Publish(t.Context(), lane.EventSubject("orders"), nil); err == nil {
		t.Fatal("an old lane takes events")
	}
	again := s.group(lane.Default, 1)[0]
	if again.Incarnation != l.Incarnation {
		t.Errorf("incarnation %s, was %s", again.Incarnation, l.Incarnation)
	}
	s.event("orders", sample(t, "minio-put"))
	if err := s.drain(again); err != nil {
		t.Fatal(err)
	}
	if all := s.records("orders"); len(all) != 2 || string(all[0].Value) != "from before" || all[1].Ref == nil {
		t.Errorf("%+v", all)
	}
}

// TestHeadersOfNotifications: those of batches and plain messages mean nothing;
// those that tell how to go about a message do.
func TestHeadersOfNotifications(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.eventTopic("orders", func(*topic.Definition) {})
	l := s.group(lane.Default, 1)[0]
	for _, h := range []nats.Header{
		{lane.HeaderBatch: {"1"}, lane.HeaderKey: {"mine"}, lane.HeaderEventTime: {"never"}, "Trace": {"7"}},
		{lane.HeaderAfter: {"nonsense"}},
	} {
		m := &nats.Msg{Subject: lane.EventSubject("orders"), Header: h, Data: sample(t, "minio-put")}
		if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.drain(l); err != nil {
		t.Fatal(err)
	}
	all := s.records("orders")
	if len(all) != 2 || all[0].Rejected != "" || string(all[0].Key) != "a b/hello.jpg" || !strings.Contains(all[1].Rejected, lane.HeaderAfter) {
		t.Errorf("%+v", all)
	}
}
