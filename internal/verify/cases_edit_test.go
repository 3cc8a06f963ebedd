package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
)

// Segments of the edited topic, by their place in the model.
const (
	segA = iota
	segB
	segC
	segD
	segE
	segG
	segH
)

// lineage is a change of the edited topic instead of the other.
func lineage(change func(f *fixture)) func(*fixture) {
	return func(f *fixture) {
		*f = *newLineage()
		change(f)
	}
}

// inLayout replaces text in an entry of the layout's log.
func inLayout(n int, from, to string) func(*fixture) {
	return lineage(func(f *fixture) {
		if !strings.Contains(f.layouts[n], from) {
			panic("layout " + f.layouts[n] + " has no " + from)
		}
		f.layouts[n] = strings.Replace(f.layouts[n], from, to, 1)
	})
}

// intends makes another edit the one that is under way.
func intends(parents, children []*seg) func(*fixture) {
	return lineage(func(f *fixture) {
		f.layouts[7] = layoutJSON(7, began, "test", parents, children, f.live, true)
		f.segs[segH].chunks = slices.DeleteFunc(f.segs[segH].chunks, func(c *chunk) bool { return c.sealed })
	})
}

func layoutFaults() []fault {
	live := func(i int) []*seg { return newLineage().live[i : i+1] }
	child := func(lo, hi uint32) *seg {
		return &seg{id: fmt.Sprintf("00000008-%02d-cccccccc", lo/unit), lo: lo * unit, hi: hi * unit}
	}
	return []fault{
		{"an epoch is not its number", one("layout.epoch"), inLayout(4, `"epoch":4`, `"epoch":5`), nil},
		{"a child cannot have a folder", one("layout.invalid"), inLayout(7, `"00000008-00-iiiiiiii"`, `"../segments"`), nil},
		{"an intent was not completed", one("layout.order"), lineage(func(f *fixture) {
			f.layouts = slices.Insert(f.layouts, 5, f.layouts[5])
			for i := 6; i < 9; i++ {
				f.layouts[i] = strings.Replace(f.layouts[i], fmt.Sprintf(`"epoch":%d`, i-1), fmt.Sprintf(`"epoch":%d`, i), 1)
			}
			f.segs[segG].epoch, f.segs[segH].epoch = 7, 7
		}), nil},
		{"an edit was completed twice", one("layout.order"), lineage(func(f *fixture) {
			f.layouts[7] = strings.Replace(f.layouts[6], `"epoch":6`, `"epoch":7`, 1)
			f.segs[segH].chunks = slices.DeleteFunc(f.segs[segH].chunks, func(c *chunk) bool { return c.sealed })
		}), nil},
		{"an older edit was completed again", []Kind{"layout.order", "seal.live"}, lineage(func(f *fixture) {
			f.layouts = append(f.layouts, strings.Replace(f.layouts[6], `"epoch":6`, `"epoch":8`, 1))
		}), nil},
		{"a completion has another reason", one("layout.order"), inLayout(6, `"reason":"test"`, `"reason":"tests"`), nil},
		{"a completion has another time", []Kind{"layout.order", "segment.created"}, inLayout(2, `12:00:10Z`, `12:00:12Z`), nil},
		{"a completion ends nothing", []Kind{"layout.edit", "seal.missing"}, lineage(func(f *fixture) {
			f.layouts[6] = layoutJSON(6, began.Add(5*time.Second), "split", f.segs[segE:segE+1], f.segs[segG:], []*seg{f.segs[segC], f.segs[segE]}, false)
			f.layouts = f.layouts[:7]
			f.segs[segE].chunks = slices.DeleteFunc(f.segs[segE].chunks, func(c *chunk) bool { return c.sealed })
			f.segs[segH].chunks = slices.DeleteFunc(f.segs[segH].chunks, func(c *chunk) bool { return c.sealed })
		}), nil},
		{"an edit makes what was made before", one("layout.edit"), intends(live(2), []*seg{{id: "00000000-01-bbbbbbbb", lo: 8 * unit, hi: 16 * unit}}), nil},
		{"children leave slots out", one("layout.cover"), intends(live(2), []*seg{child(8, 9), child(10, 16)}), nil},
		{"children overlap", one("layout.cover"), intends(live(2), []*seg{child(8, 12), child(11, 16)}), nil},
		{"children end early", one("layout.cover"), intends(live(2), []*seg{child(8, 15)}), nil},
		{"children begin early", one("layout.cover"), intends(live(2), []*seg{child(7, 16)}), nil},
		{"a child has no slots", one("layout.invalid"), intends(live(2), []*seg{child(8, 8), child(8, 16)}), nil},
		{"an edit has no children", one("layout.cover"), intends(live(2), nil), nil},
		{"an edit has no parents", one("layout.cover"), intends(nil, []*seg{child(8, 16)}), nil},
		{"a parent is not live", one("layout.cover"), intends([]*seg{{id: "00000000-01-bbbbbbbb"}}, []*seg{child(8, 16)}), nil},
		{"a parent is named twice", one("layout.cover"), intends(slices.Concat(live(2), live(2)), []*seg{child(8, 16)}), nil},
		{"parents are no neighbours", one("layout.cover"), intends(slices.Concat(live(0), live(2)), []*seg{child(0, 2), child(8, 16)}), nil},
		{"the first layouts were trimmed", one("layout.missing"), nil, func(t testing.TB, f *fixture) {
			replaced(dir+"/layout/head", func(file *filer.File) { file.Attrs["Head"] = "2" })(t, f)
			remove(dir+"/layout/0000000000000000.json")(t, f)
			remove(dir+"/layout/0000000000000001.json")(t, f)
		}},
		{"no layout names a segment", one("segment.stray"), lineage(func(*fixture) {}), func(t testing.TB, f *fixture) {
			s := &seg{id: "00000004-00-ssssssss", lo: 2 * unit, hi: 16 * unit, born: began}
			f.writeSegment(t, s)
		}},
		{"a child takes records before its edit is completed", one("segment.early"), lineage(func(f *fixture) {
			i := f.intended()
			i.chunks = []*chunk{{id: "early", source: sourceA, from: 12, rows: message(sourceA, 13, 1)}}
			f.segs = append(f.segs, i)
		}), nil},
	}
}

