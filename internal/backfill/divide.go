package backfill

// perObject is what an object costs besides its bytes, as so many bytes: it has to
// be opened. It also sees to it that no source is without objects.
const perObject = 256 << 10

// Divide divides objects into the sources of a job, at most parallel of them (1 to
// [MaxSources]), never more than there are objects. Each object, in the order of the
// list, goes to the source that has the fewest bytes, and of equal ones to the first:
// so the same list gives the same sources, each in the order of the list, and no two
// differ by more than one object's size and a little. Without an id, [Jobs.Create]
// names the sources.
func Divide(objects []Object, id string, parallel int) []Source {
	n := min(max(parallel, 1), MaxSources, len(objects))
	sources := make([]Source, n)
	loads := make([]int64, n)
	for i := range sources {
		sources[i].Name = SourceName(id, i)
	}
	for _, o := range objects {
		least := 0
		for i, load := range loads {
			if load < loads[least] {
				least = i
			}
		}
		sources[least].Objects = append(sources[least].Objects, o)
		loads[least] += max(o.Size, 0) + perObject
	}
	return sources
}
