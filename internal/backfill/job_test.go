package backfill

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestValidate: what is wrong with a job is told, and all at once.
func TestValidate(t *testing.T) {
	pointer := topic.Key("json:/id")
	for name, c := range map[string]struct {
		edit func(*Job, *topic.Definition)
		want string
	}{
		"sound":            {func(*Job, *topic.Definition) {}, ""},
		"files":            {func(j *Job, _ *topic.Definition) { asFiles(j, "/data/a.csv") }, ""},
		"key of the topic": {func(j *Job, d *topic.Definition) { d.Key, j.Read.Key = pointer, "" }, ""},
		"two keys":         {func(_ *Job, d *topic.Definition) { d.Key = pointer }, "the topic has its own"},
		"id":               {func(j *Job, _ *topic.Definition) { j.ID = "A" }, "job id"},
		"long id":          {func(j *Job, _ *topic.Definition) { j.ID = strings.Repeat("a", 33) }, "job id"},
		"topic":            {func(j *Job, _ *topic.Definition) { j.Topic = "other" }, "for topic"},
		"incarnation":      {func(j *Job, _ *topic.Definition) { j.Incarnation = "x" }, "as it is now"},
		"no time":          {func(j *Job, _ *topic.Definition) { j.Created = time.Time{} }, "creation"},
		"author":           {func(j *Job, _ *topic.Definition) { j.By = "a\x1b[2Jb" }, "author"},
		"origin":           {func(j *Job, _ *topic.Definition) { j.Origin = strings.Repeat("o", maxText+1) }, "origin"},
		"endpoint":         {func(j *Job, _ *topic.Definition) { j.Endpoint = "http://S3:80/" }, "is kept as"},
		"no endpoint":      {func(j *Job, _ *topic.Definition) { j.Endpoint = "s3" }, "endpoint"},
		"no sources":       {func(j *Job, _ *topic.Definition) { j.Sources = nil }, "0 sources"},
		"empty source":     {func(j *Job, _ *topic.Definition) { j.Sources[0].Objects = nil }, "source 0 has no objects"},
		"name of a source": {func(j *Job, _ *topic.Definition) { j.Sources[1].Name = "lane.x" }, "source 1 is called"},
		"many sources":     {func(j *Job, _ *topic.Definition) { j.Sources = Divide(some(70), j.ID, 64); more(j) }, "65 sources"},
		"twice":            {func(j *Job, _ *topic.Definition) { j.Sources[1].Objects[0].Key = "in/c.csv" }, "there twice"},
		"bucket":           {func(j *Job, _ *topic.Definition) { j.Sources[0].Objects[0].Bucket = "../x" }, "bucket"},
		"key":              {func(j *Job, _ *topic.Definition) { j.Sources[0].Objects[0].Key = "a/../b" }, "segment"},
		"no ETag":          {func(j *Job, _ *topic.Definition) { j.Sources[0].Objects[0].ETag = "" }, "no proper ETag"},
		"hostile ETag":     {func(j *Job, _ *topic.Definition) { j.Sources[0].Objects[0].ETag = "a\r\nb" }, "no proper ETag"},
		"size":             {func(j *Job, _ *topic.Definition) { j.Sources[0].Objects[0].Size = -1 }, "size of -1"},
		"no format":        {func(j *Job, _ *topic.Definition) { j.Read.Format = "" }, "in which format"},
		"format":           {func(j *Job, _ *topic.Definition) { j.Sources[0].Objects[1].Format = "xls" }, `format "xls"`},
		"compression":      {func(j *Job, _ *topic.Definition) { j.Read.Compression = "lz4" }, `compression "lz4"`},
		"packed Parquet":   {func(j *Job, _ *topic.Definition) { j.Read.Format = rows.Parquet }, "unpack it"},
		"file, no host":    {func(j *Job, _ *topic.Definition) { asFiles(j, "/a"); j.Host = "" }, "of which host"},
		"object on a host": {func(j *Job, _ *topic.Definition) { j.Host = "h" }, "in a job about files"},
		"file and object":  {func(j *Job, _ *topic.Definition) { asFiles(j, "/a"); j.Sources[0].Objects[0].Key = "k" }, "a file and an object"},
		"relative path":    {func(j *Job, _ *topic.Definition) { asFiles(j, "a") }, "not absolute"},
		"unclean path":     {func(j *Job, _ *topic.Definition) { asFiles(j, "/a/../b") }, "not absolute and clean"},
		"path of no text":  {func(j *Job, _ *topic.Definition) { asFiles(j, "/a\xff") }, "no text"},
		"zone":             {func(j *Job, _ *topic.Definition) { j.Read.Zone = "Mars/Olympus" }, "not known"},
		"this host's zone": {func(j *Job, _ *topic.Definition) { j.Read.Zone = "Local" }, "another one on other machines"},
		"layout":           {func(j *Job, _ *topic.Definition) { j.Read.TimeLayout = "x" }, "layout"},
		"layout of nothing": {func(j *Job, _ *topic.Definition) {
			j.Read.Time, j.Read.From, j.Read.Until = "", time.Time{}, time.Time{}
		}, "no place of event times"},
		"where of nothing": {func(j *Job, _ *topic.Definition) { j.Read.Time, j.Read.TimeLayout, j.Read.Zone = "", "", "" }, "chosen by their event times"},
		"where":            {func(j *Job, _ *topic.Definition) { j.Read.From = j.Read.Until }, "no event time is from"},
		"place":            {func(j *Job, _ *topic.Definition) { j.Read.Key = "/a~2" }, "JSON pointer"},
		"header":           {func(j *Job, _ *topic.Definition) { j.Read.Headers = map[string]string{"": "/a"} }, "header"},
		"row":              {func(j *Job, _ *topic.Definition) { j.Read.MaxRow = rows.MostMaxRow + 1 }, "rows of"},
		"comma":            {func(j *Job, _ *topic.Definition) { j.Read.CSV.Comma = "\n" }, "divided"},
		"long comma":       {func(j *Job, _ *topic.Definition) { j.Read.CSV.Comma = ";;" }, "one byte"},
		"no names":         {func(j *Job, _ *topic.Definition) { j.Read.CSV.Names = nil }, "names for its columns"},
		"share":            {func(j *Job, _ *topic.Definition) { *j.Limits.MaxRejects = 1_000_001 }, "in a million"},
	} {
		t.Run(name, func(t *testing.T) {
			j := goldenJob()
			def := topic.Definition{Name: j.Topic, Incarnation: j.Incarnation, Key: topic.KeyHeader}
			c.edit(&j, &def)
			err := j.Validate(def)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.As(err, new(*JobError)) {
				t.Fatalf("error %v", err)
			}
			wantText(t, err, c.want)
		})
	}
	j := goldenJob()
	j.Sources = Divide(some(1000), "other", 5)
	for i := range j.Sources {
		for k := range j.Sources[i].Objects {
			j.Sources[i].Objects[k].ETag = ""
		}
	}
	var all *JobError
	if err := j.Validate(topic.Definition{Name: "x"}); !errors.As(err, &all) || all.Count != 1000+5+1 || len(all.Faults) != shownFaults {
		t.Errorf("%d faults, %d shown", all.Count, len(all.Faults))
	}
	wantText(t, all, "and 986 more")
}

