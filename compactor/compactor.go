package compactor

import (
	"log/slog"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Defaults of Options.
const (
	DefaultGrace     = time.Hour
	DefaultFileBytes = 128 << 20
)

// Options of a compactor. Store is needed; what else is zero has a default, but Grace.
type Options struct {
	Store  *segment.Store
	Tables *table.Tables // nil: there is no catalog; data files and manifests only
	// Expander reads the objects of batch references; nil: segments that hold some are
	// left as they are, and reported.
	Expander Expander
	// Grace is how long chunks stay beside their manifest. It is a comfort for readers
	// that are in the middle of one, and for people. 0: not at all.
	Grace     time.Duration
	FileBytes int64  // of a data file, about
	Holder    string // who this is, in leases; equal ones share them
	// Progress is called often, by one goroutine at a time; nil: nobody wants to know.
	Progress func(Progress)
	Logger   *slog.Logger
	Metrics  *Metrics // may be nil
	Now      func() time.Time
}

// Progress is how far a call is with the rewriting of a topic's segments.
type Progress struct {
	Topic                 string
	Segment               topic.SegmentID
	Done, Segments        int    // of those that the call rewrites
	Records, TotalRecords uint64 // of all of them
	Rows, Bytes           uint64 // Bytes: of records, before compression
}

// Compactor compacts topics. It remembers which segments are done with only to look at
// fewer: all else is on the filer. Safe for concurrent use.
type Compactor struct {
	Options
	slot chan struct{} // whoever rewrites a segment: one does at a time, so that memory is bounded

	mu     sync.Mutex
	topics map[string]*seat
}

// New returns a compactor.
func New(o Options) *Compactor {
	if o.FileBytes <= 0 {
		o.FileBytes = DefaultFileBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Compactor{Options: o, slot: make(chan struct{}, 1), topics: map[string]*seat{}}
}

// Report is what came of a look at a topic.
type Report struct {
	Compacted   int // segments that got their manifest
	Committed   int // segments that came into the table
	Trimmed     int // segments whose chunks went
	Swept       int // files that nothing names, deleted
	Waiting     int // segments whose grace is not over
	Quarantined int // segments that cannot be read
	Elsewhere   int // segments with batch references that cannot be read from here
	Postponed   int // segments with batch references whose objects are not there yet, or give no answer
	// What was rewritten.
	Records   uint64
	Rows      uint64
	Bytes     uint64 // of the records, before compression
	Files     int
	FileBytes uint64
	// Next is when to look at the topic again; zero: not before a segment is sealed.
	Next time.Time
	// Cut: more was to be done when stop ended.
	Cut bool
	// Held: somebody else has the topic's lease, and nothing was done.
	Held bool
	// Silent is why not all could be done: the catalog gives no answers, or the
	// endpoint of the objects that batch references refer to.
	Silent error
}

// at says that something is to be looked at again at a time.
func (r *Report) at(t time.Time) {
	if r.Next.IsZero() || t.Before(r.Next) {
		r.Next = t
	}
}

// silent says that somebody gave no answer.
func (r *Report) silent(err error, now time.Time) {
	r.Silent = err
	r.at(now.Add(silentLater))
}

// silentLater is after how long somebody who gave no answer is asked again.
const silentLater = 30 * time.Second

// seat is what is known of a topic, for one at a time: who has its mutex.
type seat struct {
	sync.Mutex
	users int  // who have it, or wait for it; guarded by the compactor's mutex
	waits bool // something of it is to be done later; guarded by the compactor's mutex

	incarnation string
	table       string                       // UUID; what is done is done for it
	done        map[topic.SegmentID]struct{} // nothing is to be done with these any more
	later       map[topic.SegmentID]later    // these were tried, and are not to be tried before
	quarantined int
}

// later is a segment that was put off.
type later struct {
	at    time.Time
	tries int
	err   error
}

// reset forgets what is known of another topic of that name, or for another table.
func (s *seat) reset(incarnation, uuid string) {
	if s.done == nil || s.incarnation != incarnation || s.table != uuid {
		s.incarnation, s.table = incarnation, uuid
		s.done, s.later = map[topic.SegmentID]struct{}{}, map[topic.SegmentID]later{}
	}
}

// seat is a topic's, which is to be left again.
func (c *Compactor) seat(name string) *seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.topics[name]
	if s == nil {
		s = &seat{}
		c.topics[name] = s
	}
	s.users++
	return s
}

// leave notes whether something of a topic is to be done later. gone: the topic is.
func (c *Compactor) leave(name string, s *seat, waits, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.waits = waits
	if s.users--; s.users == 0 && gone {
		c.Metrics.quarantineChanged(-s.quarantined)
		delete(c.topics, name)
	}
}

// waiting lists the topics of which something is to be done later.
func (c *Compactor) waiting() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, s := range c.topics {
		if s.waits {
			names = append(names, name)
		}
	}
	return names
}
