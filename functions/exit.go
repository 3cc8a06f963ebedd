package functions

import "errors"

// Exit codes, after sysexits.h, so that scripts and schedulers can tell what to
// do.
const (
	ExitDone   = 0
	ExitBug    = 1
	ExitUsage  = 2
	ExitRetry  = 75
	ExitConfig = 78
)

// UsageError says that the call was wrong; trying it again will not help.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ConfigError says that a setting, or the setup that it points to, is wrong.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// RetryError says that something was not available; trying again later may help.
type RetryError struct{ Err error }

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

// ExitCode is the one place where an outcome becomes an exit code.
func ExitCode(err error) int {
	var usage *UsageError
	var config *ConfigError
	var retry *RetryError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &config):
		return ExitConfig
	case errors.As(err, &retry):
		return ExitRetry
	}
	return ExitBug
}
