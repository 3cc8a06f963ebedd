package memfs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
)

// rules are the settings of the filer and its cluster.
type rules struct {
	servers int // volume servers; 0: enough
	expiry  []expiryRule
}

type expiryRule struct {
	prefix string
	rule   filer.Expiry
}

// SetServers says how many volume servers there are: uploads that ask for more
// copies fail. 0 is enough for all.
func (fs *FS) SetServers(n int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.rules.servers = n
}

// SetExpiry makes files at paths that begin with prefix expire by a rule. As on
// a real filer nothing is deleted by it; the zero rule takes it back.
func (fs *FS) SetExpiry(prefix string, rule filer.Expiry) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.rules.expiry = slices.DeleteFunc(fs.rules.expiry, func(r expiryRule) bool { return r.prefix == prefix })
	if rule != (filer.Expiry{}) {
		fs.rules.expiry = append(fs.rules.expiry, expiryRule{prefix, rule})
	}
}

// StorageOf returns the settings that a blob was uploaded with.
func (fs *FS) StorageOf(id string) (filer.Storage, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	b := fs.blobs[id]
	if b == nil {
		return filer.Storage{}, fmt.Errorf("storage of blob %s: %w", id, filer.ErrNotFound)
	}
	return b.how, nil
}

func (fs *FS) canKeep(how filer.Storage) bool {
	return fs.rules.servers == 0 || how.Copies() <= fs.rules.servers
}

func (fs *FS) expiring(dir string) []filer.Expiry {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var found []filer.Expiry
	for _, r := range fs.rules.expiry {
		if below := dir + "/"; strings.HasPrefix(below, r.prefix) || strings.HasPrefix(r.prefix, below) {
			found = append(found, r.rule)
		}
	}
	return found
}
