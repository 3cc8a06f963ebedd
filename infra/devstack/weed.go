package devstack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

const (
	// weedMemory is where weed's garbage collector begins to work hard; without
	// it, a flood of large files takes it beyond a gigabyte. GOMEMLIMIT in our
	// own environment is used instead if it is set.
	weedMemory = "768MiB"

	// weedGrace is how long weed may take to stop: 3 to 11 s, as measured.
	weedGrace = 20 * time.Second

	// warehouse is the table bucket: where the catalog keeps the metadata of tables.
	warehouse = "warehouse"
)

// jobsOff are the maintenance jobs of SeaweedFS that must not run in a stack:
// its S3 lifecycle worker, because expiring objects is Spillway's own business
// there (it keeps what is still referenced), and what moves data between volume
// servers, of which a stack has one.
var jobsOff = []string{"s3_lifecycle", "erasure_coding", "ec_balance", "volume_balance"}

// weed is a SeaweedFS that runs, or ran.
type weed struct {
	*child
	ports  Ports
	bucket string
	log    *slog.Logger
}

// weedArgs are the arguments of `weed mini`: everything on loopback, no
// telemetry, and no servers that nothing here uses. The last flag of a name wins.
func weedArgs(dir string, p Ports, bucket string, extra []string) []string {
	return append([]string{
		"-logtostderr=true", "mini",
		"-dir=" + weedDir(dir), "-ip=" + loopback, "-ip.bind=" + loopback,
		fmt.Sprintf("-master.port=%d", p.Master),
		fmt.Sprintf("-volume.port=%d", p.Volume),
		fmt.Sprintf("-filer.port=%d", p.Filer),
		fmt.Sprintf("-s3.port=%d", p.S3),
		// The admin server cannot be turned off, only its web pages.
		fmt.Sprintf("-admin.port=%d", p.Admin), "-admin.port.legacy=0", "-admin.ui=false",
		"-s3.config=" + filepath.Join(dir, s3File),
		fmt.Sprintf("-s3.port.iceberg=%d", p.Iceberg), "-tableBucket=" + warehouse,
		"-s3.port.lance=0", "-webdav=false",
		// SeaweedFS makes volumes of a gigabyte on a large disk, as many as fit, and
		// several for each bucket: with 38 GB free, a few buckets have none left.
		"-master.volumeSizeLimitMB=256",
		"-master.telemetry=false",
		"-bucket=" + bucket,
	}, extra...)
}

func weedDir(dir string) string { return filepath.Join(dir, "weed") }

// weedEnv is all that weed gets to see of our environment. It would take
// settings from WEED_… and AWS_… variables and from the home folder.
func weedEnv(dir string) []string {
	limit := os.Getenv("GOMEMLIMIT")
	if limit == "" {
		limit = weedMemory
	}
	return []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(),
		"HOME=" + weedDir(dir), "GOMEMLIMIT=" + limit,
	}
}

// startWeed runs weed and returns when it can be written to. On a folder that
// has data this takes SeaweedFS 15 s.
func (s *Stack) startWeed(ctx context.Context) (*weed, error) {
	if err := disableJobs(weedDir(s.Info.Dir), jobsOff); err != nil {
		return nil, err
	}
	dir, ports := s.Info.Dir, s.Info.Ports
	if err := ports.checkFree("master", "volume", "filer", "s3", "admin", "iceberg"); err != nil {
		return nil, err
	}
	c, err := startChild(childSpec{
		Name: "weed",
		Argv: append([]string{s.weedBin.path}, weedArgs(dir, ports, s.Info.Bucket, s.weedExtra)...),
		Env:  weedEnv(dir), Dir: weedDir(dir),
		Log: filepath.Join(dir, "logs", "weed.log"), PID: filepath.Join(dir, weedPID),
		Gone: func() { removeSockets(ports) },
	}, s.childDied)
	if err != nil {
		return nil, err
	}
	w := &weed{child: c, ports: ports, bucket: s.Info.Bucket, log: s.log}
	begin := time.Now()
	if err := w.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, w.kill())
	}
	s.log.Info("weed is ready", "pid", c.cmd.Process.Pid, "version", s.weedBin.version,
		"took", time.Since(begin).Round(time.Millisecond))
	return w, nil
}

// removeSockets removes the sockets that weed makes in /tmp, whatever TMPDIR is,
// and leaves there.
func removeSockets(p Ports) {
	for _, r := range p.all() {
		for _, format := range []string{"/tmp/seaweedfs-%s-%d.sock", "/tmp/seaweedfs-%s-grpc-%d.sock"} {
			for _, port := range r.numbers() {
				_ = os.Remove(fmt.Sprintf(format, r.name, port)) // most do not exist
			}
		}
	}
}

// disableJobs turns maintenance jobs off before weed's first start. `weed mini`
// has no flag for it: its admin server runs every job type that it knows, as the
// job type's own defaults say (s3_lifecycle: enabled, daily), unless a
// configuration is stored already. That is a protobuf message,
// plugin.PersistedJobTypeConfig, of which we need job_type (field 1) and an
// admin_runtime (field 5) that is present and empty, which means not enabled.
func disableJobs(dir string, jobs []string) error {
	for _, job := range jobs {
		path := filepath.Join(dir, "admin", "plugin", "job_types", job, "config.pb")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("turn off SeaweedFS's %s job: %w", job, err)
		}
		msg := append([]byte{1<<3 | 2, byte(len(job))}, job...)
		if err := writeFile(path, append(msg, 5<<3|2, 0)); err != nil {
			return fmt.Errorf("turn off SeaweedFS's %s job: %w", job, err)
		}
	}
	return nil
}

const s3File = "s3.json"

// s3Config is SeaweedFS's file of S3 identities, as far as we use it. With an
// identity there, requests without a valid signature are refused.
type s3Config struct {
	Identities []s3Identity `json:"identities"`
}

type s3Identity struct {
	Name        string   `json:"name"`
	Credentials []s3Key  `json:"credentials"`
	Actions     []string `json:"actions"`
}

type s3Key struct {
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
}

// s3Keys returns the folder's S3 keys, which are made up at its first start.
func s3Keys(dir string) (s3Key, error) {
	path := filepath.Join(dir, s3File)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newS3Keys(path)
	}
	if err != nil {
		return s3Key{}, fmt.Errorf("read the S3 keys: %w", err)
	}
	var cfg s3Config
	if err := json.Unmarshal(data, &cfg); err != nil {
		return s3Key{}, &CorruptError{Path: path, Err: err}
	}
	if len(cfg.Identities) == 0 || len(cfg.Identities[0].Credentials) == 0 {
		return s3Key{}, &CorruptError{Path: path, Err: errors.New("no keys in it")}
	}
	return cfg.Identities[0].Credentials[0], nil
}

func newS3Keys(path string) (s3Key, error) {
	key := s3Key{AccessKey: "SPILLWAY" + rand.Text()[:12], SecretKey: rand.Text() + rand.Text()}
	data, err := json.MarshalIndent(s3Config{Identities: []s3Identity{{
		Name: "spillway", Credentials: []s3Key{key},
		Actions: []string{"Admin", "Read", "Write", "List", "Tagging"},
	}}}, "", "  ")
	if err == nil {
		err = writeFile(path, append(data, '\n'))
	}
	if err != nil {
		return s3Key{}, fmt.Errorf("write the S3 keys: %w", err)
	}
	return key, nil
}
