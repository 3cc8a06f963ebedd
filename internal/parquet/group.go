package parquet

import "sync"

// group is a row group before it is encoded: its columns.
type group struct {
	rows  int
	bytes int64 // what is in the rows

	segment                  words
	offset, time             numbers[int64]
	eventTime                numbers[int64]
	key                      texts
	headerName               words // has the levels of headerValue too
	headerRep                []int16
	headerValue              texts
	url                      texts // has the levels of size and pending too
	size                     numbers[int64]
	etag, version, mediaType texts
	sha256                   texts
	records                  numbers[int64]
	pending                  numbers[bool]
	rejected                 texts
	row                      numbers[int32]
	err                      texts
	source                   words
	sequence, sourceRow      numbers[int64]
	producer                 words
	producerSequence         numbers[int64]
	value                    texts
}

// groups keeps the memory of row groups for the next file.
var groups = sync.Pool{New: func() any { return &group{} }}

// Definition levels of what is in _ref and _headers.
const (
	inGroup    = 1 // there, as all that is required of it
	inOptional = 2 // an optional field of it, or an element of the list
)

func (g *group) reset() {
	g.rows, g.bytes, g.headerRep = 0, 0, g.headerRep[:0]
	for _, w := range []*words{&g.segment, &g.headerName, &g.source, &g.producer} {
		w.reset()
	}
	for _, t := range []*texts{
		&g.key, &g.headerValue, &g.url, &g.etag, &g.version, &g.mediaType, &g.sha256, &g.rejected, &g.err, &g.value,
	} {
		t.reset()
	}
	for _, n := range []*numbers[int64]{
		&g.offset, &g.time, &g.eventTime, &g.size, &g.records, &g.sequence, &g.sourceRow, &g.producerSequence,
	} {
		n.reset()
	}
	g.pending.reset()
	g.row.reset()
}

// rowSize is what is in a row.
func rowSize(r *Row) int64 {
	n := len(r.Key) + len(r.Value) + len(r.Rejected) + len(r.Error) + len(r.Segment) + len(r.Source) + 48
	for i := range r.Headers {
		n += len(r.Headers[i].Name) + len(r.Headers[i].Value) + 8
	}
	if f := r.Ref; f != nil {
		n += len(f.URL) + len(f.ETag) + len(f.Version) + len(f.ContentType) + len(f.SHA256) + 16
	}
	if r.ID != nil {
		n += len(r.ID.Producer) + 8
	}
	return int64(n)
}

// add appends a row that was checked.
func (g *group) add(segment string, r *Row) {
	n := g.rows
	g.segment.add(segment)
	g.offset.values = append(g.offset.values, int64(r.Offset))
	g.time.values = append(g.time.values, r.Time.UnixMicro())
	g.source.add(r.Source)
	g.sequence.values = append(g.sequence.values, int64(r.Position.Sequence))
	g.sourceRow.values = append(g.sourceRow.values, int64(r.Position.Row))
	if !r.EventTime.IsZero() {
		g.eventTime.put(n, 1, r.EventTime.UnixMicro())
	}
	if r.Key != nil {
		put(&g.key, n, 1, r.Key)
	}
	if r.Value != nil {
		put(&g.value, n, 1, r.Value)
	}
	if r.Rejected != "" {
		put(&g.rejected, n, 1, r.Rejected)
	}
	if r.Error != "" {
		put(&g.err, n, 1, r.Error)
	}
	if r.Batch >= 0 {
		g.row.put(n, 1, r.Batch)
	}
	if r.ID != nil {
		g.producer.set(n, 1)
		g.producer.add(r.ID.Producer)
		g.producerSequence.put(n, 1, int64(r.ID.Sequence))
	}
	g.addHeaders(r)
	g.addRef(n, r)
	g.rows++
}

func (g *group) addHeaders(r *Row) {
	if len(r.Headers) == 0 {
		g.headerName.def, g.headerRep = append(g.headerName.def, 0), append(g.headerRep, 0)
		return
	}
	for i := range r.Headers {
		g.headerName.add(r.Headers[i].Name)
		add(&g.headerValue, r.Headers[i].Value)
		g.headerName.def = append(g.headerName.def, inOptional)
		g.headerRep = append(g.headerRep, int16(min(i, 1)))
	}
}

func (g *group) addRef(n int, r *Row) {
	f := r.Ref
	if f == nil {
		return
	}
	put(&g.url, n, inGroup, f.URL)
	g.size.values = append(g.size.values, f.Size)
	g.pending.values = append(g.pending.values, r.Pending)
	for _, o := range []struct {
		column *texts
		text   string
	}{{&g.etag, f.ETag}, {&g.version, f.Version}, {&g.mediaType, f.ContentType}} {
		if o.text == "" {
			o.column.set(n, inGroup)
		} else {
			put(o.column, n, inOptional, o.text)
		}
	}
	if f.SHA256 == nil {
		g.sha256.set(n, inGroup)
	} else {
		put(&g.sha256, n, inOptional, f.SHA256)
	}
	if f.Records == nil {
		g.records.set(n, inGroup)
	} else {
		g.records.put(n, inOptional, *f.Records)
	}
}
