package segment

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Member is a segment as the layouts tell of it.
type Member struct {
	topic.Live
	Epoch    uint64 // the layout that made it live
	Parents  []topic.SegmentID
	Children []topic.SegmentID // empty while it is live
}

// Lineage is every segment that a topic has had, parents before children.
type Lineage struct {
	Members []Member
	Layout  topic.Layout // the last entry of the layout log
	index   map[topic.SegmentID]int
	next    uint64 // number of the layout to read next
}

// Member returns a segment of the lineage.
func (l *Lineage) Member(id topic.SegmentID) (Member, bool) {
	i, ok := l.index[id]
	if !ok {
		return Member{}, false
	}
	return l.Members[i], true
}

// Lineage reads the topic's history of layouts.
func (t *Topic) Lineage(ctx context.Context) (*Lineage, error) {
	l := &Lineage{}
	if err := l.update(ctx, t); err != nil {
		return nil, err
	}
	return l, nil
}

// update adds what has happened since.
func (l *Lineage) update(ctx context.Context, t *Topic) error {
	read := t.layoutsFrom
	if l.next == 0 {
		read = func(ctx context.Context, _ uint64) ([]topic.Layout, error) { return t.Layouts(ctx) }
	}
	layouts, err := read(ctx, l.next)
	if err != nil {
		return err
	}
	for _, layout := range layouts {
		l.add(layout)
	}
	return nil
}

func (l *Lineage) add(layout topic.Layout) {
	if l.index == nil {
		l.index = map[topic.SegmentID]int{}
	}
	l.Layout, l.next = layout, layout.Epoch+1
	if layout.Pending {
		return
	}
	var children []topic.SegmentID
	for _, c := range layout.Edit.Children {
		if _, again := l.index[c.ID]; again {
			continue
		}
		l.index[c.ID] = len(l.Members)
		l.Members = append(l.Members, Member{Live: c, Epoch: layout.Epoch, Parents: slices.Clone(layout.Edit.Parents)})
		children = append(children, c.ID)
	}
	for _, p := range layout.Edit.Parents {
		if i, ok := l.index[p]; ok {
			l.Members[i].Children = children
		}
	}
}

// openParallel is how many descriptions are read at a time.
const openParallel = 16

// Segments opens every segment that the topic ever had and whose description is
// still there, parents before children.
func (t *Topic) Segments(ctx context.Context) ([]*Segment, error) {
	l, err := t.Lineage(ctx)
	if err != nil {
		return nil, err
	}
	return t.open(ctx, l.Members)
}

func (t *Topic) open(ctx context.Context, members []Member) ([]*Segment, error) {
	segments := make([]*Segment, len(members))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(openParallel)
	for i, m := range members {
		g.Go(func() (err error) {
			segments[i], err = t.Segment(ctx, m.ID)
			return err
		})
	}
	return segments, g.Wait()
}
