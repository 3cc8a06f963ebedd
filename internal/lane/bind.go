package lane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/topic"
)

// BindingsBucket is the key-value bucket that tells producers, which know no
// filer, to which lane group a topic is bound. The truth is the topic's
// definition on the filer. A topic without an entry uses the default group.
const BindingsBucket = "spillway-topics"

// Binding is a topic's entry.
type Binding struct {
	Group string `json:"group"`
	Lanes int    `json:"lanes"`
	// Topic is the incarnation of the topic for which this was written.
	Topic string `json:"topic"`
}

func parseBinding(name string, data []byte) (Binding, error) {
	var b Binding
	err := json.Unmarshal(data, &b)
	if err == nil {
		err = errors.Join(topic.CheckName(name), CheckSize(b.Group, b.Lanes))
	}
	if err != nil {
		return b, fmt.Errorf("binding of topic %.120q: %w", name, err)
	}
	return b, nil
}

// bindings opens the bucket, making it if it is missing.
func bindings(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: BindingsBucket, Description: "Spillway: which topics are bound to which lane group", History: 1,
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // with other settings: an operator has changed it
		kv, err = js.KeyValue(ctx, BindingsBucket)
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", BindingsBucket, err)
	}
	return kv, nil
}

// Bind tells producers of a topic's lane group. It is called after the topic's
// definition says so. The caller retries.
func Bind(ctx context.Context, js jetstream.JetStream, name string, b Binding) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if _, err := parseBinding(name, data); err != nil {
		return err
	}
	kv, err := bindings(ctx, js)
	if err != nil {
		return err
	}
	if _, err := kv.Put(ctx, name, data); err != nil {
		return fmt.Errorf("bind topic %s: %w", name, err)
	}
	return nil
}

// Unbind removes a topic's entry.
func Unbind(ctx context.Context, js jetstream.JetStream, name string) error {
	kv, err := js.KeyValue(ctx, BindingsBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err == nil {
		err = kv.Delete(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("unbind topic %s: %w", name, err)
	}
	return nil
}

// Bindings reads all entries. Those that nobody can have written in earnest are
// left out.
func Bindings(ctx context.Context, js jetstream.JetStream) (map[string]Binding, error) {
	all := map[string]Binding{}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := FollowBindings(ctx, js, func(c BindingChange) {
		switch {
		case c.Topic == "":
			cancel(errRead)
		case c.Err == nil && c.Bound:
			all[c.Topic] = c.Binding
		}
	})
	if errors.Is(err, errRead) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return all, nil
	}
	return all, err
}

var errRead = errors.New("all is read")

// BindingChange is an entry that is there, or has changed.
type BindingChange struct {
	Topic string // "": all that was there at the start has been told
	Binding
	Bound bool  // false: the entry was removed
	Err   error // the entry is not a binding
}

// FollowBindings tells each entry there is, then a change with no topic, then
// every change, until ctx ends or the watch breaks, and returns why. Callers
// start it anew after each reconnect. jetstream.ErrBucketNotFound: nothing was
// ever bound.
func FollowBindings(ctx context.Context, js jetstream.JetStream, tell func(BindingChange)) error {
	kv, err := js.KeyValue(ctx, BindingsBucket)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", BindingsBucket, err)
	}
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watch bucket %s: %w", BindingsBucket, err)
	}
	defer w.Stop() //nolint:errcheck // the consumer vanishes by itself
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return fmt.Errorf("watch bucket %s: it has ended", BindingsBucket)
			case e == nil:
				tell(BindingChange{})
			case e.Operation() != jetstream.KeyValuePut:
				tell(BindingChange{Topic: e.Key()})
			default:
				b, err := parseBinding(e.Key(), e.Value())
				tell(BindingChange{Topic: e.Key(), Binding: b, Bound: err == nil, Err: err})
			}
		}
	}
}
