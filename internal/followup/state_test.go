package followup

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
)

// TestEqualBytes: two who find the same write the same.
func TestEqualBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for _, l := range w.live(t) {
			w.commit(t, l.ID, "pp.pvp")
		}
		w.objects.say(errors.New("odd \" < \u2028"), w.refs[0].url)
		var all [][]byte
		for range 3 {
			w.follow(t)
			data, err := cursor.Encode(w.state(t))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data)
			if err := w.store.Filer.Delete(t.Context(), w.top.Dir()+"/refs.json", ""); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(all[0], all[1]) || !bytes.Equal(all[1], all[2]) {
			t.Errorf("%s", bytes.Join(all, []byte("---\n")))
		}
	})
}

// TestCost: a topic without references costs a few look-ups for itself and each live
// segment; what is written is its state, when segments come, or many chunks have.
func TestCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		reads, writes := 0, 0
		w.Follower = w.follower(segment.NewStore(w.fs.Client("follower", func(op memfs.Op) memfs.Fault {
			if op.Name == "Lookup" || op.Name == "List" {
				reads++
			} else {
				writes++
			}
			return memfs.Fault{}
		}), "test"))
		w.follow(t)
		for _, l := range w.live(t) {
			w.commit(t, l.ID, "..")
		}
		reads, writes = 0, 0
		w.follow(t)
		if reads > 10+5*8 || writes != 0 {
			t.Errorf("8 segments: %d reads, %d writes", reads, writes)
		}
		t.Logf("8 live segments: %d reads", reads)
		for range saveAfter {
			w.commit(t, w.first(t), ".")
		}
		if w.follow(t); writes != 1 {
			t.Errorf("%d writes after many chunks", writes)
		}
		s := w.state(t)
		if s.Segments[0].Chunk != saveAfter+1 {
			t.Errorf("the watermark is at %+v", s.Segments[0])
		}
	})
}

// FuzzState: whatever lies at the state's place, following up ends in order, and what
// is saved then can be read.
func FuzzState(f *testing.F) {
	f.Add([]byte("{}"))
	f.Add([]byte(`{"epoch":0,"segments":[{"segment":"a","chunk":18446744073709551615,"offset":9}],"open":[],"given_up":null}`))
	f.Add([]byte(`{"epoch":18446744073709551615,"segments":[{"segment":"a"}],"open":[{"segment":"b","tries":-9,"due":"2026-01-01T00:00:00Z"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), "p.")
		id := string(w.first(t))
		content = bytes.ReplaceAll(content, []byte(`"a"`), []byte(`"`+id+`"`))
		if err := w.store.Filer.Create(t.Context(), w.top.Dir()+"/refs.json", filer.File{ID: filer.NewID(), Content: content}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Topic(t.Context(), t.Context(), "orders"); err != nil {
			return
		}
		w.state(t)
	})
}
