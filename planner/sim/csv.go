package sim

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// MaxRows is how many lines a trace can have.
const MaxRows = 2_000_000

// maxLine bounds what is read for one line.
const maxLine = 4096

// Read reads a trace from CSV. The first line names the columns, in any order:
//
//	seconds  since any start; the smallest comes first
//	bytes    per second, from then on until the next time
//	records  per second
//	lo, hi   optional, both: the slots that the load falls on, evenly; empty: all
//
// Lines of the same time add up. The last time is the end of the trace: its load
// never comes. Errors are *[TraceError], or those of the reader.
func Read(r io.Reader) (Trace, error) {
	lines := &lineReader{r: bufio.NewReaderSize(r, maxLine)}
	header, err := lines.next()
	if err == io.EOF { //nolint:errorlint // the reader's contract is io.EOF itself
		return Trace{}, &TraceError{Err: errors.New("it is empty; the first line names the columns, seconds,bytes,records")}
	}
	if err != nil {
		return Trace{}, err
	}
	c, err := columnsOf(header)
	if err != nil {
		return Trace{}, &TraceError{lines.n, err}
	}
	b := traceBuilder{}
	for {
		fields, err := lines.next()
		if err == io.EOF { //nolint:errorlint // as above
			break
		}
		if err != nil {
			return Trace{}, err
		}
		at, part, err := c.parse(fields)
		if err == nil {
			err = b.add(at, part)
		}
		if err != nil {
			return Trace{}, &TraceError{lines.n, err}
		}
	}
	b.step()
	if err := b.trace.check(); err != nil {
		return Trace{}, &TraceError{Err: err}
	}
	return b.trace, nil
}

// lineReader reads fields line by line, in bounded memory.
type lineReader struct {
	r *bufio.Reader
	n int // line
}

// next gives the fields of the next line that is not empty. Lines are taken apart
// one by one, so that a quote that is never closed ends with its line.
func (l *lineReader) next() ([]string, error) {
	for {
		line, err := l.r.ReadSlice('\n')
		l.n++
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, &TraceError{l.n, fmt.Errorf("it has more than %d bytes", maxLine)}
		case err != nil && err != io.EOF: //nolint:errorlint // the reader's contract is io.EOF itself
			return nil, fmt.Errorf("read the trace: %w", err)
		case err != nil && len(line) == 0:
			return nil, io.EOF
		case l.n > MaxRows:
			return nil, &TraceError{l.n, fmt.Errorf("a trace has at most %d lines", MaxRows)}
		}
		if l.n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		fields, err := fieldsOf(line)
		if err != nil {
			return nil, &TraceError{l.n, err}
		}
		return fields, nil
	}
}

// fieldsOf takes a line apart.
func fieldsOf(line []byte) ([]string, error) {
	if !bytes.ContainsRune(line, '"') { // as good as always, and much faster
		return strings.Split(strings.TrimRight(string(line), "\r\n"), ","), nil
	}
	r := csv.NewReader(bytes.NewReader(line))
	r.TrimLeadingSpace = true
	fields, err := r.Read()
	var bad *csv.ParseError
	if errors.As(err, &bad) {
		err = bad.Err // its line number is that within the line
	}
	return fields, err
}

// columns are the places of the columns in a line, -1 where there is none.
type columns struct{ seconds, bytes, records, lo, hi, n int }

func columnsOf(header []string) (c columns, err error) {
	c = columns{-1, -1, -1, -1, -1, len(header)}
	places := map[string]*int{"seconds": &c.seconds, "bytes": &c.bytes, "records": &c.records, "lo": &c.lo, "hi": &c.hi}
	for i, name := range header {
		place := places[strings.ToLower(strings.TrimSpace(name))]
		switch {
		case place == nil:
			return c, fmt.Errorf("column %.40q is none of seconds, bytes, records, lo, hi", name)
		case *place >= 0:
			return c, fmt.Errorf("column %q is there twice", name)
		}
		*place = i
	}
	for _, name := range []string{"seconds", "bytes", "records"} {
		if *places[name] < 0 {
			return c, fmt.Errorf("column %s is missing; the first line names the columns, seconds,bytes,records", name)
		}
	}
	if (c.lo < 0) != (c.hi < 0) {
		return c, errors.New("columns lo and hi go together")
	}
	return c, nil
}

// parse reads a line.
func (c columns) parse(fields []string) (at time.Duration, p Part, err error) {
	if len(fields) != c.n {
		return 0, p, fmt.Errorf("it has %d fields, want %d", len(fields), c.n)
	}
	number := func(name string, i int) float64 {
		v, bad := strconv.ParseFloat(strings.TrimSpace(fields[i]), 64)
		if (bad != nil || !(v >= 0) || math.IsInf(v, 0)) && err == nil {
			err = fmt.Errorf("%s is %.40q: want a number, 0 or more", name, fields[i])
		}
		return v
	}
	seconds := number("seconds", c.seconds)
	p.Range, p.Rate = topic.Full, planner.Rate{Bytes: number("bytes", c.bytes), Records: number("records", c.records)}
	if c.lo >= 0 && strings.TrimSpace(fields[c.lo]+fields[c.hi]) != "" {
		lo, hi := number("lo", c.lo), number("hi", c.hi)
		if err == nil && (lo >= hi || hi > topic.Slots || lo != math.Trunc(lo) || hi != math.Trunc(hi)) {
			err = fmt.Errorf("slots %s to %s: want lo < hi, at most %d", fields[c.lo], fields[c.hi], topic.Slots)
		}
		p.Range = topic.Range{Lo: uint32(lo), Hi: uint32(hi)}
	}
	if err == nil && seconds > 1e10-1 { // beyond it a Duration ends
		err = fmt.Errorf("seconds is %s: want less than 1e10", fields[c.seconds])
	}
	if err == nil {
		err = checkRate(p.Rate)
	}
	return time.Duration(seconds * float64(time.Second)), p, err
}

// traceBuilder puts lines together.
type traceBuilder struct {
	trace Trace
	at    time.Duration
	parts []Part // of the time at hand
}

func (b *traceBuilder) add(at time.Duration, p Part) error {
	if len(b.parts) > 0 && at != b.at {
		if at < b.at {
			return fmt.Errorf("%v seconds come after %v: times ascend", at.Seconds(), b.at.Seconds())
		}
		b.step()
		if at-b.trace.Steps[0].At > MaxLength {
			return fmt.Errorf("it is %s after the first time: a trace lasts at most %s", at-b.trace.Steps[0].At, MaxLength)
		}
	}
	b.at, b.parts = at, append(b.parts, p)
	return nil
}

// step ends the time at hand.
func (b *traceBuilder) step() {
	if len(b.parts) == 0 {
		return
	}
	s := Step{At: b.at, Rate: b.parts[0].Rate}
	if !slices.ContainsFunc(b.parts, func(p Part) bool { return p.Range != topic.Full }) {
		for _, p := range b.parts[1:] {
			s.Rate = s.Plus(p.Rate)
		}
	} else {
		s.Where, s.Rate = NewProfile(b.parts...)
	}
	b.trace.Steps, b.parts = append(b.trace.Steps, s), b.parts[:0]
}
