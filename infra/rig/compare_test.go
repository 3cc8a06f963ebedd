package rig

import (
	"errors"
	"strings"
	"testing"
)

// ledgerOf sends two flights of each of two keys in turn, with receipts for all
// but the last.
func ledgerOf() *Ledger {
	l := NewLedger([]Flight{{"ABQ", []byte("a")}, {"BOS", []byte("b")}})
	for i := range 4 {
		n := l.Send(i % 2)
		if i < 3 {
			l.Acknowledge(n, Place{uint64(i + 1), 0})
		} else {
			l.Fail(n, errors.New("no answer"))
		}
	}
	return l
}

func good() []Read {
	return []Read{
		{0, "ABQ", []byte("a"), Place{1, 0}, ""},
		{1, "BOS", []byte("b"), Place{2, 0}, ""},
		{2, "ABQ", []byte("a"), Place{3, 0}, ""},
		{3, "BOS", []byte("b"), Place{4, 0}, ""},
	}
}

func TestComparison(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]Read) []Read
		want   string // part of the only problem; empty: none
	}{
		"all":                    {func(r []Read) []Read { return r }, ""},
		"without the unknown":    {func(r []Read) []Read { return r[:3] }, ""},
		"keys in another order":  {func(r []Read) []Read { return []Read{r[1], r[3], r[0], r[2]} }, ""},
		"an acknowledged lost":   {func(r []Read) []Read { return []Read{r[0], r[1], r[3]} }, "record 2 (key ABQ) was acknowledged"},
		"nothing":                {func([]Read) []Read { return nil }, "is lost"},
		"a double":               {func(r []Read) []Read { return append(r, r[3]) }, "record 3 is there twice"},
		"an unknown one doubled": {func(r []Read) []Read { return append(r, r[3]) }, "twice"},
		"never sent":             {func(r []Read) []Read { return append(r, Read{Number: 4}) }, "never sent"},
		"no number":              {func(r []Read) []Read { return append(r, Read{Number: -1}) }, "never sent"},
		"a key out of order":     {func(r []Read) []Read { r[0], r[2] = r[2], r[0]; return r }, "key ABQ is out of order"},
		"another value":          {func(r []Read) []Read { r[1].Value = []byte("x"); return r }, "record 1 was altered"},
		"another key":            {func(r []Read) []Read { r[1].Key = "ABQ"; return r }, "record 1 was altered"},
		"another place":          {func(r []Read) []Read { r[1].Place.Row = 1; return r }, "its receipt says 2 row 0"},
		"rejected":               {func(r []Read) []Read { r[1].Rejected = "bad"; return r }, "record 1 was rejected: bad"},
	} {
		t.Run(name, func(t *testing.T) {
			cmp := ledgerOf().Compare()
			for _, r := range c.change(good()) {
				cmp.Add(r)
			}
			ok := cmp.Done()
			if ok != (c.want == "") {
				t.Errorf("ok %v, problems %q", ok, cmp.Problems)
			}
			if !ok && !strings.Contains(cmp.Problems[0], c.want) {
				t.Errorf("problem %q, want one with %q", cmp.Problems[0], c.want)
			}
		})
	}
}

func TestProblemsAreBounded(t *testing.T) {
	cmp := ledgerOf().Compare()
	for range 3 * maxProblems {
		cmp.Add(Read{Number: 99})
	}
	if cmp.Done() || len(cmp.Problems) != maxProblems || cmp.More == 0 {
		t.Errorf("%d problems and %d more", len(cmp.Problems), cmp.More)
	}
}

func TestAboveCountsWhatIsAcknowledgedOnly(t *testing.T) {
	for checkpoint, want := range []int{3, 2, 1, 0, 0} {
		if got := ledgerOf().Above(uint64(checkpoint)); got != want {
			t.Errorf("above %d: %d, want %d", checkpoint, got, want)
		}
	}
}

func TestDivideGivesEachKeyOneWay(t *testing.T) {
	flights, err := Flights()
	if err != nil {
		t.Fatal(err)
	}
	plain, batched := NewLedger(flights).Divide()
	if len(plain)+len(batched) != len(flights) || len(plain) < len(flights)/4 || len(batched) < len(flights)/4 {
		t.Fatalf("%d flights were divided into %d and %d", len(flights), len(plain), len(batched))
	}
	isPlain := map[string]bool{}
	for _, i := range plain {
		isPlain[flights[i].Key] = true
	}
	for _, i := range batched {
		if isPlain[flights[i].Key] {
			t.Fatalf("key %s goes both ways", flights[i].Key)
		}
	}
}

func TestParseRead(t *testing.T) {
	const head = `{"offset":0,"ts":"2026-01-01T00:00:00.000000Z","sequence":7,"row":3,"key":"ABQ","headers":[{"name":"Number","value":"12"}],`
	for line, value := range map[string]string{
		head + `"value":"{\"a\":1}"}`: `{"a":1}`,
		head + `"value":{"a":1}}`:     `{"a":1}`,
	} {
		r, err := parseRead([]byte(line))
		if err != nil || r.Number != 12 || r.Key != "ABQ" || r.Place != (Place{7, 3}) || string(r.Value) != value {
			t.Errorf("%s: %+v, %v", line, r, err)
		}
	}
	if r, err := parseRead([]byte(`{"sequence":1,"row":0,"key":"k","value":null}`)); err != nil || r.Number != -1 {
		t.Errorf("a record without a number: %+v, %v", r, err)
	}
	if _, err := parseRead([]byte(`{"sequence":-1}`)); err == nil {
		t.Error("no error for a bad line")
	}
}
