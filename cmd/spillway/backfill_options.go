package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/rows"
)

// backfillOptions say which objects become records, and how.
type backfillOptions struct {
	format, compression, delimiter string
	header                         bool
	columns                        []string
	key, time, layout, zone        string
	headers                        []string
	where, maxRow                  string
	filter                         backfill.Filter
	parallel                       int
	endpoint                       string
	limits                         limitOptions
}

// limitOptions are limits as they are written.
type limitOptions struct {
	rows           uint64
	bytes, rejects string
}

const (
	defaultParallel = 4
	// defaultRejects stops a job whose options are wrong before it has filled the topic
	// with rejected records, which nothing takes back.
	defaultRejects = "10%"
)

func (o *backfillOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.format, "format", "", "ndjson, csv, tsv, avro or parquet (default: as each name says)")
	f.StringVar(&o.compression, "compression", "", "none, gzip or zstd (default: as each name says)")
	f.StringVar(&o.delimiter, "delimiter", "", `of CSV: one character, or "tab" (default: a comma)`)
	f.BoolVar(&o.header, "header", true, "of CSV: the first line names the columns; =false: it is a row")
	f.StringSliceVar(&o.columns, "columns", nil, "of CSV: names of the columns, instead of the header's")
	f.StringVar(&o.key, "key", "", "column, or JSON pointer, of the record's key")
	f.StringVar(&o.time, "time", "", "column, or JSON pointer, of the event time")
	f.StringVar(&o.layout, "time-layout", "", "how it is written: rfc3339, unix_s, unix_ms, unix_us, unix_ns, or as in 2006-01-02 15:04:05 (default rfc3339)")
	f.StringVar(&o.zone, "zone", "", "time zone of times that do not say theirs, such as Europe/Berlin (default UTC)")
	f.StringArrayVar(&o.headers, "headers", nil, "name=place: a header of the record, and its column or JSON pointer; may be repeated")
	f.StringVar(&o.where, "where", "", "FROM..UNTIL: only rows with an event time from FROM on and before UNTIL; dates or times, either may be left out")
	f.StringArrayVar(&o.filter.Include, "include", nil, "only objects with such names, as *.csv or 2025/**/*.gz; may be repeated")
	f.StringArrayVar(&o.filter.Exclude, "exclude", nil, "no objects with such names; may be repeated")
	f.IntVar(&o.parallel, "parallel", defaultParallel, fmt.Sprintf("objects that are read at a time, 1 to %d", backfill.MaxSources))
	f.StringVar(&o.maxRow, "max-row", "", fmt.Sprintf("longer rows are rejected; at most %s (default %s)", humanize.IBytes(rows.MostMaxRow), humanize.IBytes(rows.DefaultMaxRow)))
	o.limits.flags(f, defaultRejects)
}

func (o *limitOptions) flags(f *pflag.FlagSet, rejects string) {
	f.Uint64Var(&o.rows, "rate-rows", 0, "rows per second at most; 0: any number")
	f.StringVar(&o.bytes, "rate-bytes", "", "bytes of rows per second at most, such as 10MB; 0: any number")
	f.StringVar(&o.rejects, "max-rejects", rejects, `stop when more of the rows are rejected, such as 1%; "any" is no limit`)
}

// limits reads them.
func (o limitOptions) limits() (l backfill.Limits, err error) {
	l.Rows = o.rows
	var wrong error
	l.Bytes, wrong = parseRateBytes(o.bytes)
	l.MaxRejects, err = parseShare(o.rejects)
	return l, errors.Join(wrong, err)
}

func parseRateBytes(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	rate, err := parseRate(text)
	if err != nil || rate > math.MaxInt64 {
		return 0, fmt.Errorf("--rate-bytes %.60q: want bytes per second, such as 10MB", text)
	}
	return uint64(rate), nil
}

