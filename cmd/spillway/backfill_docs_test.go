package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

// shownJob stands for the id of the last job in the document.
const shownJob = "3k9xq0v7m2ab"

// TestBackfillGuide runs each command that docs/BACKFILL.md shows, in its order, as its
// readers would, on real flights.
func TestBackfillGuide(t *testing.T) {
	stack := devtest.Stack(t)
	dir := t.TempDir()
	flights := map[string]string{"flights.ndjson.gz": "../../testdata/flights.ndjson.gz", "flights.parquet": "../../internal/rows/testdata/flights.parquet"}
	client := s3.New(s3.Options{
		BaseEndpoint: &stack.Info.S3.URL, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(stack.Info.S3.AccessKey, stack.Info.S3.SecretKey, ""),
	})
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("exports")}); err != nil {
		t.Fatal(err)
	}
	for name, path := range flights {
		data := readText(t, path)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		key := "flights/" + strings.Replace(name, "flights", "2001-01", 1)
		if _, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("exports"), Key: &key, Body: strings.NewReader(data)}); err != nil {
			t.Fatal(err)
		}
	}
	env := append(os.Environ(), "SPILLWAY_STACK="+stack.Info.Dir, "SPILLWAY_BUCKET=guide") // away from the jobs of other tests
	job, ran := "", 0
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?\n)```$").FindAllStringSubmatch(readText(t, "../../docs/BACKFILL.md"), -1) {
		for line := range strings.Lines(m[1]) {
			cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", strings.ReplaceAll(line, shownJob, job))
			cmd.Dir, cmd.Env = dir, env
			out, err := cmd.Output()
			if err != nil {
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					out = append(out, exit.Stderr...)
				}
				t.Fatalf("%s%v\n%s", line, err, out)
			}
			ran++
			if made := regexp.MustCompile(`(?m)^job (\S+) of topic`).FindSubmatch(out); made != nil {
				job = string(made[1])
			}
			guideSays(t, line, string(out))
		}
	}
	if ran < 20 {
		t.Errorf("the document shows %d commands: the test looks at the wrong thing", ran)
	}
}

// guideSays checks what the text around a command promises.
func guideSays(t *testing.T, line, out string) {
	t.Helper()
	for _, w := range []struct{ call, says string }{
		{"--dry-run", `(?m)^rows +20,000$`},
		{"backfill run flights flights.ndjson.gz --key origin --time date --time-layout 2006-01-02T15:04:05\n", `(?m)^done: 20,000 rows`},
		{"s3://exports/flights/ --include '*.parquet' --key origin --time date", `(?m)^done: 6,000 rows`},
		{"--key LAS --limit 3", `(?m)^\{.*"event_ts":"2001-01-01T00:01:00.000000Z","key":"LAS"`},
		{"verify flights", `(?m)^ok: 20000 records`},
		{"--where 2001-01-01..2001-02-01", `(?m)^done: [0-9,]+ rows .*`},
		{"backfill pause", `is paused: 0/1 objects`},
		{"backfill resume flights " + shownJob, `(?m)^done: 20,000 rows`},
		{"run backfill --once", `"done":1,"rows":6000,`},
		{"schedule run", `: 1 object, 6,000 rows, 0 rejected`},
	} {
		if strings.Contains(line, w.call) && !regexp.MustCompile(w.says).MatchString(out) {
			t.Errorf("%sprints\n%s\nwhich does not match %s", line, out, w.says)
		}
	}
}
