package parquet

import (
	"testing"

	"pgregory.net/rapid"
)

// folded is what the log had of rows.
func folded(rows []Row) (records []Row) {
	for _, r := range rows {
		if n := len(records); n > 0 && records[n-1].Offset == r.Offset {
			continue
		}
		if r.Batch >= 0 {
			r.Batch, r.Value = NoBatch, nil
		}
		r.Error = ""
		records = append(records, r)
	}
	return records
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rows := genRows(40).Draw(rt, "rows")
		o := WriterOptions{GroupRows: rapid.IntRange(1, 50).Draw(rt, "rows of a group"), GroupBytes: rapid.Int64Range(100, 20_000).Draw(rt, "bytes of a group")}
		data, stats := write(rt, o, rows)
		r := open(rt, data)
		if d := diff(rows, rowsOf(t, r, Filter{})); d != "" {
			rt.Fatalf("rows: %s", d)
		}
		if d := diff(folded(rows), recordsOf(t, r, Filter{})); d != "" {
			rt.Fatalf("records: %s", d)
		}
		if r.Stats() != stats {
			rt.Fatalf("the footer says %+v, the writer %+v", r.Stats(), stats)
		}
		if n := uint64(len(folded(rows))); stats.Records != n || stats.Rows != uint64(len(rows)) {
			rt.Fatalf("%d rows, %d records became %+v", len(rows), n, stats)
		}
	})
}
