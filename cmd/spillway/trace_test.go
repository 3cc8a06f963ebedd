package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/tidwall/gjson"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/lane"
)

// TestTraceDuplicate sends a batch a second time, past JetStream's own window: its
// receipt leads to the original, in text and in JSON.
func TestTraceDuplicate(t *testing.T) {
	stack := devtest.Stack(t)
	dir := stack.Info.Dir
	startWorker(t, stack)
	files := t.TempDir()
	in, receipts := filepath.Join(files, "in"), filepath.Join(files, "receipts")
	if err := os.WriteFile(in, []byte("{\"n\":1}\n{\"n\":2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, dir, 0, "topic", "create", "twins", "--flush-age", "50ms")
	command(t, dir, 0, "publish", "twins", in, "--ack", "stored", "--receipts", receipts)
	lines, err := os.ReadFile(receipts)
	if err != nil {
		t.Fatal(err)
	}
	first, err := client.ParseReceipt(gjson.GetBytes(lines, "receipt").Str)
	if err != nil {
		t.Fatal(err)
	}
	again := first
	again.Sequence = sendAgain(t, stack.Info.NATS, first)
	// What comes after it is stored, so the worker has passed it.
	command(t, dir, 0, "publish", "twins", in, "--ack", "stored")

	out, _ := command(t, dir, 0, "trace", again.String())
	for _, want := range []string{
		`message +` + regexp.QuoteMeta(again.String()), `fate +dropped as a duplicate: producer "\w+" had sent its batch 1 before`,
		`the original:\nmessage +` + regexp.QuoteMeta(first.String()) + `\n`, `fate +committed\n`, `offsets +0\n`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("want %s in:\n%s", want, out)
		}
	}
	out, _ = command(t, dir, 0, "trace", again.String(), "--json")
	if got := gjson.GetMany(out, "fate", "original.fate", "original.places.#", "original.sequence"); got[0].Str != "duplicate" ||
		got[1].Str != "committed" || got[2].Int() != 1 || got[3].Uint() != first.Sequence {
		t.Errorf("as JSON: %s", out)
	}
	if out, _ := command(t, dir, 0, "read", "twins", "--output", "raw"); strings.Count(out, "\n") != 4 {
		t.Errorf("records are there twice: %q", out)
	}
}

// sendAgain publishes the message of a receipt anew and returns its sequence.
func sendAgain(t *testing.T, url string, r client.Receipt) uint64 {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	id, err := lane.ParseID(r.Lane)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), id.Stream())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := s.GetMsg(t.Context(), r.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	m := nats.NewMsg(raw.Subject)
	m.Header, m.Data = raw.Header, raw.Data
	m.Header.Del(nats.MsgIdHdr)
	ack, err := js.PublishMsg(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if ack.Sequence <= r.Sequence {
		t.Fatalf("JetStream dropped it: %+v", ack)
	}
	return ack.Sequence
}
