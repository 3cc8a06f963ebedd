package object

import "time"

// Hasty makes a store that hardly waits between its tries.
func Hasty(c Config) Config {
	c.wait = time.Millisecond
	return c
}

// PartSizeOf is the size of the parts of an object of that size.
func PartSizeOf(size int64) int64 { return partSize(size) }