// intended is the child of the edit that is under way.
func (f *fixture) intended() *seg {
	return &seg{id: "00000008-00-iiiiiiii", lo: 8 * unit, hi: 16 * unit, epoch: 8, born: began.Add(30 * time.Second), parents: f.segs[segH:]}
}

func segmentFaults() []fault {
	member := func(name string, i int, member, value string, want ...Kind) fault {
		return fault{name, want, lineage(func(f *fixture) { f.segs[i].with(member, value) }), nil}
	}
	// The segment e was merged from d (of a) and b, and took in more then; g is
	// what of it lies in the range of d.
	floor := func(lo, hi int, source, at, seconds string) string {
		return fmt.Sprintf(`{"lo":%d,"hi":%d,"source":%q,"at":%q,"time":"2026-03-01T12:00:%sZ"}`, lo*unit, hi*unit, source, at, seconds)
	}
	merged := func(a, b string) string {
		return "[" + floor(2, 8, sourceA, a, "04") + "," + floor(8, 16, sourceA, b, "04") + "]"
	}
	both := func(at, seconds, more string) string {
		return "[" + floor(8, 16, sourceB, "6:5", "06") + "," + floor(8, 16, sourceA, at, seconds) + more + "]"
	}
	return []fault{
		member("an epoch is not that of the edit", segG, "epoch", "5", "segment.epoch"),
		member("a first segment has an epoch", segA, "epoch", "2", "segment.epoch"),
		member("the parents are not those of the edit", segG, "parents", `["00000000-01-bbbbbbbb"]`, "segment.parents"),
		member("a parent is left out", segE, "parents", `["00000002-01-dddddddd"]`, "segment.parents"),
		member("the parents are in another order", segE, "parents", `["00000000-01-bbbbbbbb","00000002-01-dddddddd"]`, "segment.parents"),
		member("it is older than the edit", segD, "created", `"2026-03-01T12:00:09Z"`, "segment.created"),
		member("it is younger than the edit", segA, "created", `"2026-03-01T12:00:00.000001Z"`, "segment.created"),
		member("a first segment has a floor", segB, "floors", "["+floor(8, 16, sourceA, "1:0", "01")+"]", "segment.floors"),
		member("no floors", segH, "floors", "[]", "segment.floors", "seal.floors"),
		member("floors are one number, the lower one", segE, "floors", merged("4:3", "4:3"), "segment.floors"),
		member("floors are one number, the higher one", segE, "floors", merged("4:5", "4:5"), "segment.floors"),
		member("a floor that a checkpoint has passed comes back", segC, "floors",
			"["+floor(0, 2, sourceB, "2:5", "02")+","+floor(0, 2, sourceA, "4:3", "04")+","+floor(0, 2, sourceA+"x", "1:0", "01")+"]", "segment.floors"),
		member("a floor is too high", segG, "floors", "["+floor(2, 8, sourceB, "7:0", "06")+","+floor(2, 8, sourceA, "9:5", "09")+"]", "segment.floors"),
		member("a floor is too low in a part", segH, "floors",
			"["+floor(8, 16, sourceB, "6:5", "06")+","+floor(8, 9, sourceA, "9:3", "09")+","+floor(9, 16, sourceA, "9:5", "09")+"]", "segment.floors"),
		member("a floor is missing in a part", segH, "floors",
			"["+floor(8, 16, sourceB, "6:5", "06")+","+floor(9, 16, sourceA, "9:5", "09")+"]", "segment.floors"),
		member("a floor has another time", segH, "floors", both("9:5", "08", ""), "segment.floors"),
		member("floors overlap", segH, "floors", both("9:5", "09", ","+floor(15, 16, sourceA, "9:5", "09")), "segment.floors"),
		member("floors are not sorted", segH, "floors", "["+floor(8, 16, sourceA, "9:5", "09")+","+floor(8, 16, sourceB, "6:5", "06")+"]", "segment.floors"),
		member("a floor lies outside the range", segG, "floors", both("9:5", "09", ""), "segment.floors"),
		member("a floor has no slots", segG, "floors", both("9:5", "09", ","+floor(9, 9, sourceB, "9:5", "09")), "segment.floors"),
		member("floors are of some other form", segH, "floors", `"none"`, "segment.file"),
	}
}

