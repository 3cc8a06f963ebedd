package backfill

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/topic"
)

// JobError tells all that is wrong with a job that was to be made.
type JobError struct {
	Job    string
	Faults []string // the first of them
	Count  int      // of all
}

func (e *JobError) Error() string {
	s := "the job cannot be made: " + strings.Join(e.Faults, "; ")
	if more := e.Count - len(e.Faults); more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

// shownFaults is how many faults, or names, an error tells.
const shownFaults = 20

// faults collects what is wrong.
type faults struct {
	shown []string
	count int
}

func (f *faults) add(format string, args ...any) {
	if f.count++; len(f.shown) < shownFaults {
		f.shown = append(f.shown, fmt.Sprintf(format, args...))
	}
}

func (f *faults) addErr(err error) {
	if err != nil {
		f.add("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (f *faults) err() error {
	if f.count == 0 {
		return nil
	}
	return errors.New((&JobError{Faults: f.shown, Count: f.count}).Error())
}

func tooLarge(n int) string {
	return fmt.Sprintf("it has so many objects that its file would have %d bytes, of at most %d: split it by prefix", n, MaxFile)
}

// maxText bounds what is in a job for people.
const maxText = 2048

// Validate reports everything that is wrong with a job for a topic, as a
// [*JobError].
func (j Job) Validate(def topic.Definition) error {
	f := checkSources(j)
	f.addErr(CheckID(j.ID))
	if j.Topic != def.Name || j.Incarnation != def.Incarnation {
		f.add("it is for topic %.100q, not for %q as it is now", j.Topic, def.Name)
	}
	if j.Created.IsZero() {
		f.add("it has no time of creation")
	}
	for what, text := range map[string]string{"author": j.By, "origin": j.Origin, "schedule": j.Schedule, "host": j.Host} {
		if len(text) > maxText || !isText(text) {
			f.add("its %s is longer than %d bytes, or no text: %.60q", what, maxText, text)
		}
	}
	if endpoint, err := topic.ParseEndpoint(j.Endpoint); err != nil {
		f.addErr(err)
	} else if endpoint != j.Endpoint {
		f.add("its endpoint is kept as %q", endpoint)
	}
	f.addErr(j.Limits.Validate())
	j.checkReference(f)
	j.Read.check(f, def)
	if f.count == 0 {
		return nil
	}
	return &JobError{j.ID, f.shown, f.count}
}

// check finds what is wrong with how objects are to be read.
func (r Read) check(f *faults, def topic.Definition) {
	if _, err := r.Picker(); err != nil {
		f.addErr(err)
	}
	if p := def.Key.Pointer(); p != nil && r.Key != "" {
		f.add("the key's place is given as %.60q, but the topic has its own: %s", r.Key, def.Key)
	} else if p != nil && r.FixedKey != nil {
		f.add("one key is given for all rows, but the topic takes it from a place: %s", def.Key)
	}
	if r.FixedKey != nil && r.Key != "" {
		f.add("one key is given for all rows, and a place of keys too: %.60q", r.Key)
	}
	if r.Time == "" && (r.TimeLayout != "" || r.Zone != "") {
		f.add("there is a layout or a zone, but no place of event times")
	}
	switch bounded := !r.From.IsZero() || !r.Until.IsZero(); {
	case bounded && r.Time == "":
		f.add("rows are chosen by their event times, but have none: give its place")
	case !r.From.IsZero() && !r.Until.IsZero() && !r.From.Before(r.Until):
		f.add("no event time is from %s on and before %s", r.From.Format(timeLayout), r.Until.Format(timeLayout))
	}
	if r.MaxRow < 0 || r.MaxRow > rows.MostMaxRow {
		f.add("rows of %d bytes: allowed are 1 to %d", r.MaxRow, rows.MostMaxRow)
	}
	if len(r.CSV.Comma) > 1 {
		f.add("fields cannot be divided by %.20q: want one byte", r.CSV.Comma)
	}
	f.addErr(r.CSV.check(r.Options(Object{Format: rows.CSV})))
}

// check has rows look at the options, which has to read nothing for it.
func (c CSV) check(opts rows.Options) error {
	if c.Comma == "" && c.Names == nil && !c.NoHeader {
		return nil
	}
	opts.MaxRow = 0
	r, err := rows.Open(bytes.NewReader(nil), opts)
	if err != nil {
		return err
	}
	return r.Close()
}

const timeLayout = "2006-01-02T15:04:05.999999999Z07:00"

// Validate tells whether these can be limits.
func (l Limits) Validate() error {
	if l.MaxRejects != nil && *l.MaxRejects > 1_000_000 {
		return fmt.Errorf("a share of %d rejects in a million", *l.MaxRejects)
	}
	return nil
}

// checkSources finds what is wrong with a job's objects and their division.
func checkSources(j Job) *faults {
	f := &faults{}
	if n := len(j.Sources); n < 1 || n > MaxSources {
		f.add("it has %d sources: want 1 to %d, each with an object", n, MaxSources)
	}
	seen := map[Object]bool{}
	for i, s := range j.Sources {
		if want := SourceName(j.ID, i); s.Name != want {
			f.add("source %d is called %.60q, not %q", i, s.Name, want)
		}
		if len(s.Objects) == 0 {
			f.add("source %d has no objects", i)
		}
		for _, o := range s.Objects {
			j.checkObject(f, o)
			id := Object{Bucket: o.Bucket, Key: o.Key, Version: o.Version, Path: o.Path}
			if seen[id] {
				f.add("%.200q is there twice", o)
			}
			seen[id] = true
		}
	}
	return f
}

func (j Job) checkObject(f *faults, o Object) {
	switch {
	case o.Path != "" && j.Host == "":
		f.add("%.200q is a file, but it is not said of which host", o.Path)
	case o.Path == "" && j.Host != "":
		f.add("%.200q is an object, in a job about files", o)
	case o.Path != "" && (o.Bucket != "" || o.Key != "" || o.Version != ""):
		f.add("%.200q is a file and an object", o.Path)
	case o.Path != "":
		if !isPath(o.Path) {
			f.add("the path %.200q is not absolute and clean, or is no text", o.Path)
		}
	default:
		if err := o.Name().Check(); err != nil {
			f.add("%.200q: %v", o, err)
		}
	}
	if o.ETag == "" || len(o.ETag) > maxETag || strings.ContainsFunc(o.ETag, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' }) {
		f.add("%.200q has no proper ETag: %.60q", o, o.ETag)
	}
	if o.Size < 0 {
		f.add("%.200q has a size of %d", o, o.Size)
	}
	opts := j.Read.Options(o)
	f.addErr(checkKind(o, opts.Format, opts.Compression))
}

const maxETag = 1024

func checkKind(o Object, format rows.Format, packing rows.Compression) error {
	switch format {
	case rows.NDJSON, rows.CSV, rows.TSV, rows.Avro, rows.Parquet:
	case "":
		return fmt.Errorf("%.200q: it is not said in which format it is", o)
	default:
		return fmt.Errorf("%.200q: format %.20q is not known", o, format)
	}
	switch {
	case packing != rows.None && packing != rows.Gzip && packing != rows.Zstd:
		return fmt.Errorf("%.200q: compression %.20q is not known", o, packing)
	case packing != rows.None && format == rows.Parquet:
		return fmt.Errorf("%.200q: %s", o, packedParquet)
	}
	return nil
}

const packedParquet = "a Parquet file that is packed as a whole cannot be read: unpack it"

// isPath accepts what can be kept in JSON and shown to people as it is.
func isPath(p string) bool { return filepath.IsAbs(p) && filepath.Clean(p) == p && isText(p) }

// isText tells whether s is UTF-8 without control characters.
func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
