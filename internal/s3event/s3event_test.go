package s3event_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/s3event"
)

var update = flag.Bool("update", false, "write the golden files")

var kinds = map[s3event.Kind]string{s3event.Ignored: "ignored", s3event.Created: "created", s3event.Removed: "removed"}

// describe is all that was read of a notification, but the events' JSON.
func describe(events []s3event.Event, err error) string {
	var b strings.Builder
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for row, e := range events {
		fmt.Fprintf(&b, "%d %s %s", row, kinds[e.Kind], cmp.Or(e.Name, "-"))
		if e.Refused != nil {
			fmt.Fprintf(&b, "\n  refused: %s\n", e.Refused)
			continue
		}
		if e.Kind == s3event.Ignored {
			fmt.Fprintln(&b)
			continue
		}
		order, ok := e.Order()
		fmt.Fprintf(&b, "\n  %s version %q size %d etag %q type %q\n  at %s, sequencer %q: %x %v\n",
			e.Object, e.Object.Version, e.Size, e.ETag, e.ContentType, e.Time.Format(time.RFC3339Nano), e.Sequencer, order, ok)
	}
	return b.String()
}

// TestSamples compares what is read in notifications of several servers with
// testdata/*.golden.
func TestSamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := describe(s3event.Parse(data))
		golden := strings.TrimSuffix(file, ".json") + ".golden"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", file, got, want)
		}
	}
}

