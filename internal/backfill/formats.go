package backfill

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/internal/rows"
)

// As says how all objects are to be read, instead of as their names say.
type As struct {
	Format rows.Format // empty: as each name says
	// Compression is [Unpacked], or a compression; empty: as each name says.
	Compression rows.Compression
}

// Unpacked is, in [As], that objects are not packed whatever they are called.
const Unpacked rows.Compression = "none"

type kind struct {
	format  rows.Format
	packing rows.Compression
}

// Formats decides how each object is read, by its name or as as says. What most of
// them are is returned in read; in those that are something else it is written. All
// objects whose format nothing tells come in one [*NamesError] of [ErrNoFormat].
//
// What is decided is frozen with the job: an object whose bytes are of another kind
// fails when it is read.
func Formats(read Read, objects []Object, as As) (Read, error) {
	kinds := make([]kind, len(objects))
	count := map[kind]int{}
	unclear := &NamesError{Err: ErrNoFormat}
	for i, o := range objects {
		k := as.of(path.Base(cmp.Or(o.Path, o.Key)))
		if checkKind(o, k.format, k.packing) != nil {
			unclear.add(o.String())
		}
		kinds[i] = k
		count[k]++
	}
	if err := unclear.orNil(); err != nil {
		return read, err
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b kind) int {
		return cmp.Or(count[b]-count[a], strings.Compare(string(a.format), string(b.format)), strings.Compare(string(a.packing), string(b.packing)))
	})
	if len(most) > 0 {
		read.Format, read.Compression = most[0].format, most[0].packing
	}
	for i, k := range kinds {
		objects[i].Format, objects[i].Compression = "", ""
		if k != most[0] {
			objects[i].Format, objects[i].Compression = k.format, k.packing
		}
	}
	return read, nil
}

// of decides for a name. A format that nothing tells is none.
func (as As) of(name string) kind {
	format, packing, err := rows.Detect(name, nil)
	if as.Format != "" {
		// What a name says of its packing stands at its end. An end that says nothing of
		// one is an error there, and no packing.
		format, err = as.Format, nil
		_, packing, _ = rows.Detect("a.ndjson"+path.Ext(name), nil)
	}
	switch {
	case err != nil:
		return kind{}
	case as.Compression == Unpacked:
		packing = rows.None
	case as.Compression != "":
		packing = as.Compression
	}
	return kind{format, packing}
}
