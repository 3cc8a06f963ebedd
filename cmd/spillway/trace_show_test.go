package main

import (
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestNumbers: runs of numbers are written short, and many of them are cut.
func TestNumbers(t *testing.T) {
	rows := func(list ...uint32) (places []inspect.Place) {
		for _, n := range list {
			var p inspect.Place
			p.Position = topic.Position{Sequence: 1, Row: n}
			places = append(places, p)
		}
		return places
	}
	of := func(p inspect.Place) uint64 { return uint64(p.Position.Row) }
	for want, list := range map[string][]uint32{"": nil, "0": {0}, "3-5": {3, 4, 5}, "0, 2-3, 7": {0, 2, 3, 7}} {
		if got := numbers(rows(list...), of); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
	var odd []uint32
	for i := range uint32(1000) {
		odd = append(odd, 2*i)
	}
	if got := numbers(rows(odd...), of); !strings.HasSuffix(got, ", 38, … (1000 in all)") {
		t.Errorf("many: %q", got)
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{"plain": "plain", "a\nb\x1b[31mc\x00": "a b [31mc ", "ü…": "ü…"} {
		if got := oneLine(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := []rune(oneLine(strings.Repeat("ü", 1e6))); len(got) != 400 {
		t.Errorf("%d runes are left of a million", len(got))
	}
}
