package functions

// undone is what a look at a topic leaves to others, or for later.
type undone struct{ elsewhere, later bool }

// room has work done beside, or tells that there is no room for it.
type room func(k jobKey, do func() error) bool

// roomAt is how sweeps and tokens find room for a job: a Once run waits for it.
func (f *filler) roomAt() room {
	if f.o.Once {
		return func(_ jobKey, do func() error) bool { f.jobs.Go(do); return true }
	}
	return func(_ jobKey, do func() error) bool { return f.jobs.TryGo(do) }
}

// roomAfter is how jobs find room when one is done: the first that finds none is next,
// in the place of that one.
func (f *filler) roomAfter(next **jobKey) room {
	return func(k jobKey, do func() error) bool {
		if f.jobs.TryGo(do) {
			return true
		}
		if *next != nil {
			return false
		}
		*next = &k
		return true
	}
}
