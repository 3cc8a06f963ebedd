package lane

import (
	"fmt"
	"strconv"
	"strings"
)

// After names a message that must be committed before the message that bears it:
// the last one that its producer put into a lane that it has left. Since it was
// stored before, what waits for what goes back in time, so that no lanes can
// wait for each other.
type After struct {
	Lane        ID
	Incarnation string
	Sequence    uint64
}

// String gives "default.0=k3j9x2ab:123".
func (a After) String() string {
	return a.Lane.String() + "=" + a.Incarnation + ":" + strconv.FormatUint(a.Sequence, 10)
}

// FormatAfters is the value of the header [HeaderAfter]: a list with commas.
func FormatAfters(all []After) string {
	parts := make([]string, len(all))
	for i, a := range all {
		parts[i] = a.String()
	}
	return strings.Join(parts, ",")
}

// AfterError tells that a [HeaderAfter] is not one that a producer writes.
type AfterError struct{ Text, Reason string }

func (e *AfterError) Error() string {
	return fmt.Sprintf("header %s %.60q: %s; want lane=incarnation:sequence, as in default.0=k3j9x2ab:123", HeaderAfter, e.Text, e.Reason)
}

// ParseAfters reads what [FormatAfters] writes. Errors are an [*AfterError].
func ParseAfters(s string) ([]After, error) {
	parts := strings.SplitN(s, ",", MaxLanes+1)
	if len(parts) > MaxLanes {
		return nil, &AfterError{s, fmt.Sprintf("it names more than %d lanes", MaxLanes)}
	}
	all := make([]After, len(parts))
	for i, part := range parts {
		name, rest, _ := strings.Cut(part, "=")
		inc, num, _ := strings.Cut(rest, ":")
		id, err := ParseID(name)
		if err != nil {
			return nil, &AfterError{s, "no lane"}
		}
		if !isIncarnation(inc) {
			return nil, &AfterError{s, "no incarnation"}
		}
		seq, err := strconv.ParseUint(num, 10, 63)
		if err != nil || seq == 0 {
			return nil, &AfterError{s, "no sequence"}
		}
		all[i] = After{id, inc, seq}
	}
	return all, nil
}

// isIncarnation keeps what comes from outside to what can be part of a file's
// name.
func isIncarnation(s string) bool {
	return len(s) > 0 && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Control is the last token of subjects of messages that are for the workers and
// hold no record. No topic can have that name.
const Control = "_control"
