package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedians(t *testing.T) {
	got := medians([][]Row{
		{{"a", 3, "s", 10, 0.3}, {"b", 1, "s", 0, 0}},
		{{"a", 9, "s", 10, 0.9}, {"b", 2, "s", 0, 0}},
		{{"a", 4, "s", 40, 0.1}},
	})
	want := []Row{{"a", 4, "s", 10, 0.3}, {"b", 1.5, "s", 0, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestARatioAboveOneIsAFault(t *testing.T) {
	if err := faults([]Row{limited("a", 10, "MB/s", 10), {Name: "b", Value: 1e9}}); err != nil {
		t.Errorf("within the limit: %v", err)
	}
	if err := faults([]Row{limited("a", 11, "MB/s", 10)}); err == nil {
		t.Error("no error above the limit")
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	printTable(&out, []Row{limited("a", 1500, "MB/s", 3000), {Name: "bb", Value: 2, Unit: "ms"}})
	want := "" +
		"     value   unit   limit   ratio\n" +
		" a    1500   MB/s    3000    0.50\n" +
		"bb     2.0     ms                \n"
	var got bytes.Buffer
	for line := range bytes.Lines(out.Bytes()) {
		got.Write(bytes.TrimPrefix(line, []byte("   ")))
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestPercentile(t *testing.T) {
	sorted := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for p, want := range map[float64]float64{0: 1, 0.5: 5, 0.99: 10, 1: 10} {
		if got := percentile(sorted, p); got != want {
			t.Errorf("percentile %v: %v, want %v", p, got, want)
		}
	}
}
