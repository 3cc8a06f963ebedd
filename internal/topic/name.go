package topic

import (
	"fmt"
	"strings"
)

// MaxName is the longest topic name in bytes. With our suffixes it stays within
// what NATS subjects, filer names, S3 keys and table names take.
const MaxName = 100

// Unrouted is the system topic that takes, as rejected records, messages for
// topics that do not exist.
const Unrouted = "unrouted"

// NameError tells what is wrong with a name.
type NameError struct {
	Kind   string // "topic", "lane group", "bucket", ...
	Name   string
	Reason string
}

func (e *NameError) Error() string {
	name := e.Name
	if len(name) > 60 {
		name = name[:60] + "…"
	}
	return fmt.Sprintf("%s name %q: %s", e.Kind, name, e.Reason)
}

// CheckName accepts 1 to 100 of a-z, 0-9, '-' and '_', starting with a letter
// or digit. It is strict because a topic's name becomes a NATS subject token, a
// folder, an S3 key and a table name, and because names that differ only by
// case would collide in some of those.
func CheckName(name string) error { return checkName("topic", name, MaxName) }

// CheckGroup is CheckName for lane groups (at most 32 bytes).
func CheckGroup(name string) error { return checkName("lane group", name, 32) }

func checkName(kind, name string, limit int) error {
	bad := func(reason string) error { return &NameError{kind, name, reason} }
	if name == "" {
		return bad("it is empty")
	}
	if len(name) > limit {
		return bad(fmt.Sprintf("it has %d bytes, at most %d are allowed", len(name), limit))
	}
	for _, r := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_", r) {
			return bad(fmt.Sprintf("%q is not allowed; use a-z, 0-9, '-' and '_'", r))
		}
	}
	if name[0] == '-' || name[0] == '_' {
		return bad("it must start with a letter or digit")
	}
	return nil
}