// sealFaults are wrong seals. The segment h took in records of A up to 12:4, and
// has B from its parents.
func sealFaults() []fault {
	seal := func(name, attr, value string, want ...Kind) fault {
		return fault{name, want, lineage(func(f *fixture) { f.segs[segH].last().with(attr, value) }), nil}
	}
	floor := func(lo, hi int, source, at string, seq int) string {
		return fmt.Sprintf("%d-%d/%s=%s@%d", lo*unit, hi*unit, source, at, micros(seq))
	}
	a, b := floor(8, 16, sourceA, "12:4", 12), floor(8, 16, sourceB, "6:5", 6)
	floors := func(name string, list ...string) fault {
		return seal(name, "Floors", strings.Join(list, " "), "seal.floors")
	}
	bad := func(name string, list ...string) fault {
		return seal("Floors "+name, "Floors", strings.Join(list, " "), "chunk.attributes")
	}
	at := func(a, b string) string { return fmt.Sprintf("%s=%s %s=%s", sourceB, b, sourceA, a) }
	times := func(name string, i int, first, last string, want ...Kind) fault {
		return fault{name, want, lineage(func(f *fixture) {
			f.segs[i].last().set = map[string]string{"First": first, "Last": last}
		}), nil}
	}
	return []fault{
		floors("a seal hands nothing down"),
		floors("a seal forgets the segment's own floors", a),
		floors("a seal forgets the segment's positions", b),
		floors("a seal hands down too much", b, floor(8, 16, sourceA, "12:5", 12)),
		floors("a seal hands down too much in a part", b, floor(8, 15, sourceA, "12:4", 12), floor(15, 16, sourceA, "13:0", 12)),
		floors("a seal hands down too little", floor(8, 16, sourceB, "6:4", 6), a),
		floors("a seal hands down what the segment never had", b, a, floor(8, 16, sourceA+"x", "1:0", 1)),
		floors("a seal leaves out a part", b, floor(8, 15, sourceA, "12:4", 12)),
		floors("a seal hands down another time", b, floor(8, 16, sourceA, "12:4", 11)),
		floors("a seal hands down more slots than it has", b, floor(7, 16, sourceA, "12:4", 12)),
		{"a seal leaves out a part, as no checkpoint would", one("seal.floors"), lineage(func(f *fixture) {
			f.checkpoints[sourceB] = 6
			f.segs[segH].last().with("Floors", floor(8, 9, sourceB, "6:5", 6)+" "+a)
		}), nil},
		bad("are none", "?"), bad("have no source", "0-1/=1:1@1"), bad("have no slots", "1-1/a=1:1@1"), bad("have too many slots", "0-65537/a=1:1@1"),
		bad("have no range", "a=1:1@1"), bad("have no position", "0-1/a=0:0@1"), bad("have no time", "0-1/a=1:1"), bad("have negative slots", "-1-1/a=1:1@1"),
		bad("are not sorted", a, b), bad("overlap", "0-2/a=1:1@1", "1-3/a=1:1@1"), bad("are of no number", "0x1-2/a=1:1@1"),
		seal("a seal moves a position in time", "Positions", fmt.Sprintf("%s=12:4@%d", sourceA, micros(13)), "seal.positions"),
		seal("a seal leaves a position out", "Positions", "", "seal.positions"),
		seal("a seal tells of a source that is in the floors", "Positions", at(fmt.Sprintf("12:4@%d", micros(12)), fmt.Sprintf("6:5@%d", micros(6))), "seal.positions"),
		seal("a seal's position goes back", "Positions", fmt.Sprintf("%s=12:3@%d", sourceA, micros(12)), "seal.positions"),
		seal("a seal ends late", "Last", "2026-03-01T12:00:31Z", "seal.time"),
		times("a seal has another time than its edit", segH, "2026-03-01T12:00:31Z", "2026-03-01T12:00:31Z", "seal.time"),
		times("a seal has not the time of the records before it", segE, "2026-03-01T12:00:11.5Z", "2026-03-01T12:00:11.5Z", "seal.time", "segment.created"),
		times("a seal is older than the parents' seals", segD, "2026-03-01T12:00:09Z", "2026-03-01T12:00:09Z", "chunk.times"),
	}
}

