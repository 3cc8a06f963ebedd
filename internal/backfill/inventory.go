package backfill

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
)

// inventory is the manifest.json of an S3 inventory: which files list the objects of
// a bucket.
type inventory struct {
	Destination string `json:"destinationBucket"` // its ARN
	Format      string `json:"fileFormat"`
	Schema      string `json:"fileSchema"` // columns, with commas between
	Files       []struct {
		Key string `json:"key"`
		MD5 string `json:"MD5checksum"`
	} `json:"files"`
}

// inventory gives the objects that an inventory lists, without those that were
// deleted and versions that are not current. Their names are all that is taken from
// it, since it is of yesterday.
func (m *manifest) inventory(ctx context.Context, inv inventory) (names []object.Name, err error) {
	if !strings.EqualFold(inv.Format, "CSV") {
		return nil, m.fault("its files are %.20q, and only CSV is read", inv.Format)
	}
	bucket := inv.Destination[strings.LastIndexByte(inv.Destination, ':')+1:]
	columns := strings.Split(inv.Schema, ",")
	for i, c := range columns {
		columns[i] = strings.TrimSpace(c)
	}
	for _, f := range inv.Files {
		n := object.Name{Bucket: bucket, Key: f.Key}
		data, err := get(ctx, m.endpoint, n, n.String())
		if err != nil {
			return nil, err
		}
		if sum := md5.Sum(data); f.MD5 != "" && !strings.EqualFold(hex.EncodeToString(sum[:]), f.MD5) {
			return nil, m.fault("its file %q is another one: the MD5 sums differ", clip(n.String()))
		}
		if names, err = m.listed(names, n, data, columns); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// inventoryLine is what counts of a line. Columns that it has not are empty.
type inventoryLine struct {
	Bucket, Key, VersionID   string
	IsLatest, IsDeleteMarker string
}

// listed adds what a file of an inventory lists.
func (m *manifest) listed(names []object.Name, file object.Name, data []byte, columns []string) ([]object.Name, error) {
	packing := rows.None
	if bytes.HasPrefix(data, []byte("\x1F\x8B")) {
		packing = rows.Gzip
	}
	r, err := rows.Open(bytes.NewReader(data), rows.Options{
		Format: rows.CSV, Compression: packing, CSV: rows.CSVOptions{Names: columns, NoHeader: true},
	})
	if err != nil {
		return nil, m.fault("its schema %.200q: %v", strings.Join(columns, ","), err)
	}
	defer r.Close() //nolint:errcheck // read-only
	for {
		row, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return names, nil
		case err != nil:
			return nil, m.fault("its file %q: %v", clip(file.String()), err)
		}
		place := fmt.Sprintf("row %d of %s", row.N, clip(file.String()))
		var l inventoryLine
		if row.Rejected != "" {
			m.faults.add("%s: %s", place, row.Rejected)
			continue
		}
		if err := json.Unmarshal(row.Value, &l); err != nil {
			return nil, m.fault("%s: %v", place, err)
		}
		if l.IsDeleteMarker == "true" || l.IsLatest == "false" {
			m.old++
			continue
		}
		key, err := url.QueryUnescape(l.Key)
		if err != nil {
			m.faults.add("%s: the key %q is not as in URLs", place, clip(l.Key))
			continue
		}
		if m.size += len(l.Bucket) + len(key); m.size > maxManifest {
			return nil, m.fault("it names more objects than a job can have: split it")
		}
		if l.VersionID == "null" { // it was put while the bucket had no versions
			l.VersionID = ""
		}
		if n, ok := m.name(place, object.Scheme+l.Bucket+"/"+key, l.VersionID); ok {
			names = append(names, n)
		}
	}
}
