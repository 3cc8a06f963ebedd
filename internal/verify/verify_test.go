package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestFaults: what is wrong is named by the kind that stands for it, and by no
// other.
func TestFaults(t *testing.T) {
	for _, c := range faults() {
		t.Run(c.name, func(t *testing.T) {
			r := c.verify(t)
			if r.OK {
				t.Fatalf("it was not caught: %+v", r)
			}
			got, want := found(r), slices.Clone(c.want)
			if got[0] != want[0] {
				t.Errorf("the first violation is %s, want %s", got[0], want[0])
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("found %q, want %q", got, want)
			}
			for _, v := range r.Violations {
				if v.Detail == "" || !strings.HasPrefix(v.Path, "/buckets/test/") && !strings.HasPrefix(v.Path, "spillway-lane-") {
					t.Errorf("it does not say what or where: %+v", v)
				}
				t.Log(v)
			}
		})
	}
}

// TestEveryCheckIsNeeded: for each check there is a fault that nothing else
// catches.
func TestEveryCheckIsNeeded(t *testing.T) {
	all := faults()
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			for _, c := range all {
				if slices.Equal(c.want, one(kind)) && c.verify(t, without(kind)).OK {
					return
				}
			}
			t.Error("no fault slips through when this check is removed")
		})
	}
}

// TestSound: what looks odd but is allowed is no violation.
func TestSound(t *testing.T) {
	reject := func(r row) row {
		r.Rejected, r.ID, r.Ref, r.Value = ptr("no"), nil, nil, ptr([]byte("all of it"))
		return r
	}
	for name, model := range map[string]func(f *fixture){
		"nothing odd, files only":                  func(*fixture) {},
		"nothing odd, with lanes":                  func(f *fixture) { f.feed() },
		"keys are ignored":                         func(f *fixture) { f.rebuild("none") },
		"keys are JSON pointers":                   func(f *fixture) { f.rebuild("json:/a") },
		"no records at all":                        func(f *fixture) { f.segs, f.layouts = emptied(f) },
		"a position at its checkpoint is left out": func(f *fixture) { f.segs[1].last().drop = sourceB },
		"a message above the checkpoint is there in part": func(f *fixture) {
			f.segs[1].last().rows = append(f.segs[1].last().rows, message(sourceA, 13, 6)[1])
			f.segs[1].last().rows[7].Key = f.segs[1].last().rows[6].Key
		},
		"chunks were trimmed": func(f *fixture) {
			f.feed()
			f.segs[1].first = 3
		},
		"a rejected record is spread, whatever its key": func(f *fixture) {
			c := f.segs[1].chunks[0]
			r := reject(message(sourceA, 3, 1)[0])
			if slot(sourceA, r, f.key) < 1<<15 {
				c = f.segs[0].chunks[0]
			}
			f.move(c, r)
		},
		"references are refused, and keep their places": func(f *fixture) {
			f.feed()
			for _, s := range f.segs {
				for _, c := range s.chunks {
					for i := range c.rows {
						if r := &c.rows[i]; r.Ref != nil && r.Sequence%2 == 0 {
							r.Rejected = ptr("no such object")
						}
					}
				}
			}
		},
		"a batch was rejected": func(f *fixture) {
			l := f.feed()
			l.messages[laneA] = slices.DeleteFunc(l.messages[laneA], func(m Message) bool { return m.Sequence == 3 })
			l.send(laneA, sourceA, 3)
			for i, m := range l.messages[laneA] {
				if m.Sequence == 3 {
					l.messages[laneA][i].Header["Spillway-Batch"], l.messages[laneA][i].Data = []string{"1"}, []byte{40}
				}
			}
			for _, s := range f.segs[:2] {
				for _, r := range s.chunks[0].rows {
					if r.Sequence == 3 {
						c := s.chunks[0]
						r = reject(r)
						r.Key = nil
						if slot(sourceA, r, "header") < 1<<15 {
							c = f.segs[0].chunks[0]
						}
						f.move(c, r)
						return
					}
				}
			}
		},
		"a batch was sent twice": func(f *fixture) {
			l := f.feed()
			l.send(laneA, sourceA, 5)
			for i, m := range l.messages[laneA] {
				if m.Sequence == 5 {
					l.messages[laneA][i].Header["Spillway-Sequence"] = []string{"4"}
				}
			}
		},
		"a rejected batch was sent twice": func(f *fixture) {
			l := f.feed()
			l.send(laneA, sourceA, 5)
			for i, m := range l.messages[laneA] {
				if m.Sequence == 5 {
					l.messages[laneA][i].Header["Spillway-Sequence"] = []string{"77"}
				}
			}
			for _, s := range f.segs {
				for _, c := range s.chunks {
					for i, r := range c.rows {
						if c.source == sourceA && r.Sequence == 7 {
							r = reject(r)
							r.Headers = []header{{"Spillway-Batch", []byte("1")}, {"Spillway-Producer", []byte("producer-" + sourceA)}, {"Spillway-Sequence", []byte("77")}}
							for r.Key = nil; (slot(sourceA, r, "header") < 1<<15) != (s.lo == 0); { // stay in this segment
								t.Fatal("message 7 would be spread elsewhere")
							}
							c.rows[i] = r
						}
					}
				}
			}
		},
		"a message is older than the topic": func(f *fixture) {
			l := f.feed()
			l.send(laneA, sourceA, 5)
			f.created = began.Add(5*time.Second + 1)
		},
		"another incarnation of the lane was before": func(f *fixture) {
			f.feed()
			f.checkpoints["lane.default.0.00000000"] = 99
		},
		"a lane that this topic does not use is gone": func(f *fixture) {
			f.feed().missing[lane.ID{Group: "gone", N: 0}] = lane.ErrNoLane
			f.checkpoints["lane.gone.0.dddddddd"] = 7
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			model(f)
			f.write(t)
			for _, v := range f.verify(t).Violations {
				t.Error(v)
			}
		})
	}
}

