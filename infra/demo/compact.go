package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/dustin/go-humanize"
)

// tableFiles is what `spillway table files --json` prints.
type tableFiles struct {
	Of    string `json:"of"` // "table" or "manifests"
	Table string `json:"table"`
	Rows  int    `json:"rows"`
	Bytes uint64 `json:"bytes"`
	Files []struct {
		URL string `json:"url"`
	} `json:"files"`
}

func (f *tableFiles) urls() []string {
	urls := make([]string, len(f.Files))
	for i, file := range f.Files {
		urls[i] = file.URL
	}
	return urls
}

// compact makes Parquet and a table of all that there is, has the chunks deleted, and
// then verifies and reads as before.
func (d *demo) compact(ctx context.Context) (err error) {
	d.step("seal what is live, rewrite all of it as Parquet, commit that to an Iceberg table, and delete the chunks at once "+
		"(spillway compact %s --roll --grace 0s)", topicName)
	out, err := d.env.CLI(ctx, "compact", topicName, "--roll", "--grace", "0s")
	d.sayAll(out)
	if err != nil {
		return err
	}
	if out, err = d.env.CLI(ctx, "table", "files", topicName, "--json"); err != nil {
		return err
	}
	if err := json.Unmarshal(out, &d.table); err != nil {
		return fmt.Errorf("spillway table files printed no list: %w", err)
	}
	d.say("The table %s has %s rows in %d files, %s:", d.table.Table, humanize.Comma(int64(d.table.Rows)), len(d.table.Files), humanize.IBytes(d.table.Bytes))
	for _, url := range d.table.urls()[:min(2, len(d.table.Files))] {
		d.say("  %s", url)
	}
	if d.table.Of != "table" || d.table.Rows != d.read+d.rows {
		return fmt.Errorf("the %s has %d rows of %d records", d.table.Of, d.table.Rows, d.read+d.rows)
	}
	chunks, err := d.chunks(ctx)
	if err != nil {
		return err
	}
	if len(chunks) > 0 {
		return fmt.Errorf("%d chunks are still there", len(chunks))
	}
	d.say("No chunk is left. The log and the table are one copy; verify, from the Parquet files alone:")
	if out, err = d.verified(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	d.say("ok, %s records", humanize.Comma(int64(d.read+d.rows)))
	return nil
}