func asFiles(j *Job, p string) {
	j.Host, j.Endpoint = "h", ""
	j.Sources = []Source{{Name: SourceName(j.ID, 0), Objects: []Object{{Path: p, ETag: "file-1", Size: 1}}}}
}

func more(j *Job) {
	j.Sources = append(j.Sources, Source{Name: SourceName(j.ID, 64), Objects: []Object{{Bucket: "box", Key: "last", ETag: "e"}}})
}

func TestReadOptions(t *testing.T) {
	r := goldenJob().Read
	want := rows.Options{Format: rows.NDJSON, Compression: rows.Gzip, MaxRow: 1 << 20, CSV: rows.CSVOptions{Comma: ';', Names: []string{"id", "<at>"}, NoHeader: true}}
	if diff := cmp.Diff(want, r.Options(Object{})); diff != "" {
		t.Error(diff)
	}
	want.Format, want.Compression = rows.CSV, rows.None
	if diff := cmp.Diff(want, r.Options(Object{Format: rows.CSV})); diff != "" {
		t.Error(diff)
	}
	k, err := r.Picker()
	if err != nil {
		t.Fatal(err)
	}
	p, err := k.Pick([]byte(`{"id":7,"at":1764554400000,"kind":"x"}`))
	if err != nil || string(p.Key) != "7" || !p.Time.Equal(time.UnixMilli(1764554400000)) || len(p.Headers) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestWithin(t *testing.T) {
	zero := time.Time{}
	for i, c := range []struct {
		from, until, event time.Time
		want               bool
	}{
		{zero, zero, zero, true},
		{zero, zero, dawn, true},
		{dawn, zero, zero, false},
		{dawn, zero, dawn, true},
		{dawn, zero, dawn.Add(-1), false},
		{zero, dawn, zero, false},
		{zero, dawn, dawn.Add(-1), true},
		{zero, dawn, dawn, false},
		{dawn, dawn.Add(2), dawn.Add(1), true},
	} {
		if got := (Read{From: c.from, Until: c.until}).Within(c.event); got != c.want {
			t.Errorf("case %d: %v", i, got)
		}
	}
}

func TestNames(t *testing.T) {
	for id, want := range map[string]bool{NewID(): true, "a": true, strings.Repeat("0", 32): true, "": false, "a.b": false, "a/b": false, "..": false, "ä": false} {
		if got := CheckID(id) == nil; got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
	if got := fmt.Sprint(Object{Bucket: "b", Key: "k"}, " ", Object{Path: "/p"}); got != "s3://b/k /p" {
		t.Error(got)
	}
	if n, bytes := goldenJob().Objects(); n != 3 || bytes != 171345 {
		t.Error(n, bytes)
	}
}
