package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
)

// fault is one thing wrong in an otherwise valid topic, and the kinds of
// violation that name it: one, except where one thing breaks two promises.
type fault struct {
	name  string
	want  []Kind
	model func(f *fixture)               // changes the model
	files func(t testing.TB, f *fixture) // changes the files
}

func one(k Kind) []Kind { return []Kind{k} }

func remove(path string) func(testing.TB, *fixture) {
	return func(t testing.TB, f *fixture) {
		if err := f.client.Delete(t.Context(), path, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// replaced puts other content, attributes or both in a file.
func replaced(path string, change func(*filer.File)) func(testing.TB, *fixture) {
	return func(t testing.TB, f *fixture) {
		e, err := f.client.Lookup(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		file := filer.File{ID: e.ID, Attrs: e.Attrs, Content: e.Content, Blobs: e.Blobs}
		change(&file)
		remove(path)(t, f)
		if err := f.client.Create(t.Context(), path, file); err != nil {
			t.Fatal(err)
		}
	}
}

func text(path, content string) func(testing.TB, *fixture) {
	return replaced(path, func(file *filer.File) { file.Content = []byte(content) })
}

// corrupt flips a bit of a file that verify knows the path of.
func corrupt(path string) func(testing.TB, *fixture) {
	return func(t testing.TB, f *fixture) {
		if err := f.fs.Corrupt(path); err != nil {
			t.Fatal(err)
		}
	}
}

// swapped exchanges the contents of two files, or (whole) the files.
func swapped(a, b string, whole bool) func(testing.TB, *fixture) {
	return func(t testing.TB, f *fixture) {
		x, err := f.client.Lookup(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		y, err := f.client.Lookup(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		put := func(from filer.Entry) func(*filer.File) {
			return func(file *filer.File) {
				file.Content = from.Content
				if whole {
					file.ID, file.Attrs = from.ID, from.Attrs
				}
			}
		}
		replaced(a, put(y))(t, f)
		replaced(b, put(x))(t, f)
	}
}

const (
	seg0 = dir + "/segments/00000000-00-aaaaaaaa"
	seg1 = dir + "/segments/00000000-01-bbbbbbbb"
	seg2 = dir + "/segments/00000002-00-cccccccc"
)

var nowhere = &seg{id: "00000002-01-dddddddd", lo: 1 << 15, hi: 1 << 16}

func at(dir string, n int) string { return fmt.Sprintf("%s/%016d.avro", dir, n) }

func micros(seq int) int64 { return began.Add(time.Duration(seq) * time.Second).UnixMicro() }

func structureFaults() []fault {
	return []fault{
		{"topic.json is no JSON", one("topic.file"), nil, text(root+"/topics/flights/topic.json", "{")},
		{"topic.json has no key setting", one("topic.file"), func(f *fixture) { f.key = "" }, nil},
		{"topic.json of another topic", one("topic.file"), nil, replaced(root+"/topics/flights/topic.json", func(file *filer.File) {
			file.Content = []byte(strings.Replace(string(file.Content), "flights", "trains", 1))
		})},
		{"head of a segment is gone", one("log.head"), nil, remove(seg1 + "/head")},
		{"head is no number", one("log.head"), nil, replaced(seg1+"/head", func(file *filer.File) { file.Attrs["Head"] = "x" })},
		{"head of the layout is gone", one("log.head"), nil, remove(dir + "/layout/head")},
		{"head lies beyond the log", one("log.head"), nil, replaced(seg1+"/head", func(file *filer.File) { file.Attrs["Head"] = "9" })},
		{"a chunk is missing", one("log.gap"), nil, remove(at(seg1, 1))},
		{"the first chunk is missing", one("log.gap"), nil, remove(at(seg1, 0))},
		{"a layout is missing", one("log.gap"), nil, remove(dir + "/layout/0000000000000001.json")},
		{"a chunk continues another", one("log.fork"), func(f *fixture) { f.segs[1].chunks[2].with("Prev", "other") }, nil},
		{"the first chunk continues something", one("log.fork"), func(f *fixture) { f.segs[1].chunks[0].with("Prev", "other") }, nil},
		{"a layout is no JSON", one("layout.invalid"), nil, text(dir+"/layout/0000000000000001.json", "{")},
		{"a layout leaves slots out", one("layout.invalid"), func(f *fixture) { f.layouts[2] = strings.Replace(f.layouts[2], "32768}", "32767}", 2) }, nil},
		{"an intent changes the layout", one("layout.edit"), func(f *fixture) {
			f.layouts[1] = layoutJSON(1, began, "roll", f.segs[:1], f.segs[2:], []*seg{f.segs[0], nowhere}, true)
		}, nil},
		{"a segment comes from nowhere", []Kind{"layout.edit", "seal.missing"}, func(f *fixture) {
			f.layouts[2] = layoutJSON(2, began, "roll", f.segs[:1], f.segs[2:], []*seg{f.segs[2], nowhere}, false)
		}, nil},
		{"no layout in force", []Kind{"layout.order", "layout.edit", "layout.missing"}, func(f *fixture) {
			f.layouts = []string{strings.Replace(f.layouts[1], `"epoch":1`, `"epoch":0`, 1)}
		}, nil},
		{"no layout at all", one("layout.missing"), func(f *fixture) { f.layouts = nil }, nil},
		{"segment.json is gone", one("segment.file"), nil, remove(seg1 + "/segment.json")},
		{"segment.json is no JSON", one("segment.file"), nil, text(seg1+"/segment.json", "{")},
		{"segment.json of another segment", one("segment.file"), nil, swapped(seg1+"/segment.json", seg2+"/segment.json", false)},
		{"segment.json with another range", one("segment.file"), func(f *fixture) {
			f.segs[1].with("range", `{"lo":1,"hi":65536}`)
		}, nil},
		{"segment.json with a foreign parent", one("segment.parents"), func(f *fixture) { f.segs[1].with("parents", `["00000000-00-zzzzzzzz"]`) }, nil},
		{"a live segment is sealed", one("seal.live"), func(f *fixture) {
			f.segs[1].chunks = append(f.segs[1].chunks, &chunk{id: "seal-1", sealed: true})
		}, nil},
		{"an old segment is not sealed", one("seal.missing"), func(f *fixture) { f.segs[0].chunks = f.segs[0].chunks[:2] }, nil},
	}
}

func attributeFaults() []fault {
	attr := func(name, value string, want Kind) fault {
		return fault{fmt.Sprintf("attribute %s is %.20q", name, value), one(want), func(f *fixture) { f.segs[1].last().with(name, value) }, nil}
	}
	list := []fault{
		attr("Base", "999", "offsets.gap"),
		attr("Base", "33", "offsets.gap"),
		attr("Count", "99", "chunk.count"),
		attr("Bytes", "1", "chunk.bytes"),
		attr("Byte-Base", "0", "bytes.gap"),
		attr("Byte-Base", "99999", "bytes.gap"),
		attr("Load", "0=1/10", "chunk.load"),
		attr("Hot", "", "chunk.hot"),
		attr("Hot", "40000=1/10", "chunk.hot"),
		attr("Digest", "xxh64:0000000000000000", "chunk.digest"),
		attr("First", began.Add(11*time.Second).Format(time.RFC3339Nano), "records.times"),
		attr("Last", began.Add(time.Hour).Format(time.RFC3339Nano), "records.times"),
		attr("Positions", fmt.Sprintf("%s=6:5@%d %s=12:5@%d", sourceB, micros(6), sourceA, micros(12)), "positions.record"),
		attr("Positions", fmt.Sprintf("%s=6:5@%d %s=12:4@%d", sourceB, micros(6), sourceA, micros(11)), "positions.time"),
		attr("Positions", fmt.Sprintf("%s=5:1@%d %s=12:4@%d", sourceB, micros(5), sourceA, micros(12)), "positions.back"),
		attr("Positions", fmt.Sprintf("%s=7:1@%d %s=12:4@%d", sourceB, micros(7), sourceA, micros(12)), "positions.foreign"),
		attr("Positions", fmt.Sprintf("%s=6:5@%d %s=12:4@%d lane.x.0.y=1:1@1", sourceB, micros(6), sourceA, micros(12)), "positions.foreign"),
		attr("From", "10", "records.from"),
		attr("Refs", "", "chunk.refs"),
		attr("Refs", "1", "chunk.refs"),
		attr("Refs", "18446744073709551615", "chunk.refs"),
		attr("Pending", "0-10", "chunk.pending"), // of fewer records
		attr("Pending", "9223372036854775807", "chunk.pending"),
	}
	for i := range list { // positions are sorted by source
		if list[i].name[:14] == "attribute Posi" {
			model := list[i].model
			list[i].model = func(f *fixture) {
				model(f)
				fields := strings.Fields(f.segs[1].last().set["Positions"])
				slices.Sort(fields)
				f.segs[1].last().set["Positions"] = strings.Join(fields, " ")
			}
		}
	}
	for name, values := range map[string][]string{
		"Base": {"", "-1", "x", "18446744073709551616", "18446744073709551615"}, "Count": {"", "1e3"}, "Byte-Base": {"", "-1", "18446744073709551615"}, "Bytes": {"", "1.5"},
		"First": {"", "yesterday"}, "Last": {"", "0"}, "From": {"", "-1"}, "Source": {""}, "Digest": {""},
		"Positions": {"x", "a=1", "a=1:1", "=1:1@1", "a=1:1@x", "b=1:1@1 a=1:1@1", "a=1:1@1 a=2:2@2"},
		"Load":      {"x", "64=1/1", "-1=1/1", "1=1", "1=x/1", "2=1/1 1=1/1", "1=1/1 1=1/1"},
		"Refs":      {"x", "-1", "1.5", "18446744073709551616"},
		"Pending":   {"x", "-3", "3-", "1-2-3", "3-2", "2 1", "1 1", "1-3 3", "1,2", "0x1", "9223372036854775808"},
		"Hot":       {"x", "65536=1/1", "-1=1/1", "1=1", "1=1/x", "2=1/1 1=1/1", "1=1/1 1=1/1"},
	} {
		for _, v := range values {
			list = append(list, attr(name, v, "chunk.attributes"))
		}
	}
	return list
}

func chunkFaults() []fault {
	return []fault{
		{"a position above its checkpoint is left out", one("positions.back"), func(f *fixture) {
			f.checkpoints[sourceB] = 5
			f.segs[1].last().drop = sourceB
		}, nil},
		{"a seal goes back in time", one("chunk.times"), func(f *fixture) { f.segs[0].last().set = map[string]string{"First": began.Format(time.RFC3339Nano)} }, nil},
		{"a seal ends before it starts", []Kind{"chunk.times", "segment.created"}, func(f *fixture) { f.segs[0].last().set = map[string]string{"Last": began.Format(time.RFC3339Nano)} }, nil},
		{"a chunk follows the seal", one("seal.last"), func(f *fixture) {
			f.segs[0].chunks[1], f.segs[0].chunks[2] = f.segs[0].chunks[2], f.segs[0].chunks[1]
			f.segs[0].chunks = append(f.segs[0].chunks, &chunk{id: "seal-0b", sealed: true})
		}, nil},
		{"a seal has records", one("seal.content"), func(f *fixture) { f.segs[0].last().with("Count", "1") }, nil},
		{"a seal moves a position", one("seal.positions"), func(f *fixture) {
			f.segs[0].last().with("Positions", fmt.Sprintf("%s=2:5@%d %s=9:9@%d", sourceB, micros(2), sourceA, micros(9)))
		}, nil},
		{"a chunk has no records", one("chunk.empty"), func(f *fixture) {
			f.segs[1].chunks = append(f.segs[1].chunks, &chunk{id: "empty", source: sourceA, from: 12})
		}, nil},
		{"bytes on a volume are lost", one("chunk.lost"), nil, func(t testing.TB, f *fixture) {
			if err := f.fs.LoseBlobs(at(seg1, 2)); err != nil {
				t.Fatal(err)
			}
		}},
		{"a chunk says that it has no records", []Kind{"chunk.empty", "chunk.count"}, func(f *fixture) { f.segs[1].last().with("Count", "0") }, nil},
		{"a bit of an inline file is flipped", one("chunk.digest"), nil, corrupt(at(seg1, 0))},
		{"a bit on a volume is flipped", one("chunk.digest"), nil, corrupt(at(seg1, 2))},
		{"a file is cut", one("chunk.digest"), nil, replaced(at(seg1, 0), func(file *filer.File) { file.Content = file.Content[:len(file.Content)/2] })},
		{"a file is empty", one("chunk.digest"), nil, replaced(at(seg1, 0), func(file *filer.File) { file.Content = nil })},
		{"two files' bytes are swapped", one("chunk.digest"), nil, swapped(at(seg1, 0), at(seg1, 1), false)},
		{"two files are swapped", []Kind{"log.fork", "offsets.gap", "bytes.gap", "positions.foreign", "records.times", "chunk.times"}, nil, swapped(at(seg1, 0), at(seg1, 1), true)},
		{"a file was written cut", one("chunk.decode"), func(f *fixture) {
			f.segs[1].chunks[0].raw = func(b []byte) []byte { return b[:len(b)-20] }
		}, nil},
		{"a file was written empty", one("chunk.decode"), func(f *fixture) {
			f.segs[1].chunks[0].raw = func([]byte) []byte { return nil }
		}, nil},
		{"a file is of another schema", one("chunk.decode"), func(f *fixture) {
			f.segs[1].chunks[0].raw = func(b []byte) []byte { return []byte(strings.Replace(string(b), "sequence", "sequenze", 1)) }
		}, nil},
		{"a file misses its last block", []Kind{"chunk.count", "chunk.bytes", "chunk.load", "chunk.hot", "chunk.refs", "chunk.pending", "positions.record"}, func(f *fixture) {
			c := f.segs[1].chunks[3] // blocks of 7 and 3 records, not packed
			c.blob = false
			c.raw = func([]byte) []byte {
				file, _ := f.avro(nil, c.rows[:7], false)
				return file
			}
			c.rows[9].TS = c.rows[6].TS // or its times would be wrong too
		}, nil},
	}
}

func recordFaults() []fault {
	return []fault{
		{"two records are swapped", one("records.order"), func(f *fixture) {
			r := f.segs[1].chunks[2].rows
			r[3], r[4] = r[4], r[3]
		}, nil},
		{"a record is twice in a chunk", one("records.order"), func(f *fixture) {
			c := f.segs[1].chunks[2]
			c.rows = slices.Insert(c.rows, 3, c.rows[3])
		}, nil},
		{"a record comes a chunk late", one("records.late"), func(f *fixture) {
			early, late := f.segs[1].chunks[2], f.segs[1].chunks[4]
			late.rows = slices.Insert(late.rows, 0, early.rows[3])
			late.from = early.from
			f.cut(1, 2, 3)
		}, nil},
		{"a record comes a segment late", one("records.late"), func(f *fixture) {
			early, late := f.segs[0].chunks[0], f.segs[2].chunks[0]
			late.rows = slices.Insert(late.rows, 0, early.rows[3])
			late.from = early.from
			f.cut(0, 0, 3)
		}, nil},
		{"a record is in the wrong segment", one("records.range"), func(f *fixture) {
			right, wrong := f.segs[1].chunks[0], f.segs[0].chunks[0]
			wrong.rows = slices.Insert(wrong.rows, 1, right.rows[0])
			f.cut(1, 0, 0)
		}, nil},
		{"records are spread though they have keys", []Kind{"records.range", "chunk.load", "chunk.hot"}, nil, replaced(root+"/topics/flights/topic.json", func(file *filer.File) {
			file.Content = []byte(strings.Replace(string(file.Content), "header", "none", 1))
		})},
		{"the checkpoint of a source is gone", []Kind{"checkpoint.file"}, nil, remove(root + "/checkpoints/" + sourceB + ".json")},
		{"the checkpoint is of another source", one("checkpoint.file"), nil, replaced(root+"/checkpoints/"+sourceB+".json", func(file *filer.File) {
			file.Content = []byte(strings.Replace(string(file.Content), sourceB, sourceA, 1))
		})},
		{"a backfill counts a record more than there are", one("backfill.count"), nil, replaced(root+"/checkpoints/"+sourceA+".json", func(file *filer.File) {
			file.Content = []byte(strings.Replace(string(file.Content), `"sequence"`, `"tally": {"rows": 30, "rejected": 1}, "sequence"`, 1))
		})},
		{"the checkpoint went back", one("checkpoint.back"), func(f *fixture) { f.checkpoints[sourceA] = 8 }, nil},
		{"a record is in the parent and in the child", []Kind{"segment.floors", "records.lineage"}, func(f *fixture) {
			f.segs[2].with("floors", "[]")
			early, late := f.segs[0].chunks[0], f.segs[2].chunks[0]
			late.rows = slices.Insert(late.rows, 0, early.rows[3])
			late.from = early.from
		}, nil},
		{"a record is in two segments, with two keys", one("rows.twice"), func(f *fixture) {
			r := f.segs[1].chunks[0].rows[0]
			for i := 0; r.Key == nil || slot(sourceA, r, f.key) >= 1<<15; i++ {
				r.Key = ptr(fmt.Appendf(nil, "other %d", i))
			}
			rows := slices.Concat(f.segs[0].chunks[0].rows, []row{r})
			slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Row, b.Row)) })
			f.segs[0].chunks[0].rows = rows
		}, nil},
		{"a row is missing", one("rows.missing"), func(f *fixture) { f.cut(1, 2, 3) }, nil},
		{"the first row is missing", one("rows.missing"), func(f *fixture) { f.cut(2, 2, 0) }, nil},
		{"a chunk is missing at the end", one("rows.missing"), nil, remove(at(seg1, 4))},
	}
}

func laneFaults() []fault {
	fed := func(name string, want Kind, model func(f *fixture, l *fakeLanes)) fault {
		return fault{name, one(want), func(f *fixture) { model(f, f.feed()) }, nil}
	}
	return []fault{
		fed("the lane is gone", "lane.stream", func(_ *fixture, l *fakeLanes) { l.missing[laneA] = lane.ErrNoLane }),
		fed("the lane is no lane", "lane.stream", func(_ *fixture, l *fakeLanes) { l.missing[laneA] = &lane.MismatchError{Stream: "x"} }),
		fed("the lane was made again", "lane.incarnation", func(_ *fixture, l *fakeLanes) { l.state[laneA] = LaneState{"zzzzzzzz", 1, 20} }),
		fed("the lane lost its tail", "lane.back", func(_ *fixture, l *fakeLanes) { l.state[laneA] = LaneState{"aaaaaaaa", 1, 11} }),
		fed("the witness is another message", "lane.witness", func(_ *fixture, l *fakeLanes) { l.times[12] = began }),
		fed("the witness is gone", "lane.witness", func(_ *fixture, l *fakeLanes) { l.gone[12] = true }),
		fed("the checkpoint is above what is committed", "lane.uncommitted", func(_ *fixture, l *fakeLanes) { l.send(laneA, sourceA, 5) }),
		fed("a lane's messages were never committed", "lane.uncommitted", func(f *fixture, l *fakeLanes) {
			id := lane.ID{Group: "new", N: 0}
			f.checkpoints["lane.new.0.cccccccc"] = 3
			l.state[id] = LaneState{"cccccccc", 1, 3}
			l.send(id, "lane.new.0.cccccccc", 3)
		}),
		fed("the last rows of a message are missing", "lane.rows", func(f *fixture, _ *fakeLanes) { f.cut(2, 2, 5) }),
		fed("one row of a message is left, and it is no rejection", "lane.rows", func(f *fixture, _ *fakeLanes) {
			f.segs[1].last().rows = f.segs[1].last().rows[:4] // of message 12 the rows 1, 3 and 5 are left
			f.segs[2].last().rows = f.segs[2].last().rows[:3]
			f.segs[2].last().rows = append(f.segs[2].last().rows, message(sourceA, 12, 6)[0])
			f.segs[2].last().rows[3].Key = f.segs[2].last().rows[0].Key
		}),
	}
}

func faults() []fault {
	return slices.Concat(structureFaults(), attributeFaults(), referenceFaults(), batchFaults(), loadFaults(), chunkFaults(), recordFaults(), laneFaults(), editFaults(),
		manifestFaults(), dataFaults(), tableFaults())
}

func (c fault) verify(t testing.TB, opts ...Option) Report {
	t.Helper()
	f := newFixture()
	if c.model != nil {
		c.model(f)
	}
	f.write(t)
	if c.files != nil {
		c.files(t, f)
	}
	return f.verify(t, opts...)
}

func found(r Report) []Kind {
	var list []Kind
	for _, v := range r.Violations {
		if !slices.Contains(list, v.Kind) {
			list = append(list, v.Kind)
		}
	}
	return list
}