// parseShare reads a share as millionths; nil: any.
func parseShare(text string) (*uint32, error) {
	if text == "any" {
		return nil, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(number, 64)
	if err != nil || !percent && share != 0 || !(share >= 0 && share <= 100) {
		return nil, fmt.Errorf(`--max-rejects %.60q: want a share such as 1%%, or "any"`, text)
	}
	millionths := uint32(math.Round(share * 10_000))
	return &millionths, nil
}

// as is how all objects are read, instead of as their names say.
func (o backfillOptions) as() (as backfill.As, err error) {
	as.Format, as.Compression = rows.Format(o.format), rows.Compression(o.compression)
	switch as.Format {
	case "", rows.NDJSON, rows.CSV, rows.TSV, rows.Avro, rows.Parquet:
	default:
		err = fmt.Errorf("--format %.60q: want ndjson, csv, tsv, avro or parquet", o.format)
	}
	switch as.Compression {
	case "", backfill.Unpacked, rows.Gzip, rows.Zstd:
	default:
		err = errors.Join(err, fmt.Errorf("--compression %.60q: want none, gzip or zstd", o.compression))
	}
	return as, err
}

// read says what of a row is what. It tells all that is wrong with the options.
func (o backfillOptions) read() (backfill.Read, error) {
	r := backfill.Read{Key: o.key, Time: o.time, TimeLayout: o.layout, Zone: o.zone}
	r.CSV.Names, r.CSV.NoHeader = o.columns, !o.header
	var errs [5]error
	if r.CSV.Comma, errs[0] = parseDelimiter(o.delimiter); !o.header && len(o.columns) == 0 {
		errs[1] = errors.New("--header=false: name the columns with --columns")
	}
	r.MaxRow, errs[2] = parseMaxRow(o.maxRow)
	r.Headers, errs[3] = parsePlaces(o.headers)
	r.From, r.Until, errs[4] = parseWhere(o.where, o.zone)
	err := errors.Join(errs[:]...)
	if err == nil {
		_, err = r.Picker()
	}
	if o.parallel < 1 || o.parallel > backfill.MaxSources {
		err = errors.Join(err, fmt.Errorf("--parallel %d: want 1 to %d", o.parallel, backfill.MaxSources))
	}
	return r, errors.Join(err, o.filter.Check())
}

func parseDelimiter(text string) (string, error) {
	switch {
	case text == "tab" || text == `\t`:
		return "\t", nil
	case len(text) > 1:
		return "", fmt.Errorf(`--delimiter %.60q: want one ASCII character, or "tab"`, text)
	}
	return text, nil
}

func parseMaxRow(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n < 1 || n > rows.MostMaxRow {
		return 0, fmt.Errorf("--max-row %.60q: want 1 to %d bytes, such as 1MiB", text, rows.MostMaxRow)
	}
	return int(n), nil
}

// parsePlaces reads where in a row the values of headers are.
func parsePlaces(flags []string) (places map[string]string, err error) {
	for _, text := range flags {
		name, place, ok := strings.Cut(text, "=")
		switch _, twice := places[name]; {
		case !ok || name == "" || place == "":
			err = errors.Join(err, fmt.Errorf("--headers %.60q: want name=place", text))
		case twice:
			err = errors.Join(err, fmt.Errorf("--headers: %.60q is there twice", name))
		case places == nil:
			places = map[string]string{name: place}
		default:
			places[name] = place
		}
	}
	return places, err
}

// parseWhere reads a range of event times. Dates are midnights in the zone.
func parseWhere(text, zone string) (from, until time.Time, err error) {
	if text == "" {
		return from, until, nil
	}
	where, err := time.LoadLocation(zone)
	if err != nil {
		return from, until, fmt.Errorf("--zone: %w", err)
	}
	first, last, ok := strings.Cut(text, "..")
	if !ok || first == "" && last == "" {
		return from, until, fmt.Errorf("--where %.60q: want FROM..UNTIL, such as 2026-01-01..2026-02-01", text)
	}
	from, err = parseBound(first, where)
	if err == nil {
		until, err = parseBound(last, where)
	}
	return from, until, err
}

func parseBound(text string, zone *time.Location) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.ParseInLocation(time.DateOnly, text, zone); err == nil {
		return day.UTC(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		err = fmt.Errorf("--where: %.60q is neither a date such as 2026-01-31 nor a time such as 2026-01-31T12:00:00Z", text)
	}
	return at.UTC(), err
}
