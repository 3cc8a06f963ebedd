package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"
)

// commands are what scripts can do beside testscript's own:
//
//	code N command…          runs a command that must end with exit code N
//	await FILE REGEXP [NAME] waits until a file that is being written matches; the
//	                         first group goes to the environment variable NAME
//	json FILE                each line of the file, of which there are some, is JSON
//	gzip IN OUT [CUT]        packs a file, and cuts so many bytes off its end
//	http CODE URL FILE       gets a URL, which must answer with the code
//	send SUBJECT DATA        publishes with a plain client and waits for its answer
//	until REGEXP command…    runs a command again and again until it prints a match
//	put FILE URL             makes a file an object on the stack's S3
//	remove URL               deletes an object
//	fill FILE BYTES TEXT     makes a file of so many bytes, repeating a text
//	compacting [alone]       keeps the compactors of other scripts away
//	upload FILE TOPIC NAME   makes a file an uploaded value that no record names yet;
//	                         its URL goes to the environment variable NAME
var commands = map[string]func(*testscript.TestScript, bool, []string){
	"code": code, "await": await, "json": isJSON, "gzip": pack, "http": get, "send": send,
	"until": until, "compacting": holdCompactors, "put": putObject, "remove": removeObject, "fill": fill, "upload": uploadOnly,
}

func arguments(ts *testscript.TestScript, neg bool, args []string, least, most int) {
	if neg || len(args) < least || len(args) > most {
		ts.Fatalf("see commands_test.go for how to use this")
	}
}

func code(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 100)
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 3)
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for limit := time.After(time.Minute); ; {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err != nil && !os.IsNotExist(err) {
			ts.Fatalf("%v", err)
		}
		if m := want.FindSubmatch(text); m != nil {
			if len(args) == 3 {
				ts.Setenv(args[2], string(m[1]))
			}
			return
		}
		select {
		case <-limit:
			ts.Fatalf("%s does not match %s:\n%s", args[0], args[1], text)
		case <-look.C:
		}
	}
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 100)
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for limit := time.After(time.Minute); ; {
		_ = ts.Exec(args[1], args[2:]...) // what it prints is what counts
		text := ts.ReadFile("stdout") + ts.ReadFile("stderr")
		if want.MatchString(text) {
			return
		}
		select {
		case <-limit:
			ts.Fatalf("%v does not print %s:\n%s", args[1:], args[0], text)
		case <-look.C:
		}
	}
}

func isJSON(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, 1)
	if problem := notJSON(ts.ReadFile(args[0])); problem != "" {
		ts.Fatalf("%s: %s", args[0], problem)
	}
}

// notJSON tells what is wrong with lines of JSON.
func notJSON(text string) string {
	if strings.TrimSpace(text) == "" {
		return "it is empty"
	}
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if !json.Valid([]byte(line)) {
			return "this is not JSON: " + line
		}
	}
	return ""
}

func pack(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 3)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, ts.ReadFile(args[0]))
	ts.Check(errors.Join(err, z.Close()))
	cut := 0
	if len(args) == 3 {
		cut, err = strconv.Atoi(args[2])
		ts.Check(err)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes()[:b.Len()-cut], 0o600))
}

func get(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, 3)
	client := http.Client{Timeout: 30 * time.Second}
	resp, err := client.Get(args[1])
	ts.Check(err)
	defer resp.Body.Close() //nolint:errcheck // read-only
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), body, 0o600))
	if args[0] != strconv.Itoa(resp.StatusCode) {
		ts.Fatalf("%s: %s, want %s\n%s", args[1], resp.Status, args[0], body)
	}
}

func send(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 2)
	nc, err := nats.Connect(ts.Getenv("NATS"))
	ts.Check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = js.Publish(ctx, args[0], []byte(args[1]))
	ts.Check(err)
}

// compactors is held by scripts that compact: a compactor that sweeps takes up the
// segments of all topics of the stack that the scripts share.
var compactors sync.RWMutex

// holdCompactors says that a script expects to be the one that compacts its topics, or, with
// "alone", that it runs a compactor for all topics.
func holdCompactors(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 0, 1)
	if len(args) == 0 {
		compactors.RLock()
		ts.Defer(compactors.RUnlock)
		return
	}
	compactors.Lock()
	ts.Defer(compactors.Unlock)
}
