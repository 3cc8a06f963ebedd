package topic

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckReplication(t *testing.T) {
	for _, s := range []string{"", "000", "001", "010", "100", "112", "255"} {
		if err := CheckReplication(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"1", "01", "0001", "256", "999", "00a", "-01", "+01", " 01", "０01", "0x1", strings.Repeat("9", 10000)} {
		var bad *ReplicationError
		if err := CheckReplication(s); !errors.As(err, &bad) || len(err.Error()) > 300 {
			t.Errorf("%.20q: error %v", s, err)
		}
		if err := (Definition{Replication: s}).Validate(); !errors.As(err, &bad) {
			t.Errorf("%.20q in a definition: error %v", s, err)
		}
	}
}
