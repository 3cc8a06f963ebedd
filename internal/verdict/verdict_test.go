package verdict_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// endpoint answers with one object after the other, the last one for ever.
type endpoint struct {
	answers []any // object.Info or error
	asked   []ref.Name
}

func (e *endpoint) Head(_ context.Context, bucket, key, version string) (object.Info, error) {
	a := e.answers[min(len(e.asked), len(e.answers)-1)]
	e.asked = append(e.asked, ref.Name{Bucket: bucket, Key: key, Version: version})
	if err, bad := a.(error); bad {
		return object.Info{}, err
	}
	return a.(object.Info), nil
}

type pins struct {
	err  error
	held []string
}

func (p *pins) Pin(_ context.Context, n object.Name, info object.Info, h pin.Holder) error {
	p.held = append(p.held, fmt.Sprint(n, " ", info.ETag, " ", h.Topic, " ", h.Incarnation))
	return p.err
}

func TestJudge(t *testing.T) {
	d := topic.Definition{Name: "orders", Incarnation: "abc", Buckets: []string{"bbb", "half/part-"}}
	info := object.Info{Size: 3, ETag: "e"}
	other := object.Info{Size: 4, ETag: "e"}
	down := &object.UnavailableError{Op: "head", Err: errors.New("no answer")}
	noPin := errors.New("the filer does not answer")
	for name, c := range map[string]struct {
		ref     record.Ref
		answers []any
		pin     error
		want    string // of the error; empty: none
		wrong   bool
		pinned  bool
	}{
		"right":                    {record.Ref{URL: "s3://bbb/k", Size: 3, ETag: "e"}, []any{info}, nil, "", false, true},
		"says nothing":             {record.Ref{URL: "s3://bbb/k"}, []any{info}, nil, "", false, true},
		"another":                  {record.Ref{URL: "s3://bbb/k", Size: 3}, []any{other}, nil, "its size is 4, not 3", true, false},
		"not there":                {record.Ref{URL: "s3://bbb/k"}, []any{object.ErrNotFound}, nil, "no such object", false, false},
		"no answer":                {record.Ref{URL: "s3://bbb/k"}, []any{down}, nil, "no answer", false, false},
		"another bucket":           {record.Ref{URL: "s3://ccc/k"}, nil, nil, "topic set orders --allow ccc", true, false},
		"another part":             {record.Ref{URL: "s3://half/whole"}, nil, nil, "allows no references", true, false},
		"its part":                 {record.Ref{URL: "s3://half/part-1"}, []any{info}, nil, "", false, true},
		"another host":             {record.Ref{URL: "https://h/b/k"}, nil, nil, "names a host", true, false},
		"out of the bucket":        {record.Ref{URL: "s3://bbb/../ccc/k"}, nil, nil, `".."`, true, false},
		"a version that is none":   {record.Ref{URL: "s3://bbb/k", Version: "a b"}, nil, nil, "printable", true, false},
		"on another filer":         {record.Ref{URL: "s3://bbb/k"}, []any{info}, pin.ErrElsewhere, "", false, true},
		"not on this filer":        {record.Ref{URL: "s3://bbb/k"}, []any{info}, object.ErrNotFound, "", false, true},
		"overwritten at once":      {record.Ref{URL: "s3://bbb/k", Size: 3}, []any{info, other}, object.ErrChanged, "replaced while", false, true},
		"deleted at once":          {record.Ref{URL: "s3://bbb/k"}, []any{info, object.ErrDeleted}, object.ErrNotFound, "was deleted", false, true},
		"cannot be pinned for now": {record.Ref{URL: "s3://bbb/k"}, []any{info}, noPin, "the filer does not answer", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			e, p := &endpoint{answers: c.answers}, &pins{err: c.pin}
			j := &verdict.Judge{Objects: e, Pins: p}
			err := j.Judge(t.Context(), d, c.ref)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if verdict.Wrong(err) != c.wrong {
				t.Errorf("wrong: %v", verdict.Wrong(err))
			}
			if (len(p.held) > 0) != c.pinned {
				t.Errorf("pins: %q", p.held)
			}
			if c.answers == nil && len(e.asked) > 0 {
				t.Errorf("asked for %v", e.asked)
			}
		})
	}
}

// TestElsewhere: objects of a topic that names another endpoint are not looked for
// at this one, and without an endpoint at none.
func TestElsewhere(t *testing.T) {
	d := topic.Definition{Name: "orders", Buckets: []string{"bbb"}, Endpoint: "https://s3.example.com"}
	e := &endpoint{answers: []any{object.Info{}}}
	f := record.Ref{URL: "s3://bbb/k"}
	var elsewhere *verdict.ElsewhereError
	err := (&verdict.Judge{Objects: e, Endpoint: "http://localhost:8333"}).Judge(t.Context(), d, f)
	if !errors.As(err, &elsewhere) || verdict.Wrong(err) || len(e.asked) > 0 {
		t.Errorf("%v, asked %v", err, e.asked)
	}
	if err := (&verdict.Judge{Objects: e, Endpoint: "HTTPS://S3.example.com:443/"}).Judge(t.Context(), d, f); err != nil {
		t.Error(err)
	}
	d.Endpoint = ""
	if err := (&verdict.Judge{}).Judge(t.Context(), d, f); !errors.Is(err, verdict.ErrNoEndpoint) || verdict.Wrong(err) {
		t.Error(err)
	}
}
