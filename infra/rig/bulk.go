package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
)

// DataEnv is the environment variable that names the folder of the large data.
const DataEnv = "SPILLWAY_DATA"

const (
	allFlights    = 3_000_000 // of FlightsFile in the folder of DataEnv
	sampleFlights = 6_000     // of the sample
	flightsFile   = "flights-3m.parquet"
	// KeyColumn is the column of a flight that is its key.
	KeyColumn = "origin"
	// packers is how many objects are packed and put at a time.
	packers = 2
)

// Bulk is real flights as files for backfills, and what each of their rows is: all
// of them, or a sample that is repeated.
type Bulk struct {
	Path string // the file, Parquet
	Laps int    // how often the files have all of its rows

	hashes []uint64 // of values, by row
	keys   []uint16 // index in names, by row
	names  []string
	index  map[string]uint16 // of names
	bytes  uint64            // of values, of one lap
}

// FullData is the file with all 3,000,000 flights. It is an error that says what to
// do if it is not there.
func FullData() (path string, err error) {
	path = filepath.Join(os.Getenv(DataEnv), flightsFile)
	if os.Getenv(DataEnv) == "" {
		err = fmt.Errorf("%s is not set", DataEnv)
	} else {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("this needs all %d flights: set %s to the folder that has %s, which vega-datasets on npm has: %w", allFlights, DataEnv, flightsFile, err)
	}
	return path, nil
}

// FullBulk is all 3,000,000 flights, as far as [FullData] has them.
func FullBulk() (*Bulk, error) {
	path, err := FullData()
	if err != nil {
		return nil, err
	}
	return loadBulk(path, allFlights, 1)
}

// SampleBulk is the sample of the flights in the source tree, so many times.
func SampleBulk(laps int) (*Bulk, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	return loadBulk(filepath.Join(root, "internal", "rows", "testdata", "flights.parquet"), sampleFlights, laps)
}

func loadBulk(path string, want, laps int) (*Bulk, error) {
	b := &Bulk{Path: path, Laps: laps, hashes: make([]uint64, 0, want), keys: make([]uint16, 0, want)}
	pick, err := rows.Pick{Key: KeyColumn}.Picker()
	if err != nil {
		return nil, err
	}
	err = b.each(func(value []byte) error {
		p, err := pick.Pick(value)
		if err != nil || len(p.Key) == 0 {
			return fmt.Errorf("%s, row %d: no flight: %w", path, len(b.hashes), err)
		}
		b.add(string(p.Key), value)
		return nil
	})
	if err == nil && len(b.hashes) != want {
		err = fmt.Errorf("%s has %d rows, and should have %d", path, len(b.hashes), want)
	}
	return b, err
}

func (b *Bulk) add(key string, value []byte) {
	n, known := b.index[key]
	if !known {
		if b.index == nil {
			b.index = map[string]uint16{}
		}
		n = uint16(len(b.names))
		b.index[key] = n
		b.names = append(b.names, key)
	}
	b.hashes, b.keys = append(b.hashes, xxhash.Sum64(value)), append(b.keys, n)
	b.bytes += uint64(len(value))
}

// Each gives the rows of one lap in their order, as JSON.
func (b *Bulk) Each(do func(key string, value []byte) error) error {
	n := 0
	return b.each(func(value []byte) error {
		key, _ := b.row(n)
		n++
		return do(key, value)
	})
}

// each reads the file.
func (b *Bulk) each(do func(value []byte) error) (err error) {
	f, err := os.Open(b.Path)
	if err != nil {
		return fmt.Errorf("open the flights: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	r, err := rows.Open(io.NewSectionReader(f, 0, info.Size()), rows.Options{Format: rows.Parquet})
	if err != nil {
		return fmt.Errorf("read %s: %w", b.Path, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		row, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", b.Path, err)
		case row.Rejected != "":
			return fmt.Errorf("%s, row %d: %s", b.Path, row.N, row.Rejected)
		}
		if err := do(row.Value); err != nil {
			return err
		}
	}
}

// Rows is how many rows the files have in all, in each of the two forms.
func (b *Bulk) Rows() int { return b.Laps * len(b.hashes) }

// Bytes is how many bytes the values of these have.
func (b *Bulk) Bytes() uint64 { return uint64(b.Laps) * b.bytes }

// row is what row n of all laps is.
func (b *Bulk) row(n int) (key string, hash uint64) {
	n %= len(b.hashes)
	return b.names[b.keys[n]], b.hashes[n]
}

// PutParquet puts the flights as Parquet, an object for each lap, and gives the rows
// that each object begins with, and that all end with.
func (b *Bulk) PutParquet(ctx context.Context, store *object.Store, bucket, prefix string) (*BulkObjects, error) {
	data, err := os.ReadFile(b.Path)
	if err != nil {
		return nil, fmt.Errorf("read the flights: %w", err)
	}
	o := &BulkObjects{Bulk: b, Bucket: bucket, Prefix: prefix}
	for lap := range b.Laps {
		o.add(fmt.Sprintf("%s%04d.parquet", prefix, lap), len(b.hashes))
		if err := put(ctx, store, o.Names[lap], data); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// PutNDJSON puts the same rows in the same order as gzip NDJSON in so many objects.
func (b *Bulk) PutNDJSON(ctx context.Context, store *object.Store, bucket, prefix string, parts int) (*BulkObjects, error) {
	o := &BulkObjects{Bulk: b, Bucket: bucket, Prefix: prefix}
	for part := range parts {
		o.add(fmt.Sprintf("%s%04d.ndjson.gz", prefix, part), (part+1)*b.Rows()/parts-part*b.Rows()/parts)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(packers)
	part := 0
	var lines bytes.Buffer
	flush := func() {
		name, data := o.Names[part], bytes.Clone(lines.Bytes())
		lines.Reset()
		part++
		g.Go(func() error { return putPacked(gctx, store, name, data) })
	}
	n := 0
	for range b.Laps {
		err := b.each(func(value []byte) error {
			lines.Write(value)
			lines.WriteByte('\n')
			if n++; n == o.Starts[part+1] {
				flush()
			}
			return gctx.Err()
		})
		if err != nil {
			return nil, errors.Join(g.Wait(), err)
		}
	}
	return o, g.Wait()
}

func putPacked(ctx context.Context, store *object.Store, n object.Name, lines []byte) error {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := z.Write(lines); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return put(ctx, store, n, packed.Bytes())
}

func put(ctx context.Context, store *object.Store, n object.Name, data []byte) error {
	_, err := store.Put(ctx, n, bytes.NewReader(data), int64(len(data)), object.PutOptions{})
	return err
}

// BulkObjects are the flights as objects.
type BulkObjects struct {
	*Bulk
	Bucket, Prefix string
	Names          []object.Name
	Starts         []int // the row that each object begins with, and one more: the end
}

func (o *BulkObjects) add(key string, count int) {
	if o.Starts == nil {
		o.Starts = []int{0}
	}
	o.Names = append(o.Names, object.Name{Bucket: o.Bucket, Key: key})
	o.Starts = append(o.Starts, o.Starts[len(o.Starts)-1]+count)
}

// URL is the prefix of all of them.
func (o *BulkObjects) URL() string { return object.Name{Bucket: o.Bucket, Key: o.Prefix}.String() }