// rebuild makes the model anew with another key setting.
func (f *fixture) rebuild(key string) {
	f.key = key
	f.fill(f)
}

// move puts a record of source A that replaces one of its message into a chunk.
func (f *fixture) move(to *chunk, r row) {
	for _, s := range f.segs {
		for _, c := range s.chunks {
			if c.source == sourceA {
				c.rows = slices.DeleteFunc(c.rows, func(o row) bool { return o.Sequence == r.Sequence })
			}
		}
	}
	to.rows = append(to.rows, r)
	slices.SortStableFunc(to.rows, func(a, b row) int { return int(a.Sequence - b.Sequence) })
}

func emptied(f *fixture) ([]*seg, []string) {
	for _, s := range f.segs {
		s.chunks = nil
	}
	f.segs[0].chunks = []*chunk{{id: "seal", sealed: true, at: began}}
	return f.segs, f.layouts
}

// TestReport: the numbers of a valid topic, and the form in which scripts get
// them.
func TestReport(t *testing.T) {
	f := newFixture()
	f.write(t)
	r := f.verify(t)
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"ok":true,"topic":"flights","records":82,"rejected":0,"segments":3,"chunks":10,"bytes":%d,"violations":[]}`, r.Bytes)
	if string(got) != want || r.Bytes == 0 {
		t.Errorf("got %s, want %s", got, want)
	}
	bad := fault{files: corrupt(at(seg1, 2))}.verify(t)
	got, err = json.Marshal(bad.Violations)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(got), `[{"kind":"chunk.digest","path":"`+at(seg1, 2)+`","segment":"00000000-01-bbbbbbbb","offset":16,"detail":"`) {
		t.Errorf("got %s", got)
	}
}

func TestAtMostSoManyViolations(t *testing.T) {
	f := newFixture()
	for range 300 {
		f.segs[1].chunks[2].rows = append(f.segs[1].chunks[2].rows, f.segs[1].chunks[2].rows[0])
	}
	f.write(t)
	if r := f.verify(t); len(r.Violations) != MaxViolations || r.OK {
		t.Errorf("%d violations, ok=%t", len(r.Violations), r.OK)
	}
}

// TestCouldNotVerify: these are errors and not violations.
func TestCouldNotVerify(t *testing.T) {
	f := newFixture()
	f.write(t)
	check := func(name string, want error) {
		t.Helper()
		if _, err := Topic(t.Context(), segment.NewStore(f.client, "test"), nil, name); !errors.Is(err, want) {
			t.Errorf("topic %q: %v, want %v", name, err, want)
		}
	}
	check("trains", segment.ErrNoTopic)
	var bad *topic.NameError
	if _, err := Topic(t.Context(), segment.NewStore(f.client, "test"), nil, "../x"); !errors.As(err, &bad) {
		t.Errorf("%v", err)
	}
	replaced(root+"/topics/flights/topic.json", func(file *filer.File) {
		file.Content = []byte(strings.Replace(string(file.Content), `"live"`, `"deleting"`, 1))
	})(t, f)
	check("flights", segment.ErrDeleting)
}

// TestFilerDown: wherever the filer stops to answer, that is an error. That only
// one chunk's bytes cannot be read is a violation.
func TestFilerDown(t *testing.T) {
	for _, c := range []struct {
		op, path string
		kind     Kind
	}{
		{"Lookup", "topic.json", ""}, {"List", "/checkpoints", ""}, {"List", "/layout", ""}, {"Lookup", "segment.json", ""},
		{"Lookup", "bbbbbbbb/head", ""}, {"List", "bbbbbbbb", ""}, {"Lookup", sourceA + ".json", ""}, {"Open", ".avro", "chunk.lost"},
	} {
		t.Run(c.op+" "+c.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				f.write(t)
				f.client = f.fs.Client("broken", func(op memfs.Op) memfs.Fault {
					if op.Name == c.op && strings.HasSuffix(op.Path, c.path) {
						return memfs.Fault{Before: errors.New("broken")}
					}
					return memfs.Fault{}
				})
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
				defer cancel()
				r, err := Topic(ctx, segment.NewStore(f.client, "test"), nil, "flights")
				if c.kind == "" && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, %+v", err, r)
				}
				if got := found(r); c.kind != "" && (err != nil || !slices.Equal(got, one(c.kind))) {
					t.Errorf("%v, found %v", err, r.Violations)
				}
			})
		})
	}
}

// TestHugeClaims: attributes and files that claim much cost little.
func TestHugeClaims(t *testing.T) {
	r := fault{model: func(f *fixture) {
		f.segs[1].last().with("Count", "1152921504606846976")
		f.segs[0].chunks[0].raw = func(b []byte) []byte {
			i := strings.Index(string(b), "0123456789abcdef") + 16
			return append(b[:i:i], 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 2, 0)
		}
	}}.verify(t)
	if got := found(r); !slices.Equal(got, []Kind{"chunk.decode", "chunk.count"}) {
		t.Errorf("found %v", r.Violations)
	}
}

// TestKindsAreDocumented: OPERATIONS says what each violation means.
func TestKindsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "## What verify finds")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, kind := range Kinds() {
		if !strings.Contains(section, "`"+string(kind)+"`") {
			t.Errorf("%s is not documented", kind)
		}
	}
}