func descendantFaults() []fault {
	first := func(name, attr, value string, want ...Kind) fault {
		return fault{name, want, lineage(func(f *fixture) { f.segs[segH].chunks[0].with(attr, value) }), nil}
	}
	return []fault{
		first("records are older than the parents' seals", "First", "2026-03-01T12:00:10Z", "chunk.times", "records.times"),
		first("records were moved up further than the parents' seals", "First", "2026-03-01T12:00:11.5Z", "records.times"),
		{"a record comes a merge late, where no floor says so", one("records.lineage"), lineage(func(f *fixture) {
			early, late := f.segs[segB].chunks[1], f.segs[segE].chunks[1]
			late.rows = slices.Insert(late.rows, 0, early.rows[1])
			late.from = 0
			f.cut(segB, 1, 1)
		}), nil},
		{"a record comes two edits late", one("records.late"), lineage(func(f *fixture) {
			early, late := f.segs[segB].chunks[0], f.segs[segH].chunks[0]
			late.rows = slices.Insert(late.rows, 0, early.rows[1])
			late.from = 0
			f.cut(segB, 0, 1)
		}), nil},
		{"a record is in an ancestor too", one("records.lineage"), lineage(func(f *fixture) {
			early, late := f.segs[segB].chunks[1], f.segs[segE].chunks[1]
			late.rows = slices.Insert(late.rows, 0, early.rows[1])
			late.from = 0
		}), nil},
		{"a record is lost at a split", one("rows.missing"), lineage(func(f *fixture) { f.cut(segE, 0, 1) }), nil},
	}
}

func editFaults() []fault {
	return slices.Concat(layoutFaults(), segmentFaults(), sealFaults(), descendantFaults())
}

// TestSoundEdits: what edits leave behind, also when who makes them dies, is no
// violation.
func TestSoundEdits(t *testing.T) {
	for name, model := range map[string]func(f *fixture){
		"nothing odd, files only": func(*fixture) {},
		"nothing odd, with lanes": func(f *fixture) { f.feed() },
		"no edit is under way": func(f *fixture) {
			f.layouts = f.layouts[:7]
			f.segs[segH].chunks = f.segs[segH].chunks[:1]
		},
		"the parent is not sealed yet":             func(f *fixture) { f.segs[segH].chunks = f.segs[segH].chunks[:1] },
		"the child is made, but not in the layout": func(f *fixture) { f.segs = append(f.segs, f.intended()) },
		"ancestors were trimmed": func(f *fixture) {
			f.feed()
			f.segs[segA].first, f.segs[segB].first, f.segs[segE].first = 1, 2, 2
		},
		"a topic without records": func(f *fixture) {
			for _, s := range f.segs {
				s.chunks = slices.DeleteFunc(s.chunks, func(c *chunk) bool { return !c.sealed })
			}
		},
		"a checkpoint has passed what a seal hands down": func(f *fixture) { f.checkpoints[sourceA], f.checkpoints[sourceB] = 12, 6 },
		"a checkpoint has passed what a seal leaves out": func(f *fixture) {
			f.checkpoints[sourceA], f.checkpoints[sourceB] = 12, 6
			f.segs[segH].last().passed = map[string]int64{sourceA: 12, sourceB: 6}
		},
		"a seal leaves out a position that its checkpoint has passed": func(f *fixture) {
			f.checkpoints[sourceA] = 12
			f.segs[segH].last().with("Positions", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newLineage()
			model(f)
			f.write(t)
			for _, v := range f.verify(t).Violations {
				t.Error(v)
			}
		})
	}
	t.Run("of the child there is only its head", func(t *testing.T) {
		f := newLineage()
		f.write(t)
		f.put(t, f.intended().dir()+"/head", "head", filer.Attrs{"Head": "0"}, nil, false)
		for _, v := range f.verify(t).Violations {
			t.Error(v)
		}
	})
}
