package inspect

import (
	"errors"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/topic"
)

func TestResolve(t *testing.T) {
	key := topic.SlotOf([]byte("SAN"))
	l := topic.Layout{Epoch: 6, Live: []topic.Live{
		{ID: "00000002-00-abcdefgh", Range: topic.Range{Lo: 0, Hi: uint32(key)}},
		{ID: "00000002-01-bcdefghi", Range: topic.Range{Lo: uint32(key), Hi: uint32(key) + 1}},
		{ID: "00000006-00-cdefghij", Range: topic.Range{Lo: uint32(key) + 1, Hi: topic.Slots}},
	}}
	for ref, want := range map[string]int{
		"00000002-00-abcdefgh": 0, "00000002-01": 1, "00000006": 2, "2-0": 0, "2-1": 1, "6-0": 2,
		"slot:0": 0, "slot:65535": 2, "key:SAN": 1,
	} {
		if got, err := Resolve(l, ref); err != nil || got != l.Live[want] {
			t.Errorf("%s: %+v, %v", ref, got, err)
		}
	}
	for ref, why := range map[string]string{
		"": "no live segment", "0": "begin so", "00000002": "begin so", "4-0": "no live segment", "slot:": "want a slot", "slot:65536": "want a slot",
		"slot:-1": "want a slot", "x": "no live segment", "slot": "no live segment", strings.Repeat("0", 1e6): "no live segment",
	} {
		_, err := Resolve(l, ref)
		var bad *RefError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), why) || len(err.Error()) > 300 {
			t.Errorf("%.20q: %v, want %q", ref, err, why)
		}
	}
}

func TestWhyNot(t *testing.T) {
	w := newWorld(t, 1)
	root := w.live("0-0")
	w.edit(func(l topic.Layout) (topic.Edit, error) { return l.SplitWays(root.ID, 12) })
	l, err := w.Lineage(t.Context())
	w.check(err)
	got := WhyNot(&RefError{"0-0", "?"}, l).Error()
	if !strings.Contains(got, "epoch 2 replaced "+string(root.ID)) || !strings.HasSuffix(got, "and 4 more") {
		t.Error(got)
	}
	if got := WhyNot(&RefError{"7-7", "?"}, l); got.Reason != "?" {
		t.Error(got)
	}
}

func TestShort(t *testing.T) {
	for id, want := range map[topic.SegmentID]string{
		"00000000-00-k3j9x2ab": "0-0", "00000012-07-k3j9x2ab": "12-7", "123456789-123-x": "123456789-123",
		"": "", "x": "x", "00-00": "00-00", "a-b-c": "a-b-c", "--": "--",
	} {
		if got := Short(id); got != want {
			t.Errorf("%q is %q for short", id, got)
		}
	}
}
