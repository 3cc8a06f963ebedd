//go:build !unix

package devstack

import (
	"errors"
	"fmt"
	"os"
)

// tryLock always fails: a folder that cannot be locked is not safe to run on.
func tryLock(*os.File, bool) error {
	return fmt.Errorf("a stack needs the file locks of Unix: %w", errors.ErrUnsupported)
}
