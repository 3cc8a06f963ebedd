package verify

import "testing"

func TestValid(t *testing.T) {
	f := newFixture()
	f.feed()
	f.write(t)
	r := f.verify(t)
	for _, v := range r.Violations {
		t.Error(v)
	}
	for i, s := range f.segs {
		for j, c := range s.chunks {
			t.Log(i, j, c.id, len(c.rows), func() (l []int) {
				for _, r := range c.rows {
					l = append(l, int(r.Sequence*10+int64(r.Row)))
				}
				return
			}())
		}
	}
	t.Logf("%+v", r)
}
