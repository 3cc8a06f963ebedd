package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

const references = "../../docs/REFERENCES.md"

// uploadThenSubmit is the Go recipe of docs/REFERENCES.md, line by line, which
// TestGoRecipe holds together.
func uploadThenSubmit(ctx context.Context, s3, nats string, film []byte) error {
	objects, err := client.OpenObjects(ctx, client.ObjectsConfig{
		Endpoint: s3, // keys are found as the AWS SDK finds them, unless they are given here
		Bucket:   "photos",
	})
	if err != nil {
		return err
	}
	defer objects.Close()
	p, err := client.Connect(nats, client.Options{Objects: objects, Ack: client.Stored})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close(ctx) }()

	// A large value: uploaded, unless it is there already, and referred to.
	one, err := p.Publish(ctx, "pets", client.Record{Key: []byte("film"), Value: film})
	if err != nil {
		return err
	}
	// An object: looked at, and referred to as it is now, with its size, ETag and version.
	two, err := p.Submit(ctx, "pets", client.Reference{URL: "s3://photos/2026/cat.png"}, client.Record{Key: []byte("cat")})
	var wrong *client.ReferenceError
	if errors.As(err, &wrong) {
		return fmt.Errorf("nothing was published, the object is %s: %w", wrong.State, err) // missing, changed, deleted
	}
	if err != nil {
		return err
	}
	for _, pending := range []*client.Pending{one, two} {
		if _, err := pending.Wait(ctx); err != nil {
			return err // client.NotStored tells whether it may be published again
		}
	}
	return nil
}

// submitFile is the recipe for batches.
func submitFile(ctx context.Context, objects *client.Objects, p *client.Producer, file io.ReaderAt, size int64) error {
	up, err := objects.Upload(ctx, "pets", file, size)
	if err != nil {
		return err
	}
	up.Batch = &client.Batch{Format: client.CSV, Compression: client.Gzip}
	up.Records = 2 // if it is known
	pending, err := p.Submit(ctx, "pets", up, client.Record{Key: []byte("cat")}, client.Unchecked())
	if err != nil {
		return err
	}
	_, err = pending.Wait(ctx)
	return err
}

// TestGoRecipe: the document shows the functions that TestReferenceRecipes calls.
func TestGoRecipe(t *testing.T) {
	doc, source := readText(t, references), readText(t, "references_test.go")
	shown := regexp.MustCompile("(?ms)^```go\n(.*?\n)```$").FindAllStringSubmatch(doc, -1)
	names := []string{"uploadThenSubmit", "submitFile"}
	if len(shown) != len(names) {
		t.Fatalf("the document has %d Go recipes, this file %d", len(shown), len(names))
	}
	for i, name := range names {
		written := regexp.MustCompile(`(?ms)^func ` + name + `\([^\n]*\n(.*?\n)}$`).FindStringSubmatch(source)
		if is := regexp.MustCompile(`(?m)^\t`).ReplaceAllString(written[1], ""); is != shown[i][1] {
			t.Errorf("the document shows\n%s\nand what is tested is\n%s", shown[i][1], is)
		}
	}
}

// TestReferenceRecipes runs the recipes of docs/REFERENCES.md, and looks at what
// has become of them. Of the shell's, it runs those whose tools are there; what
// they publish is published here in any case, so that it is right.
func TestReferenceRecipes(t *testing.T) {
	stack := devtest.Stack(t)
	startWorker(t, stack)
	r := newRecipes(t, stack)
	doc := readText(t, references)
	if ran := r.runAll(doc); ran < 3 {
		t.Errorf("the document has %d recipes that can be run everywhere: the test looks at the wrong thing", ran)
	}
	for _, key := range r.publishEvents(doc) {
		r.want = append(r.want, "s3://photos/"+key)
	}
	r.check()
}

// recipes runs shell commands of a document as its readers would.
type recipes struct {
	t     *testing.T
	stack *devstack.Stack
	dir   string
	env   []string
	s3    *s3.Client
	want  []string // URLs to which there must be references
}

func newRecipes(t *testing.T, stack *devstack.Stack) *recipes {
	t.Helper()
	at := stack.Info
	settings := map[string]string{
		"S3": at.S3.URL, "NATS": at.NATS, "SPILLWAY_S3": at.S3.URL, "SPILLWAY_NATS": at.NATS, "SPILLWAY_FILER": at.Filer,
		"AWS_ACCESS_KEY_ID": at.S3.AccessKey, "AWS_SECRET_ACCESS_KEY": at.S3.SecretKey, "AWS_DEFAULT_REGION": "us-east-1",
		"AWS_EC2_METADATA_DISABLED": "true",
	}
	r := &recipes{t: t, stack: stack, dir: t.TempDir(), env: os.Environ()}
	for name, value := range settings {
		t.Setenv(name, value) // for the Go recipe
		r.env = append(r.env, name+"="+value)
	}
	r.s3 = s3.New(s3.Options{
		BaseEndpoint: &at.S3.URL, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(at.S3.AccessKey, at.S3.SecretKey, ""),
	})
	if _, err := r.s3.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("photos")}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cat.png": "meow", "tags.csv.gz": string(zipped(t, tags))} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.put("2026/cat.png", "meow")
	r.put("2026/tags.ndjson", "{\"tag\":\"cat\"}\n{\"tag\":\"grey\"}\n")
	return r
}

