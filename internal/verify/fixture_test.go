package verify

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hamba/avro/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
)

// A small encoder of topics that shares nothing with the one that is verified:
// names, attributes and JSON are written by hand from FORMAT, the chunk files
// by hand too, and the records in them by hamba/avro. A fixture is a model of a valid topic; a test changes one
// thing in it, or in the files that come out.

const (
	sourceA = "lane.default.0.aaaaaaaa"
	sourceB = "lane.big.1.bbbbbbbb"
	root    = "/buckets/test"
	dir     = root + "/topics/flights/inc00001"
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
		Ref      *struct{}  `avro:"ref"`
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
	chunk struct {
		id     string
		source string
		from   uint64
		rows   []row
		sealed bool
		blob   bool                // its bytes are on a volume server
		drop   string              // a source whose position is left out
		raw    func([]byte) []byte // changes the file before its digest is made
		set    map[string]string   // attributes as they are to be, whatever is true
	}
	seg struct {
		id     string
		lo, hi uint32
		floors string // JSON
		parent string // JSON list
		chunks []*chunk
		first  int    // number of the first chunk: those before are trimmed
		json   string // segment.json, if not the true one
	}
	fixture struct {
		fs          *memfs.FS
		client      *memfs.Client
		segs        []*seg // 0 was rolled to 2
		layouts     []string
		checkpoints map[string]uint64
		created     time.Time
		key         string
		lanes       *fakeLanes // nil: files only
	}
)

var (
	began  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	schema = avro.MustParse(record.Schema())

	packer, _ = zstd.NewWriter(nil) // the options, of which there are none, are fine
)

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
		list = append(list, r)
	}
	return list
}

func slot(source string, r row, key string) uint32 {
	if r.Key != nil && r.Rejected == nil && key != "none" {
		return uint32(xxhash.Sum64(*r.Key) >> 48)
	}
	b := binary.BigEndian.AppendUint64([]byte(source), uint64(r.Sequence))
	return uint32(xxhash.Sum64(binary.BigEndian.AppendUint32(b, uint32(r.Row))) >> 48)
}

// newFixture is the model of a valid topic: two key ranges, of which the first
// was rolled once, two sources, messages of 6 rows and of 1.
func newFixture() *fixture {
	fs := memfs.New()
	f := &fixture{
		fs: fs, client: fs.Client("test", nil), key: "header", created: began,
		checkpoints: map[string]uint64{sourceA: 12, sourceB: 6},
		segs: []*seg{
			{id: "00000000-00-aaaaaaaa", lo: 0, hi: 1 << 15, parent: `[]`, floors: `[]`},
			{id: "00000000-01-bbbbbbbb", lo: 1 << 15, hi: 1 << 16, parent: `[]`, floors: `[]`},
			{id: "00000002-00-cccccccc", lo: 0, hi: 1 << 15, parent: `["00000000-00-aaaaaaaa"]`},
		},
		layouts: []string{
			layoutJSON(0, "create", `[]`, "0:a,1:b", "0:a,1:b", false),
			layoutJSON(1, "roll", `["00000000-00-aaaaaaaa"]`, "0:c", "0:a,1:b", true),
			layoutJSON(2, "roll", `["00000000-00-aaaaaaaa"]`, "0:c", "0:c,1:b", false),
		},
	}
	f.fill()
	return f
}

// fill appends the records: two flushes, a roll, three flushes.
func (f *fixture) fill() {
	f.flush(sourceA, 0, 0, 1, 4)
	f.flush(sourceB, 0, 0, 1, 3)
	f.segs[0].chunks = append(f.segs[0].chunks, &chunk{id: "seal-0", sealed: true})
	final := map[string]row{}
	for _, c := range f.segs[0].chunks[:2] {
		final[c.source] = c.rows[len(c.rows)-1]
	}
	a, b := final[sourceA], final[sourceB]
	f.segs[2].floors = fmt.Sprintf(`[{"lo":0,"hi":32768,"source":%q,"at":"%d:%d"},{"lo":0,"hi":32768,"source":%q,"at":"%d:%d"}]`,
		sourceA, a.Sequence, a.Row, sourceB, b.Sequence, b.Row)
	f.flush(sourceA, 2, 4, 6, 9) // message 5 was for another topic
	f.flush(sourceB, 2, 3, 4, 6)
	f.flush(sourceA, 2, 9, 10, 12)
}

