package client

import (
	"fmt"
	"strings"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Receipt says where in which lane a record went. With it a record can be
// followed into its file.
type Receipt struct {
	Topic       string
	Lane        string // "default.0"
	Incarnation string // of the lane
	Sequence    uint64 // of the message in the lane
	Row         uint32 // of the record in the message
	Level       Level  // how far it is known to have got
}

// String gives "default.0/k3j9x2@123:4": lane, incarnation, sequence and row.
// Topic and level are not part of it.
func (r Receipt) String() string {
	return fmt.Sprintf("%s/%s@%d:%d", r.Lane, r.Incarnation, r.Sequence, r.Row)
}

// ParseReceipt reads what [Receipt.String] writes.
func ParseReceipt(s string) (Receipt, error) {
	bad := func(why string) (Receipt, error) {
		return Receipt{}, fmt.Errorf("receipt %.80q: %s; want lane/incarnation@sequence:row, as in default.0/k3j9x2@123:4", s, why)
	}
	name, rest, _ := strings.Cut(s, "/")
	id, err := lane.ParseID(name)
	if err != nil || id.String() != name {
		return bad("no lane")
	}
	inc, at, found := strings.Cut(rest, "@")
	if !found || inc == "" || strings.Trim(inc, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return bad("no incarnation")
	}
	pos, err := topic.ParsePosition(at)
	if err != nil || pos.String() != at || pos.Sequence == 0 || !strings.Contains(at, ":") {
		return bad("no position")
	}
	return Receipt{Lane: name, Incarnation: inc, Sequence: pos.Sequence, Row: pos.Row}, nil
}
