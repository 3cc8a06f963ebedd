package verify

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
)

// A small encoder of topics that shares nothing with the one that is verified:
// names, attributes and JSON are written by hand from FORMAT (encode_test.go),
// the chunk files by hand too, and the records in them by hamba/avro. A fixture is
// a model of a valid topic; a test changes one thing in it, or in the files that
// come out.

const (
	sourceA = "lane.default.0.aaaaaaaa"
	sourceB = "lane.big.1.bbbbbbbb"
	root    = "/buckets/test"
	dir     = root + "/topics/flights/inc00001"

	// Ranges in fixtures begin and end at multiples of a unit, so that floors can
	// be kept for each unit.
	unit  = 1 << 12
	units = 16
)

type (
	row struct {
		TS       time.Time  `avro:"ts"`
		Sequence int64      `avro:"sequence"`
		Row      int32      `avro:"row"`
		ID       *rowID     `avro:"id"`
		Rejected *string    `avro:"rejected"`
		EventTS  *time.Time `avro:"event_ts"`
		Key      *[]byte    `avro:"key"`
		Headers  []header   `avro:"headers"`
		Value    *[]byte    `avro:"value"`
		Ref      *rowRef    `avro:"ref"`
	}
	rowRef struct {
		URL         string  `avro:"url"`
		Size        int64   `avro:"size"`
		ETag        string  `avro:"etag"`
		Version     string  `avro:"version"`
		ContentType string  `avro:"content_type"`
		SHA256      *[]byte `avro:"sha256"`
		Records     *int64  `avro:"records"`
	}
	rowID struct {
		Producer string `avro:"producer"`
		Sequence int64  `avro:"sequence"`
	}
	header struct {
		Name  string `avro:"name"`
		Value []byte `avro:"value"`
	}
	// position is a source's position in attribute form.
	position struct {
		seq, row, micros int64
	}
	// reach is how far each source is taken in, unit by unit.
	reach map[string][units]position
	chunk struct {
		id     string
		source string
		from   uint64
		rows   []row
		sealed bool
		at     time.Time           // of a seal
		passed map[string]int64    // checkpoints when it was sealed
		blob   bool                // its bytes are on a volume server
		drop   string              // a source whose position is left out
		raw    func([]byte) []byte // changes the file before its digest is made
		set    map[string]string   // attributes as they are to be, whatever is true
	}
	seg struct {
		id      string
		lo, hi  uint32
		epoch   int
		born    time.Time // of the edit
		parents []*seg
		chunks  []*chunk
		first   int               // number of the first chunk: those before are trimmed
		set     map[string]string // members of segment.json as they are to be
		data    *packed           // nil: it is not compacted

		created time.Time // from here on: noted when it is written
		handed  reach
		sealed  time.Time
	}
	fixture struct {
		fs          *memfs.FS
		client      *memfs.Client
		segs        []*seg
		live        []*seg
		layouts     []string
		checkpoints map[string]uint64
		created     time.Time
		key         string
		fill        func(f *fixture)
		lanes       *fakeLanes // nil: files only
		shelf       *shelf     // nil: batch references are not read
		table       *fakeTable // nil: no catalog
	}
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// message gives the rows of message seq of a source: plain ones have one row.
func message(source string, seq, rows int) []row {
	var list []row
	at := began.Add(time.Duration(seq) * time.Second)
	for i := range rows {
		r := row{TS: at, Sequence: int64(seq), Row: int32(i), Value: ptr([]byte(fmt.Sprintf("value %s %d %d", source, seq, i)))}
		r.Key = ptr([]byte(fmt.Sprintf("key %s %d %d", source, seq%3, i)))
		if rows > 1 {
			r.ID = &rowID{"producer-" + source, int64(seq)}
		}
		if (seq+i)%3 == 0 {
			r.Value, r.Ref = nil, &rowRef{URL: fmt.Sprintf("s3://bucket/%d", seq), Size: int64(i)}
		}
		list = append(list, r)
	}
	return list
}

func slot(source string, r row, key string) uint32 {
	if r.Key != nil && (r.Rejected == nil || r.Ref != nil) && key != "none" {
		return uint32(xxhash.Sum64(*r.Key) >> 48)
	}
	b := binary.BigEndian.AppendUint64([]byte(source), uint64(r.Sequence))
	return uint32(xxhash.Sum64(binary.BigEndian.AppendUint32(b, uint32(r.Row))) >> 48)
}

func newModel(fill func(f *fixture), checkpointA, checkpointB uint64) *fixture {
	fs := memfs.New()
	f := &fixture{
		fs: fs, client: fs.Client("test", nil), key: "header", created: began, fill: fill,
		checkpoints: map[string]uint64{sourceA: checkpointA, sourceB: checkpointB},
	}
	fill(f)
	return f
}

// newFixture is the model of a valid topic: two key ranges, of which the first
// was rolled once, two sources, messages of 6 rows and of 1.
func newFixture() *fixture { return newModel(rolled, 12, 6) }

// rolled is two flushes, a roll, three flushes.
func rolled(f *fixture) {
	f.begin(&seg{id: "00000000-00-aaaaaaaa", lo: 0, hi: 1 << 15}, &seg{id: "00000000-01-bbbbbbbb", lo: 1 << 15, hi: 1 << 16})
	f.flush(sourceA, 0, 1, 4)
	f.flush(sourceB, 0, 1, 3)
	f.edit("roll", began, nil, f.segs[:1], &seg{id: "00000002-00-cccccccc", lo: 0, hi: 1 << 15})
	f.flush(sourceA, 4, 6, 9) // message 5 was for another topic
	f.flush(sourceB, 3, 4, 6)
	f.flush(sourceA, 9, 10, 12)
}

// newLineage is the model of a valid topic that was split, merged and split
// again, in the end of which an edit is under way:
//
//	0 a ──┬── 2 c
//	      └── 3 d (empty) ──┐      ┌── 5 g
//	1 b ────────────────────┴─ 4 e ┴── 6 h ── (i)
func newLineage() *fixture { return newModel(edited, 9, 3) }

func edited(f *fixture) {
	a, b := &seg{id: "00000000-00-aaaaaaaa", lo: 0, hi: 8 * unit}, &seg{id: "00000000-01-bbbbbbbb", lo: 8 * unit, hi: 16 * unit}
	c, d := &seg{id: "00000002-00-cccccccc", lo: 0, hi: 2 * unit}, &seg{id: "00000002-01-dddddddd", lo: 2 * unit, hi: 8 * unit}
	e := &seg{id: "00000004-00-eeeeeeee", lo: 2 * unit, hi: 16 * unit}
	g, h := &seg{id: "00000006-00-gggggggg", lo: 2 * unit, hi: 8 * unit}, &seg{id: "00000006-01-hhhhhhhh", lo: 8 * unit, hi: 16 * unit}
	f.begin(a, b)
	f.flush(sourceA, 0, 1, 4)
	f.flush(sourceB, 0, 1, 3)
	f.edit("split", began.Add(10*time.Second), nil, []*seg{a}, c, d)
	f.edit("merge", began.Add(11*time.Second), map[string]int64{sourceB: 3}, []*seg{d, b}, e)
	f.flush(sourceA, 4, 6, 9)
	f.flush(sourceB, 3, 4, 6)
	// This planner's clock is behind what the records say.
	f.edit("split", began.Add(5*time.Second), nil, []*seg{e}, g, h)
	f.flush(sourceA, 9, 10, 12)
	f.edit("roll", began.Add(30*time.Second), nil, []*seg{h}, &seg{id: "00000008-00-iiiiiiii", lo: h.lo, hi: h.hi})
	f.layouts = f.layouts[:len(f.layouts)-1]
	f.segs, f.live = f.segs[:7], []*seg{c, g, h}
}

// begin makes the first layout.
func (f *fixture) begin(segs ...*seg) {
	f.segs, f.live = segs, segs
	for _, s := range segs {
		s.born = began
	}
	f.layouts = []string{layoutJSON(0, began, "create", nil, segs, segs, false)}
}

// edit replaces live segments by others.
func (f *fixture) edit(kind string, at time.Time, passed map[string]int64, parents []*seg, children ...*seg) {
	n := len(f.layouts)
	f.layouts = append(f.layouts, layoutJSON(n, at, kind, parents, children, f.live, true))
	for _, p := range parents {
		p.chunks = append(p.chunks, &chunk{id: "seal-" + p.id, sealed: true, at: at, passed: passed})
	}
	for _, c := range children {
		c.epoch, c.born, c.parents = n+1, at, parents
	}
	f.segs = append(slices.Clone(f.segs), children...)
	f.live = slices.DeleteFunc(slices.Clone(f.live), func(s *seg) bool { return slices.Contains(parents, s) })
	f.live = append(f.live, children...)
	slices.SortFunc(f.live, func(x, y *seg) int { return int(x.lo) - int(y.lo) })
	f.layouts = append(f.layouts, layoutJSON(n+1, at, kind, parents, children, f.live, false))
}

// flush appends messages to the live segments.
func (f *fixture) flush(source string, from uint64, first, last int) {
	parts := map[*seg]*chunk{}
	for seq := first; seq <= last; seq++ {
		n := 6
		if seq%4 == 3 {
			n = 1
		}
		for _, r := range message(source, seq, n) {
			to := f.owner(slot(source, r, f.key))
			if parts[to] == nil {
				parts[to] = &chunk{id: fmt.Sprintf("%s-%d-%s", source, first, to.id), source: source, from: from, blob: first%2 == 0}
				to.chunks = append(to.chunks, parts[to])
			}
			parts[to].rows = append(parts[to].rows, r)
		}
	}
}

// owner is the live segment that owns a slot.
func (f *fixture) owner(slot uint32) *seg {
	i := slices.IndexFunc(f.live, func(s *seg) bool { return s.lo <= slot && slot < s.hi })
	return f.live[i]
}

func layoutJSON(epoch int, at time.Time, kind string, parents, children, live []*seg, pending bool) string {
	list := func(segs []*seg) string {
		var parts []string
		for _, s := range segs {
			parts = append(parts, fmt.Sprintf(`{"id":%q,"lo":%d,"hi":%d}`, s.id, s.lo, s.hi))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return fmt.Sprintf(`{"epoch":%d,"at":%q,"edit":{"kind":%q,"reason":"test","parents":%s,"children":%s},"live":%s,"pending":%t}`,
		epoch, at.Format(time.RFC3339Nano), kind, idList(parents), list(children), list(live), pending)
}

func idList(segs []*seg) string {
	ids := []string{}
	for _, s := range segs {
		ids = append(ids, fmt.Sprintf("%q", s.id))
	}
	return "[" + strings.Join(ids, ",") + "]"
}

// compose notes what a seal hands down: the highest of the positions and of what
// the parents handed down, unless its checkpoint had passed it.
func (s *seg) compose(positions map[string]position, passed map[string]int64) {
	s.handed = maps.Clone(s.inherited())
	for source, p := range positions {
		var all [units]position
		for u := s.lo / unit; u < s.hi/unit; u++ {
			all[u] = p.max(s.handed[source][u])
		}
		s.handed[source] = all
	}
	for source, all := range s.handed {
		for u := range all {
			if all[u].seq <= passed[source] {
				all[u] = position{}
			}
		}
		s.handed[source] = all
	}
}

func (s *seg) inherited() reach {
	r := reach{}
	for _, p := range s.parents {
		for source, all := range p.handed {
			mine := r[source]
			for u := max(s.lo, p.lo) / unit; u < min(s.hi, p.hi)/unit; u++ {
				mine[u] = all[u]
			}
			r[source] = mine
		}
	}
	return r
}

func (p position) max(o position) position {
	if o.seq > p.seq || o.seq == p.seq && o.row > p.row {
		return o
	}
	return p
}

func (s *seg) dir() string        { return dir + "/segments/" + s.id }
func (s *seg) path(n int) string  { return fmt.Sprintf("%s/%016d.avro", s.dir(), n) }
func (s *seg) last() *chunk       { return s.chunks[len(s.chunks)-1] }
func (s *seg) with(k, v string)   { s.set = map[string]string{k: v} }
func (c *chunk) with(k, v string) { c.set = map[string]string{k: v} }
func (f *fixture) cut(s, c, at int) {
	f.segs[s].chunks[c].rows = slices.Delete(f.segs[s].chunks[c].rows, at, at+1)
}

func (f *fixture) put(t testing.TB, path, id string, attrs filer.Attrs, data []byte, blob bool) {
	t.Helper()
	file := filer.File{ID: id, Attrs: attrs, Content: data}
	if blob && len(data) > 0 {
		b, err := f.client.Upload(t.Context(), path, data)
		if err != nil {
			t.Fatal(err)
		}
		file.Content, file.Blobs = nil, []filer.Blob{b}
	}
	if err := f.client.Create(t.Context(), path, file); err != nil {
		t.Fatal(err)
	}
}

// write makes the files of the model.
func (f *fixture) write(t testing.TB) {
	t.Helper()
	text := func(path, format string, a ...any) {
		f.put(t, path, "id:"+path, filer.Attrs{}, fmt.Appendf(nil, format, a...), false)
	}
	text(root+"/topics/flights/topic.json", `{"name":"flights","incarnation":"inc00001","state":"live","key":%q,"flush_age":"1s","lanes":"default","roots":2,"created":%q}`,
		f.key, f.created.Format(time.RFC3339Nano))
	f.put(t, dir+"/layout/head", "layout-head", filer.Attrs{"Head": "0"}, []byte("0\n"), false)
	prev := ""
	for i, l := range f.layouts {
		id := fmt.Sprintf("layout-%d", i)
		f.put(t, fmt.Sprintf("%s/layout/%016d.json", dir, i), id, filer.Attrs{"Prev": prev}, []byte(l), false)
		prev = id
	}
	for source, at := range f.checkpoints {
		witness := began.Add(time.Duration(at) * time.Second)
		text(root+"/checkpoints/"+source+".json", `{"source":%q,"sequence":%d,"witness":%q,"producers":[],"marks":[]}`, source, at, witness.Format(time.RFC3339Nano))
	}
	for _, s := range f.segs {
		f.writeSegment(t, s)
	}
}

// topic verifies the topic that was written.
func (f *fixture) topic(ctx context.Context, opts ...Option) (Report, error) {
	var lanes Lanes
	if f.lanes != nil {
		lanes = f.lanes
	}
	if f.shelf != nil {
		opts = append(opts, Expand(f.shelf))
	}
	if f.table != nil {
		opts = append(opts, InTable(f.table.open))
	}
	return Topic(ctx, segment.NewStore(f.client, "test"), lanes, "flights", opts...)
}

// verify writes nothing; options are passed on.
func (f *fixture) verify(t testing.TB, opts ...Option) Report {
	t.Helper()
	r, err := f.topic(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	return r
}
