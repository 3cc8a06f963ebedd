package seaweed_test

import (
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

const confPath = "/etc/seaweedfs/filer.conf"

// configure sets the rules of paths for the rest of the test, as fs.configure
// does. Locations are JSON.
func configure(t *testing.T, c *seaweed.Client, locations ...string) {
	t.Helper()
	conf := fmt.Sprintf(`{"version":2,"locations":[%s]}`, strings.Join(locations, ","))
	if err := c.Create(t.Context(), confPath, filer.File{ID: filer.NewID(), Content: []byte(conf)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unconfigure(t, c) })
}

// unconfigure takes all rules back. The filer reads its rules when their file
// changes, a moment later, and goes on with the last ones when the file is deleted:
// so a rule that touches nobody replaces the others, and must hold before the file
// goes.
func unconfigure(t *testing.T, c *seaweed.Client) {
	ctx := context.WithoutCancel(t.Context())
	nobody := "/buckets/nobody-" + filer.Token(12) + "/"
	conf := fmt.Sprintf(`{"version":2,"locations":[{"locationPrefix":%q,"fsync":true}]}`, nobody)
	if err := c.Delete(ctx, confPath, ""); err != nil {
		t.Error(err)
	}
	if err := c.Create(ctx, confPath, filer.File{ID: filer.NewID(), Content: []byte(conf)}); err != nil {
		t.Error(err)
		return
	}
	awaitTrue(t, "the rules to be taken back", func() bool {
		got, err := c.Placed(ctx, nobody+"f")
		return err == nil && got.Fsync
	})
	if err := c.Delete(ctx, confPath, ""); err != nil {
		t.Error(err)
	}
}

func location(prefix, ttl string) string {
	return fmt.Sprintf(`{"locationPrefix":%q,"ttl":%q}`, prefix, ttl)
}

func expiries(t *testing.T, c *seaweed.Client, dir string) string {
	t.Helper()
	rules, err := c.Expiries(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	return strings.Join(texts, "\n")
}

// TestLocationTTL tells for rules of paths, on a real filer, which of them would
// have files below a folder vanish.
func TestLocationTTL(t *testing.T) {
	c := dial(t, seaweed.Config{})
	const dir = "/buckets/conformance/topics/orders"
	rule := func(prefix, ttl string) string {
		return fmt.Sprintf("rule for %s in %s: ttl %s", prefix, confPath, ttl)
	}
	for name, tt := range map[string]struct {
		locations []string
		want      string
	}{
		"no TTL":               {[]string{`{"locationPrefix":"/buckets/","fsync":true}`}, ""},
		"the bucket":           {[]string{location("/buckets/conformance/", "7d")}, rule("/buckets/conformance/", "7d")},
		"half a name":          {[]string{location("/buckets/conformance/topics/ord", "5m")}, rule("/buckets/conformance/topics/ord", "5m")},
		"everything":           {[]string{location("/", "1y")}, rule("/", "1y")},
		"deeper":               {[]string{location(dir+"/abc/segments/", "3h")}, rule(dir+"/abc/segments/", "3h")},
		"another topic":        {[]string{location("/buckets/conformance/topics/orders2/", "3h")}, ""},
		"another bucket":       {[]string{location("/buckets/conformance2/", "3h")}, ""},
		"taken back":           {[]string{location("/buckets/", "7d"), location("/buckets/conformance/", "0m")}, ""},
		"taken back elsewhere": {[]string{location("/buckets/", "7d"), location(dir+"/x/", "0d")}, rule("/buckets/", "7d")},
		"shorter below":        {[]string{location("/buckets/", "7d"), location("/buckets/conformance/", "1d")}, rule("/buckets/conformance/", "1d")},
		"of a later version":   {[]string{`{"locationPrefix":"/buckets/","ttl":"2w","newIn2027":{"a":1}}`}, rule("/buckets/", "2w")},
	} {
		t.Run(name, func(t *testing.T) {
			configure(t, c, tt.locations...)
			if got := expiries(t, c, dir); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			var found *filer.ExpiryError
			if err := filer.CheckExpiry(t.Context(), c, dir); errors.As(err, &found) != (tt.want != "") {
				t.Errorf("the check gives error %v", err)
			}
		})
	}
	t.Run("garbage", func(t *testing.T) {
		if err := c.Create(t.Context(), confPath, filer.File{ID: filer.NewID(), Content: []byte(`{"locations": 7`)}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unconfigure(t, c) })
		if err := filer.CheckExpiry(t.Context(), c, dir); !errors.Is(err, filer.ErrCorrupt) {
			t.Errorf("error %v", err)
		}
	})
}

// TestBucketLifecycle tells for lifecycle rules, put through the real S3 gateway,
// which of them would delete files below a folder.
func TestBucketLifecycle(t *testing.T) {
	c := dial(t, seaweed.Config{})
	stack := devtest.Weed(t)
	bucket := stack.Info.Bucket
	dir := "/buckets/" + bucket + "/topics/orders"
	status := func(s, filter, action string) string {
		return fmt.Sprintf("<Rule><ID>r1</ID><Status>%s</Status>%s%s</Rule>", s, filter, action)
	}
	const days = "<Expiration><Days>30</Days></Expiration>"
	prefix := func(p string) string { return "<Filter><Prefix>" + p + "</Prefix></Filter>" }
	hit := fmt.Sprintf("lifecycle rule %q of bucket %s: expiration after 30 days", "r1", bucket)
	for name, tt := range map[string]struct{ rules, want string }{
		"whole bucket":   {status("Enabled", prefix(""), days), hit},
		"no filter":      {status("Enabled", "<Prefix></Prefix>", days), hit},
		"old prefix":     {status("Enabled", "<Prefix>topics/</Prefix>", days), hit},
		"part of a name": {status("Enabled", prefix("topics/o"), days), hit},
		"deeper":         {status("Enabled", prefix("topics/orders/x/segments"), days), hit},
		"and, sizes":     {status("Enabled", "<Filter><And><Prefix>topics</Prefix><ObjectSizeGreaterThan>10</ObjectSizeGreaterThan></And></Filter>", days), hit},
		"by date": {status("Enabled", prefix("topics/"), "<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>"),
			fmt.Sprintf("lifecycle rule %q of bucket %s: expiration on 2030-01-01T00:00:00Z", "r1", bucket)},
		"disabled":      {status("Disabled", prefix(""), days), ""},
		"uploads only":  {status("Enabled", prefix(""), "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>"), ""},
		"another topic": {status("Enabled", prefix("topics/orders2/"), days), ""},
		"payloads":      {status("Enabled", prefix("payloads/"), days), ""},
		"tagged":        {status("Enabled", "<Filter><And><Prefix>topics/</Prefix><Tag><Key>a</Key><Value>b</Value></Tag></And></Filter>", days), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { lifecycle(t, http.MethodDelete, "") })
			lifecycle(t, http.MethodPut, "<LifecycleConfiguration>"+tt.rules+"</LifecycleConfiguration>")
			if got := expiries(t, c, dir); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// lifecycle calls the S3 gateway about the lifecycle rules of the stack's bucket.
func lifecycle(t *testing.T, method, body string) {
	t.Helper()
	stack := devtest.Weed(t)
	u := stack.Info.S3.URL + "/" + stack.Info.Bucket + "?lifecycle="
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, u, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	sum := md5.Sum([]byte(body))
	req.Header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	sign(req, body, stack.Info.S3.AccessKey, stack.Info.S3.SecretKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode/100 != 2 || errors.Join(err, resp.Body.Close()) != nil {
		t.Fatalf("%s lifecycle: %s %s, error %v", method, resp.Status, text, err)
	}
}

// sign signs a request by AWS's scheme, version 4.
func sign(req *http.Request, body, access, secret string) {
	now := time.Now().UTC()
	sum := sha256.Sum256([]byte(body))
	digest, stamp := hex.EncodeToString(sum[:]), now.Format("20060102T150405Z")
	req.Header.Set("X-Amz-Date", stamp)
	req.Header.Set("X-Amz-Content-Sha256", digest)
	const headers = "host;x-amz-content-sha256;x-amz-date"
	canonical := fmt.Sprintf("%s\n%s\n%s\nhost:%s\nx-amz-content-sha256:%s\nx-amz-date:%s\n\n%s\n%s", req.Method,
		req.URL.EscapedPath(), req.URL.RawQuery, req.URL.Host, digest, stamp, headers, digest)
	scope := now.Format("20060102") + "/us-east-1/s3/aws4_request"
	hashed := sha256.Sum256([]byte(canonical))
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hex.EncodeToString(hashed[:])
	key := []byte("AWS4" + secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	req.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x",
		access, scope, headers, mac(key, text)))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text))
	return h.Sum(nil)
}

// TestBadLifecycle: rules that were put into the bucket's attribute by others and
// make no sense are an error, not none.
func TestBadLifecycle(t *testing.T) {
	f := newFake(t, answering(500, "no proxy"))
	c := f.dial(t, seaweed.Config{})
	for _, text := range []string{"<LifecycleConfiguration><Rule>", "nonsense", "<Other/>"} {
		f.set(func() {
			f.entries = map[string]*filer_pb.Entry{"/buckets/spillway": {
				Name: "spillway", IsDirectory: true, Extended: map[string][]byte{"s3-bucket-lifecycle-configuration-xml": []byte(text)},
			}}
		})
		if rules, err := c.Expiries(t.Context(), "/buckets/spillway/topics"); !errors.Is(err, filer.ErrCorrupt) {
			t.Errorf("%q: rules %v, error %v", text, rules, err)
		}
	}
}

// TestUploadSettings shows on a real filer and volume server that settings of an
// upload arrive: the bytes are asked to be synced, and lie on a volume of the
// replication; and that more copies than servers are refused.
func TestUploadSettings(t *testing.T) {
	var asked []url.Values
	spy := func(r *http.Request) {
		if r.Method == http.MethodPut {
			asked = append(asked, r.URL.Query())
		}
	}
	c := dial(t, seaweed.Config{})
	c.SpyOnHTTP(spy)
	dir := newDir(t, c)
	if _, err := c.UploadAs(t.Context(), dir+"/f", []byte("plain"), filer.Storage{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UploadAs(t.Context(), dir+"/f", []byte("synced"), filer.Storage{Fsync: true, Replication: "000"}); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 2 || asked[0].Get("fsync") != "" || asked[1].Get("fsync") != "true" {
		t.Errorf("the volume server was asked with %v", asked)
	}
	begin := time.Now()
	var refused *filer.StorageError
	err := filer.TryStorage(t.Context(), c, dir+"/f", filer.Storage{Replication: "001"})
	if !errors.As(err, &refused) {
		t.Errorf("two copies on one server: error %v", err)
	}
	t.Logf("two copies on one server were refused after %s: %v", time.Since(begin).Round(time.Millisecond), err)
}

// TestPlaced: what the rules of a path say about storage is what the filer does.
func TestPlaced(t *testing.T) {
	c := dial(t, seaweed.Config{})
	dir := newDir(t, c)
	if got, err := c.Placed(t.Context(), dir+"/f"); err != nil || got.Fsync || got.Copies() > 1 {
		t.Errorf("without rules: %+v, error %v", got, err)
	}
	configure(t, c, fmt.Sprintf(`{"locationPrefix":%q,"fsync":true,"replication":"000"}`, dir+"/"))
	awaitTrue(t, "the rule to hold", func() bool {
		got, err := c.Placed(t.Context(), dir+"/f")
		return err == nil && got == filer.Storage{Fsync: true, Replication: "000"}
	})
	if got, err := c.Placed(t.Context(), dir+"-other/f"); err != nil || got.Fsync {
		t.Errorf("beside the rule: %+v, error %v", got, err)
	}
}

// TestCluster asks a real filer and its master.
func TestCluster(t *testing.T) {
	c := dial(t, seaweed.Config{})
	cl, err := c.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cl.Replication != "000" || cl.Major < 4 || !strings.Contains(cl.Version, fmt.Sprintf("%d.%d", cl.Major, cl.Minor)) {
		t.Errorf("got %+v", cl)
	}
	if len(cl.Filers) != 1 || cl.Filers[0].Err != nil || cl.Filers[0].Store == 0 || cl.Filers[0].Address != weedFiler(t) {
		t.Errorf("got filers %+v, want %s alone", cl.Filers, weedFiler(t))
	}
	before := time.Now()
	at, err := c.Clock(t.Context())
	if err != nil || at.Before(before) || at.After(time.Now()) {
		t.Errorf("the filer's clock shows %s, error %v; it is between %s and %s", at, err, before, time.Now())
	}
}

// TestTopicSettings: what a topic asks for goes with each of its chunks to the
// volume server.
func TestTopicSettings(t *testing.T) {
	c := dial(t, seaweed.Config{})
	var asked []string
	c.SpyOnHTTP(func(r *http.Request) {
		if r.Method == http.MethodPut {
			asked = append(asked, r.URL.RawQuery)
		}
	})
	store := segment.NewStore(c, "conformance")
	store.Inline = 0
	for _, fsync := range []bool{true, false} {
		def := topic.Definition{Name: "t" + filer.Token(8), Key: topic.KeyNone, FlushAge: topic.Duration(time.Second), Lanes: "default", Roots: 1, Replication: "000", Fsync: fsync}
		top, err := store.CreateTopic(t.Context(), def, 1, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		segs, err := top.Segments(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		set := &record.Set{}
		if err := set.Append(&record.Record{Time: time.Now(), Position: topic.Position{Sequence: 1}, Value: []byte("x")}, 1); err != nil {
			t.Fatal(err)
		}
		asked = nil
		p, err := segs[0].Prepare(t.Context(), set)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: "fsync=true", false: ""}[fsync]; len(asked) != 1 || asked[0] != want {
			t.Errorf("fsync %v: the volume server was asked with %q", fsync, asked)
		}
		segs[0].Discard(t.Context(), p)
		if err := store.DeleteTopic(t.Context(), def.Name, time.Now()); err != nil {
			t.Error(err)
		}
	}
}
