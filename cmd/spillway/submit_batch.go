package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/expand"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/rows"
)

// batchOptions say that the objects of a call are files of records.
type batchOptions struct {
	batch, expand, count bool
	format, delimiter    string
	columns              []string
	noHeader             bool

	given client.Batch // what of it holds for all objects; no Format: their names say it
}

func (o *batchOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.batch, "batch", false, "the objects are files of many records, which readers expand")
	f.StringVar(&o.format, "format", "", "of --batch: ndjson, csv, tsv, avro or parquet, with +gzip or +zstd (default: as the names say)")
	f.StringVar(&o.delimiter, "delimiter", "", "of --batch: what divides the fields of CSV (default: a comma)")
	f.StringSliceVar(&o.columns, "columns", nil, "of --batch: names of the columns of CSV (default: its header's)")
	f.BoolVar(&o.noHeader, "no-header", false, "of --batch: the first line of CSV is a row; needs --columns")
	f.BoolVar(&o.count, "count", false, "of --batch: read the objects, and note how many records each holds")
	f.BoolVar(&o.expand, "expand", false, "of --batch: the rows are to become records of the topic")
}

func (o *batchOptions) check() error {
	if !o.batch {
		if o.format != "" || o.delimiter != "" || o.columns != nil || o.noHeader || o.count || o.expand {
			return errors.New("--format, --delimiter, --columns, --no-header, --count and --expand are for --batch")
		}
		return nil
	}
	if o.format != "" {
		var err error
		if o.given, err = ref.ParseRows(o.format); err != nil {
			return fmt.Errorf("--format: %w", err)
		}
	}
	o.given.CSV = client.CSVOptions{Comma: o.delimiter, Names: o.columns, NoHeader: o.noHeader}
	o.given.Expand = o.expand
	if o.format == "" {
		return nil
	}
	return o.given.Check()
}

// of is how an object is read: as its line in the list says, else as the call says, else
// as its name says. nil: it is one payload.
func (o *batchOptions) of(l listed, name string) (*client.Batch, error) {
	b := o.given
	kind := client.Batch{Format: b.Format, Compression: b.Compression}
	var err error
	switch {
	case l.rows != "":
		kind, err = ref.ParseRows(l.rows)
	case !o.batch:
		return nil, nil
	case o.format == "":
		kind, err = ref.BatchNamed(name)
	}
	b.Format, b.Compression = kind.Format, kind.Compression
	if err == nil {
		err = b.Check()
	}
	if err != nil {
		return nil, &functions.UsageError{Err: fmt.Errorf("%s: %w", l.URL, err)}
	}
	return &b, nil
}

// heavy is how many objects are read, or uploaded, at a time: each takes memory.
const heavy = 2

// count reads an object that is on S3 to count its records.
func (l *looker) count(ctx context.Context, s *seen) error {
	if s.Batch == nil || !l.options.count {
		return nil
	}
	if err := l.heavy.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.heavy.Release(1)
	f := record.Ref{URL: s.URL, Size: s.Size, ETag: s.ETag, Version: s.Version, SHA256: s.SHA256}
	if s.Records > 0 {
		f.Records = &s.Records
	}
	return l.counted(s, s.count.Read(ctx, l.store, f, *s.Batch))
}

// counted takes note of a count.
func (l *looker) counted(s *seen, err error) error {
	switch {
	case err != nil && expand.Definite(err):
		return &functions.UsageError{Err: fmt.Errorf("%s: %w", s.URL, err)}
	case err != nil:
		return err
	}
	s.Records = int64(s.count.Rows)
	return nil
}

// isFile tells a path of this machine from an object's URL.
func isFile(arg string) bool { return !strings.Contains(arg, "://") }

// localFile is a file as [rows.File].
type localFile struct {
	*os.File
	info os.FileInfo
}

func openLocal(path string) (localFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return localFile{}, &functions.UsageError{Err: fmt.Errorf("%w; an object is named as s3://bucket/key", err)}
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	if err != nil {
		return localFile{}, &functions.UsageError{Err: errors.Join(err, f.Close())}
	}
	return localFile{f, info}, nil
}

// Size implements [rows.File].
func (f localFile) Size() int64 { return f.info.Size() }

// file looks at a file of this machine, and uploads it unless nothing is to be done.
func (l *looker) file(ctx context.Context, s *seen) error {
	f, err := openLocal(s.file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read-only
	s.URL, s.Size, s.modified = s.file, f.Size(), f.info.ModTime()
	if s.Batch, err = l.options.of(s.listed, filepath.Base(s.file)); err != nil {
		return err
	}
	if err := l.heavy.Acquire(ctx, 1); err != nil {
		return err
	}
	defer l.heavy.Release(1)
	if s.Batch != nil && l.options.count {
		if err := l.counted(s, countLocal(ctx, f, *s.Batch, &s.count)); err != nil {
			return err
		}
	}
	if l.dry {
		return nil
	}
	up, err := l.objects.Upload(ctx, l.topic, f, f.Size())
	if err != nil {
		return fmt.Errorf("%s: %w", s.file, err)
	}
	up.Batch, up.Records = s.Batch, s.Records
	s.Reference = up
	return nil
}

// countLocal counts the records of a file until ctx ends.
func countLocal(ctx context.Context, f rows.File, b client.Batch, c *expand.Count) error {
	r, err := expand.Local(untilDone{f, ctx}, b)
	if err != nil {
		return err
	}
	return errors.Join(c.All(r), r.Close())
}

// untilDone is a file that cannot be read when its context has ended.
type untilDone struct {
	rows.File
	ctx context.Context // an io.ReaderAt has no other place for it
}

func (f untilDone) ReadAt(p []byte, off int64) (int, error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.File.ReadAt(p, off)
}

// tellCount says of an object which of its rows cannot be taken.
func (a *app) tellCount(s seen) {
	if s.count.Rejected > 0 {
		a.note("%s: %d of its %d rows cannot be taken, the first, row %d: %s", cmp.Or(s.file, s.URL), s.count.Rejected, s.count.Rows, s.count.First, s.count.Reason)
	}
}
