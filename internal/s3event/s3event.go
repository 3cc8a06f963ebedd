// Package s3event reads the notifications by which S3 servers tell of events in a
// bucket, in the shape that AWS gave them, as they come: from AWS, MinIO, Ceph and
// others, also inside an SNS message. It is pure: bytes in, events out.
// docs/S3-EVENTS.md says what becomes of them.
package s3event

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/spillway-mq/spillway/internal/object"
)

// MaxRecords is how many events one notification may tell of. S3 sends one; a
// bridge may put some together.
const MaxRecords = 4096

// Kind is what an event means here.
type Kind int

// The kinds of events.
const (
	Ignored Kind = iota // of no object's coming or going
	Created             // an object, or a version of it, was written
	Removed             // one was deleted, or hidden by a delete marker
)

// Event is one event: an element of a notification's Records.
type Event struct {
	Kind Kind
	Name string // as in "ObjectCreated:Put", without "s3:" before it
	JSON string // the event, as it was sent
	// Refused says why the event cannot be used, and then nothing below is set;
	// nil: it can. Ignored events are not looked at.
	Refused error

	Time        time.Time // zero: not said
	Object      object.Name
	Size        int64
	ETag        string // without quotes
	ContentType string
	Sequencer   string // as it was sent
}

// ParseError says why a message is no notification.
type ParseError struct{ Reason string }

func (e *ParseError) Error() string { return "S3 event notification: " + e.Reason }

func refuse(format string, a ...any) error { return &ParseError{fmt.Sprintf(format, a...)} }

// Parse reads a notification. The number of an event in the result is its number
// in Records, which is its row. An error, always a *ParseError, is about the
// message as a whole; what is wrong with one event stands in that. Memory is at
// most a small multiple of data's length, which is not kept.
func Parse(data []byte) ([]Event, error) {
	root, err := document(data)
	if err != nil {
		return nil, err
	}
	if sns := root.Get("Type").Str; sns != "" && !root.Get("Records").Exists() && root.Get("TopicArn").Exists() {
		if sns != "Notification" {
			return nil, refuse("it is an SNS message of type %.40q, which is for whoever set SNS up", sns)
		}
		if root, err = document([]byte(root.Get("Message").Str)); err != nil {
			return nil, fmt.Errorf("%w (the Message of an SNS notification)", err)
		}
	}
	records := root.Get("Records")
	switch {
	case records.IsArray():
		return list(records)
	case root.Get("Event").Str == "s3:TestEvent":
		return []Event{{Kind: Ignored, Name: "TestEvent", JSON: root.Raw}}, nil
	case root.Get("detail-type").Exists():
		return nil, refuse("it is in EventBridge's shape, which has no sequence of records and other names; have the bucket notify SQS or SNS, and publish what those get")
	case root.Get("TopicArn").Exists():
		return nil, refuse("an SNS message in an SNS message")
	}
	return nil, refuse("it has no list Records")
}

// document checks that data is a JSON object, and nothing that is costly to look
// into.
func document(data []byte) (gjson.Result, error) {
	if !utf8.Valid(data) {
		return gjson.Result{}, refuse("it is not UTF-8")
	}
	var raw json.RawMessage // which bounds how deep it may be nested
	if err := json.Unmarshal(data, &raw); err != nil {
		return gjson.Result{}, refuse("it is not JSON: %v", err)
	}
	root := gjson.ParseBytes(data)
	if !root.IsObject() {
		return gjson.Result{}, refuse("it is not a JSON object")
	}
	return root, nil
}

func list(records gjson.Result) (events []Event, err error) {
	records.ForEach(func(_, r gjson.Result) bool {
		if len(events) == MaxRecords {
			err = refuse("it has more than %d Records", MaxRecords)
			return false
		}
		events = append(events, event(r))
		return true
	})
	switch {
	case err != nil:
		return nil, err
	case len(events) == 0:
		return nil, refuse("its Records are empty")
	}
	return events, nil
}

// event reads one element of Records. Of repeated names the first counts.
func event(r gjson.Result) Event {
	e := Event{JSON: r.Raw}
	name := r.Get("eventName")
	if !r.IsObject() || name.Type != gjson.String {
		e.Refused = errors.New("it has no eventName, as S3's events have")
		return e
	}
	e.Name = strings.TrimPrefix(name.Str, "s3:")
	if source := r.Get("eventSource").Str; source != "" && !strings.HasSuffix(source, ":s3") {
		e.Refused = fmt.Errorf("its eventSource is %.40q, and not that of an S3 server", source)
		return e
	}
	if e.Kind = kindOf(e.Name); e.Kind == Ignored {
		return e
	}
	if err := e.read(r); err != nil {
		e = Event{Kind: e.Kind, Name: e.Name, JSON: e.JSON, Refused: err}
	}
	return e
}

// changesNoObject are what MinIO counts among the ObjectCreated events, though the
// object stays as it is. AWS has other names for them, ObjectTagging for example.
var changesNoObject = map[string]bool{"PutTagging": true, "DeleteTagging": true, "PutRetention": true, "PutLegalHold": true}

func kindOf(name string) Kind {
	family, what, _ := strings.Cut(name, ":")
	switch {
	case family == "ObjectCreated" && !changesNoObject[what]:
		return Created
	case family == "ObjectRemoved", family == "LifecycleExpiration":
		return Removed
	}
	return Ignored
}

// Order is a sequencer in a form of which comparing the bytes tells the order of
// two events of one object, as AWS says to compare sequencers: as text, the shorter
// one padded with zeros at its right. ok is false for what is not hexadecimal, or
// longer than any sequencer is: such events have no order.
func (e *Event) Order() (order string, ok bool) {
	const most = 64 // digits; AWS's have 18, MinIO's 16
	digits := strings.TrimRight(e.Sequencer, "0")
	if e.Sequencer == "" || len(digits) > most {
		return "", false
	}
	if len(digits)%2 == 1 {
		digits += "0"
	}
	b, err := hex.DecodeString(digits)
	return string(b), err == nil
}
