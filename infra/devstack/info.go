package devstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// FormatVersion is the version of the folder's layout and of stack.json. Other
// versions are refused, older ones too: there is nothing to migrate from yet.
const FormatVersion = 1

const (
	infoFile    = "stack.json"
	maxInfoSize = 1 << 20
)

// State is how far a stack is, as its stack.json says.
type State string

// The states of a stack.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Stopped  State = "stopped"
)

// Info tells where everything of a stack is. It is what stack.json holds.
type Info struct {
	Format  int       `json:"format"`
	State   State     `json:"state"`
	PID     int       `json:"pid"` // of the process that runs the stack
	Dir     string    `json:"dir"`
	Started time.Time `json:"started"`

	NATS   string `json:"nats"`   // nats://127.0.0.1:port
	Filer  string `json:"filer"`  // host:port of its HTTP side; gRPC is at port + 10000
	Master string `json:"master"` // host:port, HTTP
	S3     S3     `json:"s3"`
	Bucket string `json:"bucket"`
	// Catalog is SeaweedFS's Iceberg catalog; its credentials are the S3 keys.
	Catalog Catalog `json:"catalog"`
	Ports   Ports   `json:"ports"`

	NATSVersion string `json:"nats_version,omitempty"`
	WeedVersion string `json:"weed_version,omitempty"`
}

// S3 is the S3 side of a stack, with the keys that it was given.
type S3 struct {
	URL       string `json:"url"`
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
}

// Catalog is the Iceberg REST catalog of a stack.
type Catalog struct {
	URL       string `json:"url"`
	Warehouse string `json:"warehouse"` // the table bucket
}

// NoStackError tells that there is no stack in the folder.
type NoStackError struct{ Dir string }

func (e *NoStackError) Error() string {
	return fmt.Sprintf("no stack in %s (no %s there)", e.Dir, infoFile)
}

// VersionError tells that the folder was written by a Spillway with another
// layout of the folder. Nothing in it was touched.
type VersionError struct {
	Dir       string
	Got, Want int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the stack in %s has format version %d, this program knows version %d; "+
		"use the program that made it, or another folder", e.Dir, e.Got, e.Want)
}

// CorruptError tells that a file of the stack's folder cannot be understood.
type CorruptError struct {
	Path string
	Err  error
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%s is corrupt: %v", e.Path, e.Err) }

// Unwrap gives the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// NotRunningError tells that the folder has a stack that does not run now.
type NotRunningError struct {
	Dir   string
	State State // what its stack.json says
	PID   int   // of the process that ran it last
}

func (e *NotRunningError) Error() string {
	switch e.State {
	case Stopped:
		return fmt.Sprintf("the stack in %s is stopped", e.Dir)
	case Starting:
		return fmt.Sprintf("the stack in %s is not ready: process %d is, or was, starting it", e.Dir, e.PID)
	default:
		return fmt.Sprintf("the stack in %s is stale: process %d, which ran it, is gone", e.Dir, e.PID)
	}
}

// Load tells where the running stack of the folder is. Its typed errors are
// [*NoStackError], [*VersionError], [*CorruptError] and [*NotRunningError]. That
// a stack runs is known by its lock, so a process id that was given to another
// process since does not deceive it.
func Load(dir string) (Info, error) {
	info, err := readInfo(dir)
	if err != nil {
		return Info{}, err
	}
	held, err := lockHeld(filepath.Join(dir, lockFile))
	if err != nil {
		return Info{}, err
	}
	if !held || info.State != Ready {
		return Info{}, &NotRunningError{Dir: dir, State: info.State, PID: info.PID}
	}
	return info, nil
}

// readInfo reads a stack.json of this format version, whatever the stack's state.
func readInfo(dir string) (Info, error) {
	path := filepath.Join(dir, infoFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, &NoStackError{Dir: dir}
	}
	if err != nil {
		return Info{}, fmt.Errorf("read the stack's description: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxInfoSize+1))
	if err != nil {
		return Info{}, fmt.Errorf("read the stack's description: %w", err)
	}
	if len(data) > maxInfoSize {
		return Info{}, &CorruptError{Path: path, Err: fmt.Errorf("larger than %d bytes", maxInfoSize)}
	}
	return decodeInfo(dir, data)
}

// decodeInfo looks at the version first: other versions may have other fields.
func decodeInfo(dir string, data []byte) (Info, error) {
	path := filepath.Join(dir, infoFile)
	var version struct {
		Format *int `json:"format"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return Info{}, &CorruptError{Path: path, Err: err}
	}
	if version.Format == nil {
		return Info{}, &CorruptError{Path: path, Err: errors.New("it has no format version")}
	}
	if *version.Format != FormatVersion {
		return Info{}, &VersionError{Dir: dir, Got: *version.Format, Want: FormatVersion}
	}
	var info Info
	if err := json.Unmarshal(data, &info); err != nil {
		return Info{}, &CorruptError{Path: path, Err: err}
	}
	return info, nil
}

// writeInfo replaces stack.json in one step. It holds the S3 keys, so only the
// owner may read it.
func writeInfo(dir string, info Info) error {
	data, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the stack's description: %w", err)
	}
	return writeFile(filepath.Join(dir, infoFile), append(data, '\n'))
}

// writeFile puts a file in place, readable by the owner only, whole or not at all.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
