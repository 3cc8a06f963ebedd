package verify

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
)

// FuzzFiles: whatever stands in a layout, a description and a seal, it ends in a
// report.
func FuzzFiles(f *testing.F) {
	sound := newLineage()
	for i, l := range sound.layouts {
		f.Add(byte(i), l, "", "")
	}
	f.Add(byte(9), "", `{"id":"00000006-01-hhhhhhhh","range":{"lo":32768,"hi":65536},"floors":[{"lo":9,"hi":3,"source":"a","at":"1:1"}]}`, "")
	f.Add(byte(9), "", `{"id":"00000006-01-hhhhhhhh","range":{"lo":65536,"hi":32768},"parents":[""]}`, "")
	f.Add(byte(9), "", "", "0-65536/"+sourceA+"=9:9@9")
	f.Add(byte(7), `{"epoch":7,"edit":{"parents":["00000006-01-hhhhhhhh"],"children":[{"id":"../../x","lo":0,"hi":1}]},"live":[{"id":"..","lo":0,"hi":65536}],"pending":true}`, "", "")
	f.Add(byte(2), `{"epoch":2,"edit":{"children":[{"id":"","lo":4294967295,"hi":0}]},"live":[{"id":"a","lo":0,"hi":65536}]}`, "", "")
	f.Add(byte(4), strings.Replace(sound.layouts[4], `"lo":8192,"hi":65536}]},`, `"lo":81925536}]},`, 1), "", "")
	f.Fuzz(func(t *testing.T, n byte, layout, description, floors string) {
		model := newLineage()
		if int(n) < len(model.layouts) {
			model.layouts[n] = layout
		}
		if floors = printable(floors); floors != "" {
			model.segs[segH].last().with("Floors", floors)
		}
		model.write(t)
		if description != "" {
			replaced(model.segs[segH].dir()+"/segment.json", func(file *filer.File) { file.Content = []byte(description) })(t, model)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := Topic(ctx, segment.NewStore(model.client, "test"), nil, "flights")
		if err != nil || r.OK != (len(r.Violations) == 0) {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// printable leaves out what no attribute can have.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
}
