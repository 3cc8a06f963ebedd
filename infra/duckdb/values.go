package duckdb

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Literal is text as a literal of SQL.
func Literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// ReadParquet is the table function of SQL that reads these files as one table. Folders'
// names do not become columns.
func ReadParquet(files []string) string {
	quoted := make([]string, len(files))
	for i, f := range files {
		quoted[i] = Literal(f)
	}
	return "read_parquet([" + strings.Join(quoted, ", ") + "], hive_partitioning = false)"
}

func encodeAll(params []any) ([]any, error) {
	encoded := make([]any, len(params))
	for i, p := range params {
		switch p := p.(type) {
		case nil, bool, string:
			encoded[i] = p
		case int:
			encoded[i] = []any{"i", strconv.Itoa(p)}
		case int64:
			encoded[i] = []any{"i", strconv.FormatInt(p, 10)}
		case float64:
			encoded[i] = []any{"f", formatFloat(p)}
		case []byte:
			encoded[i] = []any{"b", base64.StdEncoding.EncodeToString(p)}
		case time.Time:
			encoded[i] = []any{"t", strconv.FormatInt(p.UnixMicro(), 10)}
		default:
			return nil, fmt.Errorf("parameter $%d: DuckDB is not given a %T here", i+1, p)
		}
	}
	return encoded, nil
}

// formatFloat gives a number as JavaScript reads it.
func formatFloat(f float64) string {
	if math.IsInf(f, 0) {
		return strings.Replace(strconv.FormatFloat(f, 'g', -1, 64), "Inf", "Infinity", 1)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// answer is a line of query.mjs.
type answer struct {
	Row  map[string]any `json:"row"`
	Done *struct {
		Rows int     `json:"rows"`
		MS   float64 `json:"ms"`
	} `json:"done"`
	Error string `json:"error"`
	row   Row
}

func decodeAnswer(line []byte) (answer, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var a answer
	if err := d.Decode(&a); err != nil {
		return answer{}, fmt.Errorf("%w in %.200q", err, line)
	}
	if a.Row == nil && a.Done == nil && a.Error == "" {
		return answer{}, fmt.Errorf("no answer: %.200q", line)
	}
	var err error
	a.row, err = decodeFields(a.Row)
	return a, err
}

func decodeFields(fields map[string]any) (Row, error) {
	row := make(Row, len(fields))
	for name, v := range fields {
		var err error
		if row[name], err = decodeValue(v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return row, nil
}

func decodeValue(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, string:
		return v, nil
	case json.Number:
		return decodeInteger(string(v))
	case []any:
		if len(v) == 2 {
			if letter, ok := v[0].(string); ok {
				return decodePair(letter, v[1])
			}
		}
	}
	return nil, fmt.Errorf("no value: %.200v", v)
}

func decodeInteger(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return nil, fmt.Errorf("no whole number: %s", text)
	}
	return n, nil
}

// decodePair decodes a value of a type that JSON does not have.
func decodePair(letter string, v any) (any, error) {
	switch v := v.(type) {
	case string:
		switch letter {
		case "b":
			return base64.StdEncoding.DecodeString(v)
		case "f":
			return strconv.ParseFloat(v, 64)
		case "d":
			return Decimal(v), nil
		}
	case json.Number:
		if micros, err := v.Int64(); letter == "t" && err == nil {
			return time.UnixMicro(micros).UTC(), nil
		}
	case []any:
		if letter == "l" {
			return decodeList(v)
		}
	case map[string]any:
		if letter == "s" {
			return decodeFields(v)
		}
	}
	return nil, fmt.Errorf("no value: %s %.200v", letter, v)
}

func decodeList(items []any) (any, error) {
	list := make([]any, len(items))
	for i, item := range items {
		var err error
		if list[i], err = decodeValue(item); err != nil {
			return nil, err
		}
	}
	return list, nil
}
