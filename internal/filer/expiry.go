package filer

import (
	"context"
	"fmt"
	"strings"
)

// Expiry is a rule of a filer by which files vanish without anybody deleting
// them.
type Expiry struct {
	// Rule is where it stands and what it is called there, for whoever has to
	// change it.
	Rule string
	// What it does: "ttl 7d", "expiration after 30 days".
	What string
}

func (e Expiry) String() string { return e.Rule + ": " + e.What }

// ExpiryError says that rules would delete files in a folder whose files must
// stay until their owner deletes them (rule 6). Only whoever made the rules can
// put this right.
type ExpiryError struct {
	Dir   string
	Rules []Expiry
}

func (e *ExpiryError) Error() string {
	texts := make([]string, len(e.Rules))
	for i, r := range e.Rules {
		texts[i] = r.String()
	}
	return fmt.Sprintf("files below %s would expire by %s", e.Dir, strings.Join(texts, "; "))
}

// CheckExpiry gives an [*ExpiryError] for the first of the folders in which
// files would expire. It retries; another error means that the filer could not
// be asked, or that a rule cannot be understood ([ErrCorrupt]).
func CheckExpiry(ctx context.Context, s Store, dirs ...string) error {
	for _, dir := range dirs {
		var rules []Expiry
		err := Retry(ctx, func(ctx context.Context) (err error) {
			rules, err = s.Expiries(ctx, dir)
			return err
		})
		if err != nil {
			return fmt.Errorf("check that nothing expires below %s: %w", dir, err)
		}
		if len(rules) > 0 {
			return &ExpiryError{Dir: dir, Rules: rules}
		}
	}
	return nil
}
