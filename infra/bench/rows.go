package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Row is one result. Limit is what the parts below allow, in the same unit, and
// Ratio what was reached of it; both are 0 where there is no limit to compare with.
type Row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Limit float64 `json:"limit"`
	Ratio float64 `json:"ratio"`
}

// limited is a row that is compared with a limit of the same run.
func limited(name string, value float64, unit string, limit float64) Row {
	return Row{name, value, unit, limit, value / limit}
}

// medians puts the runs together, row by row, in the order of the first.
func medians(runs [][]Row) []Row {
	byName := map[string][]Row{}
	var names []string
	for _, run := range runs {
		for _, r := range run {
			if byName[r.Name] == nil {
				names = append(names, r.Name)
			}
			byName[r.Name] = append(byName[r.Name], r)
		}
	}
	rows := make([]Row, 0, len(names))
	for _, name := range names {
		rs := byName[name]
		rows = append(rows, Row{
			Name: name, Unit: rs[0].Unit,
			Value: median(rs, func(r Row) float64 { return r.Value }),
			Limit: median(rs, func(r Row) float64 { return r.Limit }),
			Ratio: median(rs, func(r Row) float64 { return r.Ratio }),
		})
	}
	return rows
}

func median(rows []Row, of func(Row) float64) float64 {
	values := make([]float64, len(rows))
	for i, r := range rows {
		values[i] = of(r)
	}
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// faults is an error if a ratio is above 1: nothing is faster than its limit, so
// it was measured wrong.
func faults(rows []Row) error {
	var bad []string
	for _, r := range rows {
		if r.Ratio > 1 {
			bad = append(bad, fmt.Sprintf("%s: %.1f %s is %.2f of its limit", r.Name, r.Value, r.Unit, r.Ratio))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("measurement fault, a result above its limit: %s", strings.Join(bad, "; "))
	}
	return nil
}

func printTable(w io.Writer, rows []Row) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tvalue\tunit\tlimit\tratio\t")
	for _, r := range rows {
		limit, ratio := "", ""
		if r.Limit > 0 {
			limit, ratio = number(r.Limit), fmt.Sprintf("%.2f", r.Ratio)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t\n", r.Name, number(r.Value), r.Unit, limit, ratio)
	}
	_ = t.Flush() // to a terminal or a buffer
}

func number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func writeJSON(path string, rows []Row) error {
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
