// Package substrait stands in for the module of its name, which carries the definitions
// of Substrait's functions. iceberg-go parses all of them whenever a program starts that
// links it, which takes 0.14 s and 20 MB, and uses them for filters on scans, which nothing
// here has. See ADR 0028.
package substrait

import "embed"

// The library needs one file, which may define nothing.
//
//go:embed extensions/functions_none.yaml
var extensions embed.FS

// GetSubstraitFS returns the definitions: none.
func GetSubstraitFS() embed.FS { return extensions }

// GetSubstraitExtensionsFS returns the definitions: none.
func GetSubstraitExtensionsFS() embed.FS { return extensions }
