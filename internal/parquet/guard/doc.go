// Package guard stands between Parquet files that may be damaged or hostile and the
// library that reads them (arrow-go), which takes memory for what a file promises before
// it looks whether it is there. Footers and indexes are walked over first, pages are
// admitted one by one, codecs unpack no more than there is room for, and an allocator
// ends what would be too much. What remains for its users: the library panics on some
// damage, and what an index or a footer says of places in the file is theirs to check.
package guard