// tags is a file of two records.
const tags = "tag,by\ncat,ann\ngrey,bob\n"

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// put makes an object.
func (r *recipes) put(key, text string) {
	r.t.Helper()
	_, err := r.s3.PutObject(r.t.Context(), &s3.PutObjectInput{Bucket: aws.String("photos"), Key: &key, Body: strings.NewReader(text)})
	if err != nil {
		r.t.Fatal(err)
	}
}

// submitFile calls the recipe for batches.
func (r *recipes) submitFile() error {
	r.t.Helper()
	objects, err := client.OpenObjects(r.t.Context(), client.ObjectsConfig{Endpoint: r.stack.Info.S3.URL, Bucket: "photos"})
	if err != nil {
		return err
	}
	defer objects.Close()
	p, err := client.Connect(r.stack.Info.NATS, client.Options{Objects: objects, Ack: client.Stored})
	if err != nil {
		return err
	}
	data := zipped(r.t, tags)
	return errors.Join(submitFile(r.t.Context(), objects, p, bytes.NewReader(data), int64(len(data))), p.Close(r.t.Context()))
}

// runAll runs what the document shows, in its order, and counts what can be run
// on any machine.
func (r *recipes) runAll(doc string) (ran int) {
	r.t.Helper()
	for _, m := range regexp.MustCompile("(?ms)^```(sh|go)\n(.*?\n)```$").FindAllStringSubmatch(doc, -1) {
		switch {
		case m[1] == "go" && strings.Contains(m[2], "client.Batch"):
			if err := r.submitFile(); err != nil {
				r.t.Fatalf("the Go recipe for batches: %v", err)
			}
			continue
		case m[1] == "go":
			film := bytes.Repeat([]byte("film"), 200_000)
			if err := uploadThenSubmit(r.t.Context(), r.stack.Info.S3.URL, r.stack.Info.NATS, film); err != nil {
				r.t.Fatalf("the Go recipe: %v", err)
			}
			r.want = append(r.want, "s3://photos/2026/cat.png")
			continue
		}
		if tool := r.lacks(m[2]); tool != "" {
			r.t.Logf("not run, since there is no %s here:\n%s", tool, m[2])
			continue
		}
		if !needs.MatchString(m[2]) {
			ran++
		}
		r.run(m[2])
	}
	return ran
}

// needs finds the tools of the recipes that not every machine has.
var needs = regexp.MustCompile(`\b(curl|aws|nats) `)

// lacks names a tool that a recipe needs and that is not there.
func (r *recipes) lacks(text string) string {
	for _, m := range needs.FindAllStringSubmatch(text, -1) {
		if _, err := exec.LookPath(m[1]); err != nil {
			return m[1]
		}
	}
	return ""
}

func (r *recipes) run(text string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "sh", "-eu", "-c", text)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Errorf("%v\n%s\n%s", err, text, out)
	}
}

// publishEvents publishes the events that the document shows, after it has put
// their objects there, and gives their keys.
func (r *recipes) publishEvents(doc string) (keys []string) {
	r.t.Helper()
	nc, err := nats.Connect(r.stack.Info.NATS)
	if err != nil {
		r.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`'(\{"Records":.*\})'`).FindAllStringSubmatch(doc, -1) {
		event := strings.ReplaceAll(m[1], `'"$etag"'`, "4a4be40c96ac6314e91d93f38043a634") // of "meow"
		var is struct {
			Records []struct {
				S3 struct{ Object struct{ Key string } }
			}
		}
		if err := json.Unmarshal([]byte(event), &is); err != nil || len(is.Records) != 1 {
			r.t.Fatalf("%s: %v", event, err)
		}
		r.put(is.Records[0].S3.Object.Key, "meow")
		if _, err := js.Publish(r.t.Context(), "spillway.s3.pets", []byte(event)); err != nil {
			r.t.Fatal(err)
		}
		keys = append(keys, is.Records[0].S3.Object.Key)
	}
	if len(keys) != 2 {
		r.t.Errorf("the document shows %d events: the test looks at the wrong thing", len(keys))
	}
	return keys
}

// check waits until there is a reference to each object that is wanted, and sees
// that all references are valid.
func (r *recipes) check() {
	r.t.Helper()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for limit := time.After(time.Minute); ; {
		have := r.states()
		lacking := slices.DeleteFunc(slices.Clone(r.want), func(url string) bool { return have[url] != "" })
		if len(lacking) == 0 {
			for url, state := range have {
				if state != "valid" {
					r.t.Errorf("%s is %s", url, state)
				}
			}
			return
		}
		select {
		case <-limit:
			r.t.Fatalf("there is no reference to %q, but to %q", lacking, slices.Sorted(maps.Keys(have)))
		case <-look.C:
		}
	}
}

// states are the states of the topic's references, by their URLs.
func (r *recipes) states() map[string]string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "spillway", "read", "pets", "--fetch", "--all")
	cmd.Env = r.env
	out, err := cmd.CombinedOutput()
	have := map[string]string{}
	for line := range bytes.Lines(out) {
		var is struct {
			Rejected string
			Ref      struct{ URL string }
			Fetched  struct{ State string }
		}
		if json.Unmarshal(line, &is) != nil || is.Ref.URL == "" {
			continue
		}
		if is.Rejected != "" {
			r.t.Fatalf("%s\n%v", line, err)
		}
		have[is.Ref.URL] = is.Fetched.State
	}
	return have
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
