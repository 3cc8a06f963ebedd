package segment

import (
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

// ManifestFormat is the format of the manifests that are written now.
const ManifestFormat = 1

// MaxManifestFiles bounds the data files of a segment, and its dropped ranges.
const MaxManifestFiles = 1 << 16

// Manifest says which Parquet files hold what a sealed segment's chunks held. It is
// created once, exclusively, and never changed: files in the segment's data folder
// that it does not name are garbage (rule 35).
type Manifest struct {
	Format  int             `json:"format"` // ManifestFormat
	Segment topic.SegmentID `json:"segment"`
	Base    uint64          `json:"base"` // offset of the first record that there was
	End     uint64          `json:"end"`  // the Base of the seal
	Seal    uint64          `json:"seal"` // number of the seal's entry
	Records uint64          `json:"records"`
	Rows    uint64          `json:"rows"`           // of all files: a batch reference has one for each of its rows
	Bytes   uint64          `json:"bytes"`          // of the records, before compression, as their chunks counted them
	First   time.Time       `json:"first,omitzero"` // append times; zero without records
	Last    time.Time       `json:"last,omitzero"`
	Created time.Time       `json:"created"` // by the clock of whoever made it
	// Dropped and Files are in the order of the offsets, and cover all from Base to
	// End, once.
	Dropped []DroppedRange `json:"dropped,omitempty"`
	Files   []DataFile     `json:"files"`
}

// DataFile is one Parquet file of a segment. Two that follow each other share an
// offset if the rows of its batch go on from one to the other.
type DataFile struct {
	Name    string    `json:"name"` // see [DataFileName]
	Size    int64     `json:"size"`
	Digest  string    `json:"digest"` // see [DataFileDigest]
	First   uint64    `json:"first"`  // offsets
	Last    uint64    `json:"last"`
	Records uint64    `json:"records"` // offsets of which there are rows in it
	Rows    uint64    `json:"rows"`
	From    time.Time `json:"from"` // the earliest append time in it
	To      time.Time `json:"to"`   // and the latest
}

// DroppedRange is records that could not be read and that an operator gave up.
// Readers get a *TrimmedError there.
type DroppedRange struct {
	First  uint64 `json:"first"` // offsets
	Last   uint64 `json:"last"`
	Reason string `json:"reason"`
}

// ManifestError says what is wrong with a manifest. It matches filer.ErrCorrupt.
type ManifestError struct{ Path, Reason string }

func (e *ManifestError) Error() string { return fmt.Sprintf("manifest %s: %s", e.Path, e.Reason) }

// Is makes it match filer.ErrCorrupt.
func (e *ManifestError) Is(target error) bool { return target == filer.ErrCorrupt }

// ManifestFormatError says that a manifest was written by a later version of this
// program, which has to be used to read the segment.
type ManifestFormatError struct {
	Path   string
	Format int
}

func (e *ManifestFormatError) Error() string {
	return fmt.Sprintf("manifest %s has the format %d, and this version knows no later one than %d", e.Path, e.Format, ManifestFormat)
}

const digestName = "sha256:"

// DataFileName is the name of a data file: of its first offset, its last, and its
// bytes.
func DataFileName(first, last uint64, sum [32]byte) string {
	return fmt.Sprintf("%020d-%020d-%x.parquet", first, last, sum[:8])
}

// DataFileDigest is how a manifest writes the SHA-256 of a file's bytes.
func DataFileDigest(sum [32]byte) string { return digestName + hex.EncodeToString(sum[:]) }

// FileAt is the first data file that has rows of an offset.
func (m *Manifest) FileAt(offset uint64) (DataFile, bool) {
	i := sort.Search(len(m.Files), func(i int) bool { return m.Files[i].Last >= offset })
	if i == len(m.Files) || m.Files[i].First > offset {
		return DataFile{}, false
	}
	return m.Files[i], true
}

// droppedAt is the dropped range that an offset lies in, with those that follow it
// without a gap.
func (m *Manifest) droppedAt(offset uint64) (DroppedRange, bool) {
	i := sort.Search(len(m.Dropped), func(i int) bool { return m.Dropped[i].Last >= offset })
	if i == len(m.Dropped) || m.Dropped[i].First > offset {
		return DroppedRange{}, false
	}
	d := m.Dropped[i]
	for _, next := range m.Dropped[i+1:] {
		if next.First != d.Last+1 {
			break
		}
		d.Last = next.Last
	}
	return d, true
}

// Validate tells the first thing that is wrong with a manifest: that it does not
// cover the segment's offsets, each once, or that what it says of a file cannot be.
func (m *Manifest) Validate() error {
	switch {
	case m.Format != ManifestFormat:
		return fmt.Errorf("it has the format %d", m.Format)
	case m.Base > m.End:
		return fmt.Errorf("it begins at offset %d and ends at %d", m.Base, m.End)
	case len(m.Files) > MaxManifestFiles || len(m.Dropped) > MaxManifestFiles:
		return fmt.Errorf("it names %d files and %d dropped ranges, and at most %d are allowed", len(m.Files), len(m.Dropped), MaxManifestFiles)
	case m.Last.Before(m.First):
		return fmt.Errorf("its last record is of %s, before the first", formatTime(m.Last))
	case m.Created.IsZero():
		return fmt.Errorf("it does not say when it was created")
	}
	if err := validTimes(m.First, m.Last, m.Created); err != nil {
		return err
	}
	return m.validateParts()
}

// validateParts walks through files and dropped ranges by their offsets.
func (m *Manifest) validateParts() error {
	next, records, rows := m.Base, uint64(0), uint64(0)
	shared := false // what comes before next is a file
	files, dropped := m.Files, m.Dropped
	for len(files) > 0 || len(dropped) > 0 {
		switch {
		case len(dropped) > 0 && dropped[0].First == next:
			d := dropped[0]
			if err := d.validate(m.End); err != nil {
				return err
			}
			next, dropped, shared = d.Last+1, dropped[1:], false
		case len(files) > 0 && (files[0].First == next || shared && files[0].First == next-1):
			f := &files[0]
			if err := f.validate(m.End); err != nil {
				return fmt.Errorf("file %.100q: %w", f.Name, err)
			}
			if f.Rows > 1<<62-rows {
				return fmt.Errorf("file %.100q: it has %d rows, which cannot be", f.Name, f.Rows)
			}
			records, rows = records+f.Last+1-next, rows+f.Rows
			next, files, shared = f.Last+1, files[1:], true
		default:
			return m.gap(next, files, dropped)
		}
	}
	switch {
	case next != m.End:
		return fmt.Errorf("the segment ends at offset %d, and nothing covers those from %d on", m.End, next)
	case records != m.Records || rows != m.Rows:
		return fmt.Errorf("its files have %d records in %d rows; it says %d in %d", records, rows, m.Records, m.Rows)
	}
	return m.validateNames()
}

func (m *Manifest) gap(next uint64, files []DataFile, dropped []DroppedRange) error {
	if len(dropped) == 0 || len(files) > 0 && files[0].First < dropped[0].First {
		return fmt.Errorf("file %.100q begins at offset %d, where %d comes next", files[0].Name, files[0].First, next)
	}
	return fmt.Errorf("a dropped range begins at offset %d, where %d comes next", dropped[0].First, next)
}

// validateNames finds files that are there twice, which only those can be that
// share their one offset.
func (m *Manifest) validateNames() error {
	seen := map[string]bool{}
	for i, f := range m.Files {
		if i > 0 && f.First != m.Files[i-1].Last {
			clear(seen)
		}
		if seen[f.Name] {
			return fmt.Errorf("file %.100q: it is named twice", f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

func (d DroppedRange) validate(end uint64) error {
	switch {
	case d.First > d.Last || d.Last >= end:
		return fmt.Errorf("it drops the offsets %d to %d of a segment that ends at %d", d.First, d.Last, end)
	case d.Reason == "" || len(d.Reason) > maxReason || !utf8.ValidString(d.Reason):
		return fmt.Errorf("it drops the offsets %d to %d for the reason %.100q: want 1 to %d bytes of text", d.First, d.Last, d.Reason, maxReason)
	}
	return nil
}

func (f *DataFile) validate(end uint64) error {
	hexes, ok := cutDigest(f.Digest)
	switch {
	case f.First > f.Last || f.Last >= end:
		return fmt.Errorf("it holds the offsets %d to %d of a segment that ends at %d", f.First, f.Last, end)
	case !ok:
		return fmt.Errorf("its digest is %.100q", f.Digest)
	case f.Name != fmt.Sprintf("%020d-%020d-%s.parquet", f.First, f.Last, hexes[:16]):
		return fmt.Errorf("its name does not follow from its offsets %d to %d and its digest %s", f.First, f.Last, f.Digest)
	case f.Size <= 0:
		return fmt.Errorf("it has %d bytes", f.Size)
	case f.Records-1 != f.Last-f.First || f.Rows < f.Records:
		return fmt.Errorf("it has %d records in %d rows, for the offsets %d to %d", f.Records, f.Rows, f.First, f.Last)
	case f.To.Before(f.From):
		return fmt.Errorf("its latest record is of %s, before its earliest", formatTime(f.To))
	}
	return validTimes(f.From, f.To)
}

// validTimes finds times that JSON cannot tell.
func validTimes(times ...time.Time) error {
	for _, t := range times {
		if year := t.UTC().Year(); year < 0 || year > 9999 {
			return fmt.Errorf("it has a time in the year %d", year)
		}
	}
	return nil
}

// cutDigest gives the 64 lower-case hexadecimal digits of a digest.
func cutDigest(digest string) (string, bool) {
	hexes := digest[min(len(digest), len(digestName)):]
	sum, err := hex.DecodeString(hexes)
	if err != nil || len(sum) != 32 {
		return "", false
	}
	return hexes, digest == DataFileDigest([32]byte(sum))
}

// normal is the manifest with all times in UTC, so that its bytes do not depend on
// where it was made.
func (m Manifest) normal() Manifest {
	m.First, m.Last, m.Created = m.First.UTC(), m.Last.UTC(), m.Created.UTC()
	m.Files, m.Dropped = slices.Clone(m.Files), slices.Clone(m.Dropped)
	for i := range m.Files {
		m.Files[i].From, m.Files[i].To = m.Files[i].From.UTC(), m.Files[i].To.UTC()
	}
	return m
}
