package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/object"
)

const (
	refsTopic   = "chaos-refs"
	refsObjects = 48
	refsPace    = 150 // references a second
	refsSize    = 100 // bytes of an object
)

// Of the references that are submitted, one in so many is to an object that is
// another one than it says, or to one that is not there.
const (
	wrongEvery  = 7
	absentEvery = 11
)

// references are submitted while things are killed. What each one's object is, is
// known, so that it is known how its record may end.
type references struct {
	env  *rig.Env
	objs []client.Reference

	mu    sync.Mutex
	sent  int
	acked map[int]bool
}

// newReferences makes the topic and the objects.
func newReferences(ctx context.Context, env *rig.Env) (*references, error) {
	info := env.Stack.Info
	if _, err := env.CLI(ctx, "topic", "create", refsTopic, "--allow", info.Bucket+"/"+refsTopic+"/"); err != nil {
		return nil, err
	}
	store, err := object.Open(ctx, object.Config{Endpoint: info.S3.URL, AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	r := &references{env: env, acked: map[int]bool{}}
	for i := range refsObjects {
		n := object.Name{Bucket: info.Bucket, Key: fmt.Sprintf("%s/%d", refsTopic, i)}
		put, err := store.Put(ctx, n, strings.NewReader(strings.Repeat("x", refsSize)), refsSize, object.PutOptions{})
		if err != nil {
			return nil, err
		}
		r.objs = append(r.objs, client.Reference{URL: n.String(), Size: refsSize, ETag: put.ETag})
	}
	return r, nil
}

// reference is the n-th that is submitted.
func (r *references) reference(n int) client.Reference {
	ref := r.objs[n%len(r.objs)]
	switch {
	case n%wrongEvery == 1:
		ref.Size++
	case n%absentEvery == 2:
		ref.URL += ".none"
	}
	return ref
}

// allowed says how the n-th record may end: pending is always possible, since S3 or
// the filer may be down while it is looked at.
func allowed(n int, rejected string, pending bool) bool {
	switch {
	case pending:
		return true
	case n%wrongEvery == 1:
		return strings.Contains(rejected, "its size is")
	case n%absentEvery == 2:
		return false // nothing but pending
	}
	return rejected == ""
}

// submit submits references until ctx ends, whatever is killed meanwhile.
func (r *references) submit(ctx context.Context) error {
	pace := rate.NewLimiter(refsPace, refsPace)
	var g errgroup.Group
	for ctx.Err() == nil {
		p, err := client.NewProducer(r.env.NATS, client.Options{})
		if err != nil {
			return err
		}
		for pace.Wait(ctx) == nil {
			n := r.next()
			pending, err := p.Submit(ctx, refsTopic, r.reference(n), client.Record{
				Key: fmt.Appendf(nil, "k%d", n%97), Headers: []client.Header{{Name: rig.NumberHeader, Value: fmt.Append(nil, n)}},
			}, client.Unchecked())
			if err != nil {
				break // it takes no more: another one does
			}
			g.Go(func() error {
				if _, err := pending.Wait(context.WithoutCancel(ctx)); err == nil {
					r.note(n)
				}
				return nil
			})
		}
		if err := p.Close(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
			continue // what it could not send has no receipt
		}
	}
	return g.Wait()
}

func (r *references) next() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	return r.sent - 1
}

func (r *references) note(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked[n] = true
}

// check reads all back: each acknowledged reference is there once, and ends as its
// object lets it. Then the follow-up runs, and nothing that is there lacks its pin.
func (r *references) check(ctx context.Context) (summary string, err error) {
	out, err := r.env.CLI(ctx, "read", refsTopic, "--all")
	if err != nil {
		return "", err
	}
	seen, ends, err := r.records(out)
	if err != nil {
		return "", err
	}
	for n := range r.acked {
		if !seen[n] {
			return "", fmt.Errorf("reference %d was acknowledged and is not there", n)
		}
	}
	if _, err := r.env.CLI(ctx, "verify", refsTopic, "--json"); err != nil {
		return "", err
	}
	if err := r.followedUp(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d references submitted, %d acknowledged, %d read back, each once: %d verified and pinned, %d pending, %d rejected",
		r.sent, len(r.acked), len(seen), ends["verified"], ends["pending"], ends["rejected"]), nil
}

// records reads what `spillway read` printed, and counts how the records ended.
func (r *references) records(out []byte) (seen map[int]bool, ends map[string]int, err error) {
	seen, ends = map[int]bool{}, map[string]int{}
	last := map[string]int{} // of each key
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var v struct {
			Key      string
			Rejected string
			Headers  []struct{ Name, Value string }
			Ref      struct{ State string }
		}
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil || len(v.Headers) != 1 {
			return nil, nil, fmt.Errorf("spillway read printed %.200q: %w", lines.Bytes(), err)
		}
		var n int
		if _, err := fmt.Sscan(v.Headers[0].Value, &n); err != nil {
			return nil, nil, err
		}
		pending := v.Ref.State == "pending"
		switch {
		case seen[n]:
			return nil, nil, fmt.Errorf("reference %d is there twice", n)
		case n < last[v.Key]:
			return nil, nil, fmt.Errorf("reference %d comes after reference %d of its key", n, last[v.Key])
		case !allowed(n, v.Rejected, pending):
			return nil, nil, fmt.Errorf("reference %d, %+v, ended wrong: %s", n, r.reference(n), lines.Bytes())
		case pending:
			ends["pending"]++
		case v.Rejected != "":
			ends["rejected"]++
		default:
			ends["verified"]++
		}
		seen[n], last[v.Key] = true, n
	}
	return seen, ends, lines.Err()
}

// followedUp waits until the follow-up has looked at what is pending.
func (r *references) followedUp(ctx context.Context) error {
	for {
		_, err := r.env.CLI(ctx, "run", "refs", "--once", "--all", "--retry-after", "1s", "--retry-at-most", "1s")
		if err != nil && ctx.Err() != nil {
			return err
		}
		out, err := r.env.CLI(ctx, "refs", "check", refsTopic, "--json") // it fails: some are missing
		var report struct {
			States   map[string]int `json:"states"`
			Unpinned int            `json:"unpinned"`
		}
		if bad := json.Unmarshal(out, &report); bad != nil {
			return errors.Join(fmt.Errorf("spillway refs check printed no report: %w", bad), err)
		}
		if report.Unpinned == 0 && report.States["pending"] == 0 {
			return nil
		}
		if err := rig.Pause(ctx, time.Second); err != nil {
			return fmt.Errorf("after the follow-up %v, and %d objects without a pin: %w", report.States, report.Unpinned, err)
		}
	}
}