// flush appends messages to the segments: the lower half to segment low.
func (f *fixture) flush(source string, low int, from uint64, first, last int) {
	parts := map[int]*chunk{}
	for seq := first; seq <= last; seq++ {
		n := 6
		if seq%4 == 3 {
			n = 1
		}
		for _, r := range message(source, seq, n) {
			to := low
			if slot(source, r, f.key) >= 1<<15 {
				to = 1
			}
			if parts[to] == nil {
				parts[to] = &chunk{id: fmt.Sprintf("%s-%d-%d", source, first, to), source: source, from: from, blob: first%2 == 0}
				f.segs[to].chunks = append(f.segs[to].chunks, parts[to])
			}
			parts[to].rows = append(parts[to].rows, r)
		}
	}
}

// layoutJSON writes a layout; children and live are lists of half:letter.
func layoutJSON(epoch int, kind, parents, children, live string, pending bool) string {
	list := func(s string) string {
		var parts []string
		for _, p := range strings.Split(s, ",") {
			half, letter, _ := strings.Cut(p, ":")
			id := map[string]string{"a": "00000000-00-aaaaaaaa", "b": "00000000-01-bbbbbbbb", "d": "00000002-01-dddddddd", "c": "00000002-00-cccccccc"}[letter]
			lo := map[string]int{"0": 0, "1": 1 << 15}[half]
			parts = append(parts, fmt.Sprintf(`{"id":%q,"lo":%d,"hi":%d}`, id, lo, lo+1<<15))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return fmt.Sprintf(`{"epoch":%d,"at":"2026-03-01T12:00:00Z","edit":{"kind":%q,"reason":"test","parents":%s,"children":%s},"live":%s,"pending":%t}`,
		epoch, kind, parents, list(children), list(live), pending)
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
	text(root+"/topics/flights/topic.json", `{"name":"flights","incarnation":"inc00001","state":"live","key":%q,"flush_age":"1s","lanes":"default","created":%q}`,
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

func (s *seg) dir() string        { return dir + "/segments/" + s.id }
func (s *seg) path(n int) string  { return fmt.Sprintf("%s/%016d.avro", s.dir(), n) }
func (s *seg) last() *chunk       { return s.chunks[len(s.chunks)-1] }
func (c *chunk) with(k, v string) { c.set = map[string]string{k: v} }
func (f *fixture) cut(s, c, at int) {
	f.segs[s].chunks[c].rows = slices.Delete(f.segs[s].chunks[c].rows, at, at+1)
}

func (f *fixture) writeSegment(t testing.TB, s *seg) {
	t.Helper()
	description := s.json
	if description == "" {
		description = fmt.Sprintf(`{"id":%q,"range":{"lo":%d,"hi":%d},"epoch":0,"parents":%s,"floors":%s,"created":"2026-03-01T12:00:00Z"}`,
			s.id, s.lo, s.hi, s.parent, s.floors)
	}
	f.put(t, s.dir()+"/segment.json", "segment", filer.Attrs{}, []byte(description), false)
	f.put(t, s.dir()+"/head", "head", filer.Attrs{"Head": fmt.Sprint(s.first)}, nil, false)
	var base int
	var last time.Time
	prev, positions := "", map[string]position{}
	for n, c := range s.chunks {
		attrs, data := f.encode(t, s, c, base, last, positions)
		attrs["Prev"] = prev
		base += len(c.rows)
		last, _ = time.Parse(time.RFC3339Nano, attrs["Last"])
		for k, v := range c.set {
			attrs[k] = v
		}
		if n >= s.first {
			f.put(t, s.path(n), c.id, attrs, data, c.blob)
		}
		prev = c.id
	}
}

// encode gives a chunk's attributes and bytes, and moves positions on.
func (f *fixture) encode(t testing.TB, s *seg, c *chunk, base int, last time.Time, positions map[string]position) (filer.Attrs, []byte) {
	t.Helper()
	later := func(at time.Time) string {
		if at.Before(last) {
			at = last
		}
		return at.Format(time.RFC3339Nano)
	}
	attrs := filer.Attrs{"Base": fmt.Sprint(base), "Count": fmt.Sprint(len(c.rows))}
	if c.sealed {
		attrs["Bytes"], attrs["Sealed"] = "0", "true"
		attrs["First"], attrs["Last"], attrs["Positions"] = later(last), later(last), format(positions, "")
		return attrs, nil
	}
	data, sizes := f.avro(t, c.rows, c.blob)
	if c.raw != nil {
		data = c.raw(data)
	}
	attrs["First"], attrs["Last"] = later(last), later(last)
	if n := len(c.rows); n > 0 {
		end := c.rows[n-1]
		attrs["First"], attrs["Last"] = later(c.rows[0].TS), later(end.TS)
		positions[c.source] = position{end.Sequence, int64(end.Row), end.TS.UnixMicro()}
	}
	if c.drop != "" {
		delete(positions, c.drop)
	}
	attrs["Positions"], attrs["Source"], attrs["From"] = format(positions, ""), c.source, fmt.Sprint(c.from)
	attrs["Digest"] = fmt.Sprintf("xxh64:%016x", xxhash.Sum64(data))
	attrs["Bytes"], attrs["Load"] = load(s, c, sizes, f.key)
	return attrs, data
}

// format writes positions, with one of them changed by "source=…".
func format(positions map[string]position, changed string) string {
	var list []string
	for source, p := range positions {
		if !strings.HasPrefix(changed, source+"=") {
			list = append(list, fmt.Sprintf("%s=%d:%d@%d", source, p.seq, p.row, p.micros))
		}
	}
	if changed != "" {
		list = append(list, changed)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func load(s *seg, c *chunk, sizes []int, key string) (bytes, load string) {
	total := 0
	var records, size [64]int
	for i, r := range c.rows {
		total += sizes[i]
		if at := slot(c.source, r, key); at >= s.lo && at < s.hi {
			part := (at - s.lo) * 64 / (s.hi - s.lo)
			records[part]++
			size[part] += sizes[i]
		} else { // a fault: put its bytes somewhere
			size[63] += sizes[i]
		}
	}
	var parts []string
	for i := range records {
		if size[i] > 0 {
			parts = append(parts, fmt.Sprintf("%d=%d/%d", i, records[i], size[i]))
		}
	}
	return fmt.Sprint(total), strings.Join(parts, " ")
}

// avro writes an Avro file in blocks of 7, packed if its bytes are on a volume.
func (f *fixture) avro(t testing.TB, rows []row, packed bool) (file []byte, sizes []int) {
	codec, pack := "null", func(b []byte) []byte { return b }
	if packed {
		codec, pack = "zstandard", func(b []byte) []byte { return packer.EncodeAll(b, nil) }
	}
	field := func(b []byte) {
		file = append(binary.AppendVarint(file, int64(len(b))), b...)
	}
	const sync = "0123456789abcdef"
	file = append([]byte("Obj\x01"), 4)
	for _, text := range []string{"avro.schema", record.Schema(), "avro.codec", codec} {
		field([]byte(text))
	}
	file = append(append(file, 0), sync...)
	for part := range slices.Chunk(rows, 7) {
		var block []byte
		for _, r := range part {
			data, err := avro.Marshal(schema, r)
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(data))
			block = append(block, data...)
		}
		file = binary.AppendVarint(file, int64(len(part)))
		field(pack(block))
		file = append(file, sync...)
	}
	return file, sizes
}

// verify writes nothing; options are passed on.
func (f *fixture) verify(t testing.TB, opts ...Option) Report {
	t.Helper()
	var lanes Lanes
	if f.lanes != nil {
		lanes = f.lanes
	}
	r, err := Topic(t.Context(), segment.NewStore(f.client, "test"), lanes, "flights", opts...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	return r
}
