package verify

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// attributes reads the attributes of an entry as FORMAT describes them. It
// shares no code with the segment store: a mistake in one cannot hide in both.
func attributes(e commitlog.Entry) (segment.Chunk, error) {
	p := parser{e: e}
	c := segment.Chunk{
		Entry: e, Base: p.number("Base"), Count: p.number("Count"), ByteBase: p.number("Byte-Base"), Bytes: p.number("Bytes"),
		First: p.time("First"), Last: p.time("Last"), Positions: p.positions(),
		Sealed: e.Attrs["Sealed"] == "true",
	}
	if c.Sealed {
		c.Floors = p.floors()
	} else {
		c.Source, c.From, c.Digest = p.text("Source"), p.from(), p.text("Digest")
		p.counts("Load", segment.LoadBuckets, func(i, records, bytes uint64) {
			c.Load = append(c.Load, segment.Bucket{Index: int(i), Records: records, Bytes: bytes})
		})
		p.counts("Hot", topic.Slots, func(i, records, bytes uint64) {
			c.Hot = append(c.Hot, segment.HotSlot{Slot: topic.Slot(i), Records: records, Bytes: bytes})
		})
		if e.Attrs["Refs"] != "" {
			c.Refs = p.number("Refs")
		}
		c.Pending = p.pending()
	}
	if p.err == nil && c.Base+c.Count < c.Base {
		p.fail("Count")
	}
	if p.err == nil && c.ByteBase+c.Bytes < c.ByteBase {
		p.fail("Byte-Base")
	}
	return c, p.err
}

// from reads "sequence", or "sequence:row" of a backfill.
func (p *parser) from() topic.Position {
	at, err := topic.ParsePosition(p.e.Attrs["From"])
	if err != nil {
		p.fail("From")
	}
	return at
}

type parser struct {
	e   commitlog.Entry
	err error
}

func (p *parser) fail(name string) {
	if p.err == nil {
		p.err = fmt.Errorf("attribute %s is %.200q", name, p.e.Attrs[name])
	}
}

func (p *parser) text(name string) string {
	s := p.e.Attrs[name]
	if s == "" {
		p.fail(name)
	}
	return s
}

func (p *parser) number(name string) uint64 {
	n, err := strconv.ParseUint(p.e.Attrs[name], 10, 64)
	if err != nil {
		p.fail(name)
	}
	return n
}

func (p *parser) time(name string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, p.e.Attrs[name])
	if err != nil {
		p.fail(name)
	}
	return t
}

// positions reads "source=sequence:row@micros …", sorted by source.
func (p *parser) positions() (list []segment.SourcePosition) {
	for _, field := range strings.Fields(p.e.Attrs["Positions"]) {
		sp, ok := sourcePosition(field)
		if !ok || len(list) > 0 && sp.Source <= list[len(list)-1].Source {
			p.fail("Positions")
			return nil
		}
		list = append(list, sp)
	}
	return list
}

// sourcePosition reads "source=sequence:row@micros".
func sourcePosition(field string) (segment.SourcePosition, bool) {
	source, rest, _ := strings.Cut(field, "=")
	at, micros, _ := strings.Cut(rest, "@")
	pos, err := topic.ParsePosition(at)
	us, err2 := strconv.ParseInt(micros, 10, 64)
	return segment.SourcePosition{Source: source, At: pos, Time: time.UnixMicro(us).UTC()}, err == nil && err2 == nil && source != ""
}

// floors reads "lo-hi/source=sequence:row@micros …", sorted by source and range.
func (p *parser) floors() (list []topic.Floor) {
	for _, field := range strings.Fields(p.e.Attrs["Floors"]) {
		slots, rest, _ := strings.Cut(field, "/")
		from, to, _ := strings.Cut(slots, "-")
		lo, err := strconv.ParseUint(from, 10, 32)
		hi, err2 := strconv.ParseUint(to, 10, 32)
		sp, ok := sourcePosition(rest)
		if err != nil || err2 != nil || !ok {
			p.fail("Floors")
			return nil
		}
		list = append(list, topic.Floor{Range: topic.Range{Lo: uint32(lo), Hi: uint32(hi)}, Source: sp.Source, At: sp.At, Time: sp.Time})
	}
	if _, err := levelsOf(list); err != nil {
		p.fail("Floors")
	}
	return list
}

// counts reads "number=records/bytes …", sorted by number, which is below a limit.
func (p *parser) counts(name string, limit uint64, take func(i, records, bytes uint64)) {
	least := uint64(0)
	for _, field := range strings.Fields(p.e.Attrs[name]) {
		number, rest, _ := strings.Cut(field, "=")
		records, bytes, _ := strings.Cut(rest, "/")
		i, err := strconv.ParseUint(number, 10, 32)
		n, err2 := strconv.ParseUint(records, 10, 64)
		size, err3 := strconv.ParseUint(bytes, 10, 64)
		if err != nil || err2 != nil || err3 != nil || i >= limit || i < least {
			p.fail(name)
			return
		}
		take(i, n, size)
		least = i + 1
	}
}

// pending reads "first-last number …", ascending.
func (p *parser) pending() (list []segment.Span) {
	least := uint64(0)
	for _, field := range strings.Fields(p.e.Attrs["Pending"]) {
		from, to, several := strings.Cut(field, "-")
		if !several {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 63)
		last, err2 := strconv.ParseUint(to, 10, 63)
		if err != nil || err2 != nil || first < least || last < first {
			p.fail("Pending")
			return nil
		}
		list = append(list, segment.Span{First: first, Last: last})
		least = last + 1
	}
	return list
}
