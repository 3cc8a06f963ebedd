package refcheck

import "strings"

// Kinds of reasons for which references were rejected.
const (
	kindNotAllowed = "not allowed"
	kindNoName     = "names no object"
	kindLate       = "late event"
	kindOther      = "other"
	kindAnother    = "another " // size, etag, version or sha256
)

// kindOf sorts the reasons of rejected records, which are sentences.
func kindOf(reason string) string {
	reason = strings.TrimPrefix(reason, "reference: ")
	if what, ok := strings.CutPrefix(reason, "the object is another one: its "); ok {
		what, _, _ = strings.Cut(what, " ")
		switch what {
		case "size", "etag", "version", "sha256":
			return kindAnother + what
		}
	}
	switch {
	case strings.HasPrefix(reason, "topic ") && strings.Contains(reason, " allow"):
		return kindNotAllowed
	case strings.HasPrefix(reason, `reference "`), strings.HasPrefix(reason, "bucket: "), strings.HasPrefix(reason, "key: "), strings.HasPrefix(reason, "version: "):
		return kindNoName
	case strings.Contains(reason, "later sequencer"):
		return kindLate
	}
	return kindOther
}