// one is a notification of one event, which is an ObjectCreated:Put of s3://bkt/k
// but for what set changes; a nil value removes a member.
func one(t testing.TB, set map[string]any) []byte {
	t.Helper()
	object := map[string]any{"key": "k", "size": 7, "eTag": "e", "sequencer": "01"}
	bucket := map[string]any{"name": "bkt"}
	record := map[string]any{"eventName": "ObjectCreated:Put", "eventSource": "aws:s3", "s3": map[string]any{"bucket": bucket, "object": object}}
	for name, v := range set {
		in, last := record, name
		if rest, ok := strings.CutPrefix(name, "object."); ok {
			in, last = object, rest
		} else if rest, ok := strings.CutPrefix(name, "bucket."); ok {
			in, last = bucket, rest
		}
		if in[last] = v; v == nil {
			delete(in, last)
		}
	}
	data, err := json.Marshal(map[string]any{"Records": []any{record}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type set = map[string]any

func TestEvents(t *testing.T) {
	for name, c := range map[string]struct {
		set  set
		want string // part of the description
	}{
		"as it is":             {set{}, `created ObjectCreated:Put` + "\n" + `  s3://bkt/k version "" size 7 etag "e"`},
		"with s3:":             {set{"eventName": "s3:ObjectCreated:Copy"}, "created ObjectCreated:Copy\n"},
		"new kind of creation": {set{"eventName": "ObjectCreated:Teleport"}, "created"},
		"removed by lifecycle": {set{"eventName": "LifecycleExpiration:DeleteMarkerCreated"}, "removed"},
		"MinIO, all versions":  {set{"eventName": "s3:ObjectRemoved:DeleteAllVersions"}, "removed"},
		"legal hold":           {set{"eventName": "s3:ObjectCreated:PutLegalHold"}, "ignored"},
		"unknown":              {set{"eventName": "Replication:OperationMissedThreshold"}, "ignored"},
		"test in Records":      {set{"eventName": "s3:TestEvent"}, "ignored"},
		"no name":              {set{"eventName": nil}, "no eventName"},
		"name is a number":     {set{"eventName": 1}, "no eventName"},
		"not S3":               {set{"eventName": "INSERT", "eventSource": "aws:dynamodb"}, `refused: its eventSource is "aws:dynamodb"`},
		"key with plus":        {set{"object.key": "a%2Bb+c%252B.txt"}, "s3://bkt/a+b c%2B.txt "},
		"key not encoded":      {set{"object.key": "50%"}, "refused: s3.object.key: it is not URL-encoded"},
		"escape is cut":        {set{"object.key": "a%2"}, "not URL-encoded"},
		"key is no UTF-8":      {set{"object.key": "%FF%FE"}, "refused: key: it is not valid UTF-8"},
		"key with a tab":       {set{"object.key": "a%09"}, "control character"},
		"key climbs":           {set{"object.key": "a%2F..%2Fb"}, `segment ".."`},
		"key of 1,025 bytes":   {set{"object.key": strings.Repeat("k", 1025)}, "1025 bytes"},
		"no key":               {set{"object.key": nil}, "refused: key: it is empty"},
		"key is a list":        {set{"object.key": []string{"k"}}, "refused: s3.object.key: it is not a string"},
		"no object":            {set{"s3": nil}, "refused: bucket"},
		"bad bucket":           {set{"bucket.name": "a/b"}, "refused: bucket"},
		"version null":         {set{"object.versionId": "null"}, `version "null"`},
		"version JSON null":    {set{"object.versionId": json.RawMessage("null")}, `version ""`},
		"version with a space": {set{"object.versionId": "a b"}, "refused: version"},
		"no size":              {set{"object.size": nil}, "size 0"},
		"negative size":        {set{"object.size": -1}, "refused: s3.object.size: -1 is not"},
		"size too large":       {set{"object.size": json.RawMessage("9223372036854775808")}, "refused: s3.object.size"},
		"size with exponent":   {set{"object.size": json.RawMessage("1e400")}, "refused: s3.object.size"},
		"size is text":         {set{"object.size": "7"}, "refused: s3.object.size"},
		"ETag in quotes":       {set{"object.eTag": `"abc"`}, `etag "abc"`},
		"no ETag":              {set{"object.eTag": nil}, `etag ""`},
		"endless ETag":         {set{"object.eTag": strings.Repeat("e", 1025)}, "refused: s3.object.eTag: it has 1025 bytes"},
		"no time":              {set{}, "at 0001-01-01T00:00:00Z"},
		"bad time":             {set{"eventTime": "yesterday"}, `refused: eventTime: "yesterday" is not a time`},
		"no sequencer":         {set{"object.sequencer": nil}, `sequencer "":  false`},
		"sequencer of zeros":   {set{"object.sequencer": "000"}, `sequencer "000":  true`},
		"sequencer is text":    {set{"object.sequencer": "first"}, `sequencer "first":  false`},
		"endless sequencer":    {set{"object.sequencer": strings.Repeat("f", 65)}, "false"},
	} {
		if got := describe(s3event.Parse(one(t, c.set))); !strings.Contains(got, c.want) {
			t.Errorf("%s: %swant %s", name, got, c.want)
		}
	}
}

func TestNoNotifications(t *testing.T) {
	mib := func(s string) string { return strings.Repeat(s, 1<<20/len(s)) }
	for name, c := range map[string]struct{ data, want string }{
		"empty":                   {"", "not JSON"},
		"text":                    {"hello", "not JSON"},
		"list":                    {`[{"Records":[]}]`, "not a JSON object"},
		"cut":                     {`{"Records":[{"eventName":"Obj`, "not JSON"},
		"two documents":           {`{"Records":[]}{}`, "not JSON"},
		"no UTF-8":                {"{\"Records\":[{\"eventName\":\"\xff\"}]}", "not UTF-8"},
		"UTF-16":                  {"\xff\xfe{\x00}\x00", "not UTF-8"},
		"no Records":              {`{"records":[{}]}`, "no list Records"},
		"Records is no list":      {`{"Records":{"0":{}}}`, "no list Records"},
		"empty Records":           {`{"Records":[]}`, "empty"},
		"100,000 records":         {`{"Records":[{}` + strings.Repeat(",{}", 100_000) + `]}`, "more than 4096"},
		"1 MiB of [":              {mib("["), "not JSON"},
		"1 MiB of nested objects": {mib(`{"Records":`), "not JSON"},
		"nested, and balanced":    {strings.Repeat("[", 1<<19) + strings.Repeat("]", 1<<19), "not JSON"},
		"digits":                  {mib("9"), "not a JSON object"},
		"an odd SNS message":      {`{"Type":"UnsubscribeConfirmation","TopicArn":"a"}`, `type "UnsubscribeConfirmation"`},
		"SNS about nothing":       {`{"Type":"Notification","TopicArn":"a","Message":"hi"}`, "Message of an SNS"},
		"SNS without a message":   {`{"Type":"Notification","TopicArn":"a"}`, "Message of an SNS"},
		"SNS in SNS":              {`{"Type":"Notification","TopicArn":"a","Message":"{\"Type\":\"Notification\",\"TopicArn\":\"a\",\"Message\":\"{}\"}"}`, "SNS message in an SNS message"},
		"EventBridge":             {`{"detail-type":"Object Created","detail":{}}`, "SQS or SNS"},
	} {
		events, err := s3event.Parse([]byte(c.data))
		var typed *s3event.ParseError
		if !errors.As(err, &typed) || events != nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 400 {
			t.Errorf("%s: %d events, %v; want %q", name, len(events), err, c.want)
		}
	}
}

// TestOfRepeatedNamesTheFirstCounts: also where another parser would take the last.
func TestOfRepeatedNamesTheFirstCounts(t *testing.T) {
	events, err := s3event.Parse([]byte(`{"Records":[{"eventName":"ObjectCreated:Put","eventName":"ObjectRemoved:Delete",
		"s3":{"bucket":{"name":"one"},"object":{"key":"k","key":"l"}},"s3":{"bucket":{"name":"two"},"object":{"key":"m"}}}],"Records":[]}`))
	if err != nil || len(events) != 1 || events[0].Kind != s3event.Created || events[0].Object.String() != "s3://one/k" {
		t.Errorf("%v, %v", events, err)
	}
}

// TestHostileMemory: what is large or deep is refused without much memory.
func TestHostileMemory(t *testing.T) {
	bad := [][]byte{
		[]byte(strings.Repeat("[", 1<<20)),
		[]byte(`{"Records":[` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `]}`),
		[]byte(`{"Records":[{}` + strings.Repeat(",{}", 340_000) + `]}`),
		one(t, set{"object.key": strings.Repeat("%41", 1<<18)}),
	}
	for i, data := range bad {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = s3event.Parse(data)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 || after.StackSys > before.StackSys+16<<20 {
			t.Errorf("message %d: %d MiB were allocated, stacks grew from %d to %d KiB", i, grown>>20, before.StackSys>>10, after.StackSys>>10)
		}
	}
}

// pad compares sequencers as AWS says to: the shorter one padded with zeros at its
// right, then as text.
func pad(a, b string) int {
	n := max(len(a), len(b))
	fill := func(s string) string { return strings.ToUpper(s) + strings.Repeat("0", n-len(s)) }
	return strings.Compare(fill(a), fill(b))
}

func TestOrder(t *testing.T) {
	digits := rapid.StringMatching(`[0-9A-Fa-f]{1,20}0{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		a := s3event.Event{Sequencer: digits.Draw(t, "a")}
		b := s3event.Event{Sequencer: digits.Draw(t, "b")}
		if rapid.Bool().Draw(t, "near") {
			b.Sequencer = a.Sequencer + rapid.StringMatching(`0{0,3}[0-9A-F]?`).Draw(t, "more")
		}
		x, okA := a.Order()
		y, okB := b.Order()
		if !okA || !okB {
			t.Fatalf("%q %v, %q %v", a.Sequencer, okA, b.Sequencer, okB)
		}
		if got, want := strings.Compare(x, y), pad(a.Sequencer, b.Sequencer); got != want {
			t.Fatalf("%q and %q: %d, want %d", a.Sequencer, b.Sequencer, got, want)
		}
	})
	// What AWS shows, what MinIO writes, and lengths that differ.
	for _, c := range [][2]string{
		{"0055AED6DCD90281E5", "0055AED6DCD90281E6"}, {"187C8B1AF9304D1A", "187C8B3E5D7A0000"},
		{"00692C0A80", "00692C0A8000000001"}, {"9", "A"}, {"0FF", "1"},
	} {
		if pad(c[0], c[1]) >= 0 {
			t.Errorf("%q is not before %q", c[0], c[1])
		}
	}
}
