package functions

import (
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/compactor/table"
)

// CatalogOutcome sorts an error of working on tables: into what an operator has to
// change, and what passes. Others are as they were.
func CatalogOutcome(err error) error {
	var config *table.ConfigError
	var foreign *table.ForeignError
	var schema *table.SchemaError
	var away *table.UnavailableError
	var conflict *table.ConflictError
	switch {
	case err == nil, ExitCode(err) != ExitBug:
		return err
	case errors.As(err, &foreign) && foreign.Topic != "":
		return &ConfigError{fmt.Errorf("%w; `spillway table drop %s --yes` drops it", err, foreign.Topic)}
	case errors.As(err, &config), errors.As(err, &foreign), errors.As(err, &schema):
		return &ConfigError{err}
	case errors.As(err, &away), errors.As(err, &conflict):
		return &RetryError{err}
	}
	return err
}
