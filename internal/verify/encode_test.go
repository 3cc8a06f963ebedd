package verify

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hamba/avro/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/record"
)

var (
	schema = avro.MustParse(record.Schema())

	packer, _ = zstd.NewWriter(nil) // the options, of which there are none, are fine
)

// writeSegment makes the files of a segment whose parents have been written.
func (f *fixture) writeSegment(t testing.TB, s *seg) {
	t.Helper()
	s.created = s.born
	for _, p := range s.parents {
		if p.sealed.After(s.created) {
			s.created = p.sealed
		}
	}
	f.put(t, s.dir()+"/segment.json", "segment", filer.Attrs{}, []byte(s.description()), false)
	f.put(t, s.dir()+"/head", "head", filer.Attrs{"Head": fmt.Sprint(s.first)}, nil, false)
	var base, bytes int
	var last time.Time
	if len(s.parents) > 0 {
		last = s.created
	}
	prev, positions := "", map[string]position{}
	for n, c := range s.chunks {
		attrs, data := f.encode(t, s, c, base, last, positions)
		attrs["Prev"], attrs["Byte-Base"] = prev, fmt.Sprint(bytes)
		base += len(c.rows)
		size, _ := strconv.Atoi(attrs["Bytes"])
		bytes += size
		last, _ = time.Parse(time.RFC3339Nano, attrs["Last"])
		if c.sealed {
			s.sealed = last
		}
		for k, v := range c.set {
			attrs[k] = v
		}
		if n >= s.first {
			f.put(t, s.path(n), c.id, attrs, data, c.blob)
		}
		prev = c.id
	}
	f.writeData(t, s)
}

func digestOf(data []byte) string { return fmt.Sprintf("xxh64:%016x", xxhash.Sum64(data)) }

// encodedSize is the size of a record in a chunk.
func encodedSize(r row) int {
	data, err := avro.Marshal(schema, r)
	if err != nil {
		panic(err)
	}
	return len(data)
}

// description is the segment.json. A member that is set to "" is left out.
func (s *seg) description() string {
	var floors []string
	eachFloor(s.inherited(), func(source string, lo, hi int, p position) {
		floors = append(floors, fmt.Sprintf(`{"lo":%d,"hi":%d,"source":%q,"at":"%d:%d","time":%q}`,
			lo, hi, source, p.seq, p.row, time.UnixMicro(p.micros).UTC().Format(time.RFC3339Nano)))
	})
	members := map[string]string{
		"id": fmt.Sprintf("%q", s.id), "range": fmt.Sprintf(`{"lo":%d,"hi":%d}`, s.lo, s.hi), "epoch": fmt.Sprint(s.epoch),
		"parents": idList(s.parents), "floors": "[" + strings.Join(floors, ",") + "]",
		"created": fmt.Sprintf("%q", s.created.Format(time.RFC3339Nano)),
	}
	maps.Copy(members, s.set)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		list = append(list, fmt.Sprintf("%q:%s", name, members[name]))
	}
	return "{" + strings.Join(list, ",") + "}"
}

// eachFloor calls back for each run of units in which a source is at a position.
func eachFloor(r reach, call func(source string, lo, hi int, p position)) {
	for _, source := range slices.Sorted(maps.Keys(r)) {
		all := r[source]
		for lo := 0; lo < units; {
			hi := lo + 1
			for hi < units && all[hi] == all[lo] {
				hi++
			}
			if all[lo].seq > 0 {
				call(source, lo*unit, hi*unit, all[lo])
			}
			lo = hi
		}
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
		var floors []string
		s.compose(positions, c.passed)
		eachFloor(s.handed, func(source string, lo, hi int, p position) {
			floors = append(floors, fmt.Sprintf("%d-%d/%s=%d:%d@%d", lo, hi, source, p.seq, p.row, p.micros))
		})
		attrs["Bytes"], attrs["Sealed"], attrs["Floors"] = "0", "true", strings.Join(floors, " ")
		attrs["First"], attrs["Last"], attrs["Positions"] = later(c.at), later(c.at), format(positions)
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
	attrs["Positions"], attrs["Source"], attrs["From"] = format(positions), c.source, fmt.Sprint(c.from)
	attrs["Digest"] = fmt.Sprintf("xxh64:%016x", xxhash.Sum64(data))
	attrs["Bytes"], attrs["Load"] = load(s, c, sizes, f.key)
	if text := hot(s, c, sizes, f.key); text != "" {
		attrs["Hot"] = text
	}
	refs(c, attrs)
	return attrs, data
}

// refs counts the references of a chunk, and says of those with odd sizes that they
// were not verified.
func refs(c *chunk, attrs filer.Attrs) {
	n, open := 0, " "
	for i, r := range c.rows {
		if r.Ref == nil || r.Rejected != nil {
			continue
		}
		if n++; r.Ref.Size%2 == 1 {
			open += fmt.Sprintf("%d ", i)
		}
	}
	if n > 0 {
		attrs["Refs"] = fmt.Sprint(n)
	}
	for i := range c.rows { // two neighbours are a range
		open = strings.ReplaceAll(open, fmt.Sprintf(" %d %d ", i, i+1), fmt.Sprintf(" %d-%d ", i, i+1))
	}
	if open = strings.TrimSpace(open); open != "" {
		attrs["Pending"] = open
	}
}

// format writes positions.
func format(positions map[string]position) string {
	var list []string
	for source, p := range positions {
		list = append(list, fmt.Sprintf("%s=%d:%d@%d", source, p.seq, p.row, p.micros))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func load(s *seg, c *chunk, sizes []int, key string) (bytes, load string) {
	total := 0
	var records, size [64]int
	for i, r := range c.rows {
		total += sizes[i]
		if at := slot(c.source, r, key); at >= s.lo && at < s.hi { // else it is a fault
			part := (at - s.lo) * 64 / (s.hi - s.lo)
			records[part]++
			size[part] += sizes[i]
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

// hot finds the slots with the largest shares one by one.
func hot(s *seg, c *chunk, sizes []int, key string) string {
	total := 0
	records, size := map[uint32]int{}, map[uint32]int{}
	for i, r := range c.rows {
		total += sizes[i]
		if at := slot(c.source, r, key); at >= s.lo && at < s.hi {
			records[at]++
			size[at] += sizes[i]
		}
	}
	share := func(at uint32) float64 {
		return max(float64(records[at])/float64(len(c.rows)), float64(size[at])/float64(total))
	}
	named := map[uint32]bool{}
	for range 32 {
		best, most := uint32(0), 1.0/100
		for _, at := range slices.Sorted(maps.Keys(records)) {
			if !named[at] && share(at) > most {
				best, most = at, share(at)
			}
		}
		if most > 1.0/100 {
			named[best] = true
		}
	}
	var parts []string
	for _, at := range slices.Sorted(maps.Keys(named)) {
		parts = append(parts, fmt.Sprintf("%d=%d/%d", at, records[at], size[at]))
	}
	return strings.Join(parts, " ")
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
