package client

import (
	"strings"
	"testing"
)

func TestReceipts(t *testing.T) {
	r := Receipt{Topic: "t", Lane: "default.0", Incarnation: "k3j9x2", Sequence: 123, Row: 4, Level: Stored}
	if got := r.String(); got != "default.0/k3j9x2@123:4" {
		t.Errorf("String: %q", got)
	}
	got, err := ParseReceipt(r.String())
	r.Topic, r.Level = "", Buffered // not printed
	if err != nil || got != r {
		t.Errorf("ParseReceipt: %+v, %v", got, err)
	}
	for _, bad := range []string{
		"", "default.0", "default.0/", "default.0/k3j9x2", "default.0/k3j9x2@", "default.0/k3j9x2@12",
		"default.0/k3j9x2@0:0", "default.0/k3j9x2@1:-1", "default.0/k3j9x2@1:4294967296", "default.0/k3j9x2@01:1",
		"default.0/@1:1", "default.0/K3@1:1", "default.0/a/b@1:1", "default.00/a@1:1", "default/a@1:1",
		"default.0/k3j9x2@1:1 ", " default.0/k3j9x2@1:1", strings.Repeat("x", 10000),
	} {
		if got, err := ParseReceipt(bad); err == nil || len(err.Error()) > 400 {
			t.Errorf("ParseReceipt(%.40q) = %+v, %v", bad, got, err)
		}
	}
}

func FuzzParseReceipt(f *testing.F) {
	f.Add("default.0/k3j9x2@123:4")
	f.Add("big.17/aaaaaaaa@18446744073709551615:65535")
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := ParseReceipt(s); err == nil && r.String() != s {
			t.Errorf("%q became %q", s, r.String())
		}
	})
}
