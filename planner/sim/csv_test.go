package sim

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

func TestReadTrace(t *testing.T) {
	const text = "\ufeffRecords, seconds,bytes,lo,hi\r\n" +
		"10,100,1000,,\r\n" +
		"\r\n" +
		"30,102.5,3000,0,32768\r\n" +
		"10,102.5,1000,32768,65536\r\n" +
		"5,200,100,,\r\n" +
		"5,200,100,,\r\n" +
		"0,3700,0,," // no end of line
	got, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	type step struct {
		At         time.Duration
		All, Left  planner.Rate
		Everywhere bool
	}
	var steps []step
	for _, s := range got.Steps {
		all := s.Where == nil
		if all {
			s.Where = everywhere
		}
		steps = append(steps, step{s.At, s.Rate, s.of(topic.Range{Hi: topic.Slots / 2}), all})
	}
	want := []step{
		{100 * time.Second, planner.Rate{Records: 10, Bytes: 1000}, planner.Rate{Records: 5, Bytes: 500}, true},
		{102500 * time.Millisecond, planner.Rate{Records: 40, Bytes: 4000}, planner.Rate{Records: 30, Bytes: 3000}, false},
		{200 * time.Second, planner.Rate{Records: 10, Bytes: 200}, planner.Rate{Records: 5, Bytes: 100}, true},
		{3700 * time.Second, planner.Rate{}, planner.Rate{}, true},
	}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Error(diff)
	}
	if got.Length() != time.Hour {
		t.Errorf("it lasts %s", got.Length())
	}
}

func TestReadRefuses(t *testing.T) {
	const head = "seconds,bytes,records\n"
	for name, c := range map[string]struct {
		text string
		line int
		says string
	}{
		"nothing":           {"", 0, "it is empty"},
		"a header only":     {head, 0, "it has no times"},
		"one time":          {head + "0,1,1\n", 0, "it has one time only"},
		"no header":         {"0,1,1\n1,1,1\n", 1, `column "0" is none of`},
		"column missing":    {"seconds,bytes\n", 1, "column records is missing"},
		"column twice":      {"seconds,bytes,bytes\n", 1, `column "bytes" is there twice`},
		"column unknown":    {"seconds,bytes,records,x\n", 1, `column "x" is none of`},
		"lo without hi":     {"seconds,bytes,records,lo\n", 1, "go together"},
		"field missing":     {head + "0,1\n", 2, "it has 2 fields, want 3"},
		"field too many":    {head + "0,1,1,1\n", 2, "it has 4 fields, want 3"},
		"no number":         {head + "0,1,many\n", 2, `records is "many"`},
		"not a number":      {head + "0,NaN,1\n", 2, `bytes is "NaN"`},
		"no end":            {head + "0,1,+Inf\n", 2, `records is "+Inf"`},
		"out of range":      {head + "0,1e999,1\n", 2, `bytes is "1e999"`},
		"negative":          {head + "0,-1,1\n", 2, `bytes is "-1"`},
		"negative time":     {head + "-1,1,1\n", 2, `seconds is "-1"`},
		"huge load":         {head + "0,1e13,1\n", 2, "want 0 to 1e+12"},
		"huge in sum":       {head + "0,1e12,1\n0,1e12,1\n1,0,0\n", 0, "want 0 to 1e+12"},
		"huge time":         {head + "1e300,1,1\n", 2, "seconds is 1e300"},
		"huge gap":          {head + "0,1,1\n\n1e9,1,1\n", 4, "lasts at most"},
		"back in time":      {head + "5,1,1\n3,1,1\n", 3, "3 seconds come after 5"},
		"bytes, no records": {head + "0,5,0\n1,0,0\n", 2, "but no records"},
		"empty range":       {"seconds,bytes,records,lo,hi\n0,1,1,7,7\n", 2, "want lo < hi"},
		"range too long":    {"seconds,bytes,records,lo,hi\n0,1,1,0,65537\n", 2, "at most 65536"},
		"half a slot":       {"seconds,bytes,records,lo,hi\n0,1,1,0.5,7\n", 2, "want lo < hi"},
		"half a range":      {"seconds,bytes,records,lo,hi\n0,1,1,5,\n", 2, `hi is ""`},
		"open quote":        {head + "0,\"1,1\n1,1,1\n", 2, "quote"},
		"UTF-16":            {"\xff\xfes\x00e\x00c\x00", 1, "is none of"},
		"binary":            {"\x00\x01\x02\n", 1, "is none of"},
		"endless line":      {head + strings.Repeat("1", 1<<20), 2, "more than 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.text))
			var bad *TraceError
			if !errors.As(err, &bad) || bad.Line != c.line || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 300 {
				t.Errorf("got %v, want line %d and %q", err, c.line, c.says)
			}
		})
	}
}

// endless is a reader of lines that never end.
type endless struct{ line string }

func (e endless) Read(p []byte) (n int, err error) {
	for n+len(e.line) <= len(p) {
		n += copy(p[n:], e.line)
	}
	return n, nil
}

func TestReadBoundsRows(t *testing.T) {
	_, err := Read(io.MultiReader(strings.NewReader("seconds,bytes,records\n"), endless{"1,1,1\n"}))
	var bad *TraceError
	if !errors.As(err, &bad) || bad.Line != MaxRows+1 {
		t.Errorf("got %v, want an error in line %d", err, MaxRows+1)
	}
}

func TestReadPassesFaultsOn(t *testing.T) {
	fault := errors.New("disk on fire")
	_, err := Read(io.MultiReader(strings.NewReader("seconds,bytes,records\n0,1,1\n"), faulty{fault}))
	if !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
}

type faulty struct{ err error }

func (f faulty) Read([]byte) (int, error) { return 0, f.err }

func FuzzRead(f *testing.F) {
	f.Add("seconds,bytes,records\n0,1,1\n10,5e7,5e4\n60,0,0\n")
	f.Add("seconds,bytes,records,lo,hi\n0,1e7,1e5,0,10\n0,1,1,,\n100,0,0,,\n")
	f.Add("\ufeffseconds,records,bytes\r\n1e-9,\"2\",3\r\n2,0,0")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := Read(strings.NewReader(text))
		var bad *TraceError
		switch {
		case errors.As(err, &bad):
		case err != nil:
			t.Fatalf("%T: %v", err, err)
		case trace.check() != nil:
			t.Fatal(trace.check())
		case trace.Length() < 10*time.Minute: // else it takes long
			play(t, trace, planner.DefaultPolicy(), Options{})
		}
	})
}
