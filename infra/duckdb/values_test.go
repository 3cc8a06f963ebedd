package duckdb

import (
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeAnswer(t *testing.T) {
	large, _ := new(big.Int).SetString("99999999999999999999", 10)
	a, err := decodeAnswer([]byte(`{"row":{"n":null,"i":9007199254740993,"h":99999999999999999999,"b":["b","AAE="],"f":["f","NaN"],
		"d":["d","1.20"],"t":["t",-1],"l":["l",[1,["l",[]]]],"s":["s",{"x":["s",{}]}],"text":"b"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := a.row["f"].(float64); !ok || f == f {
		t.Errorf("NaN came as %v", a.row["f"])
	}
	delete(a.row, "f")
	want := Row{
		"n": nil, "i": int64(9007199254740993), "h": large, "b": []byte{0, 1}, "d": Decimal("1.20"), "text": "b",
		"t": time.UnixMicro(-1).UTC(), "l": []any{int64(1), []any{}}, "s": Row{"x": Row{}},
	}
	if diff := cmp.Diff(want, a.row, cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{
		``, `{}`, `[]`, `{"row":{"a":1.5}}`, `{"row":{"a":["b"]}}`, `{"row":{"a":["b","!"]}}`, `{"row":{"a":["z","1"]}}`,
		`{"row":{"a":["t",1.5]}}`, `{"row":{"a":["f","x"]}}`, `{"row":{"a":["l",[["q",1]]]}}`, `{"row":{"a":{"b":1}}}`, `{"row":{"a":[1,2]}}`,
	} {
		if a, err := decodeAnswer([]byte(bad)); err == nil {
			t.Errorf("%s gives %+v", bad, a)
		}
	}
}

func TestSQL(t *testing.T) {
	if got, want := Literal("it's"), "'it''s'"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := ReadParquet([]string{"a", "b'"}), "read_parquet(['a', 'b'''], hive_partitioning = false)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := encodeAll([]any{1, struct{}{}}); err == nil {
		t.Error("a parameter of no SQL type was taken")
	}
}
