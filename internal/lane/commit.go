package lane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// EnsureCommitStream makes the stream that holds the last announcement of every
// lane, if it is missing. It may be called by many at once.
func EnsureCommitStream(ctx context.Context, js jetstream.JetStream) error {
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name:              CommitStream,
		Description:       "Spillway: the last announced checkpoint of every lane",
		Subjects:          []string{commitPrefix + ">"},
		Storage:           jetstream.FileStorage,
		MaxMsgsPerSubject: 1,
		MaxMsgSize:        4 << 10,
		MaxBytes:          16 << 20,
		Discard:           jetstream.DiscardOld,
		AllowDirect:       true,
	})
	// In use with other settings: an operator has changed it, replicas for example.
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("make stream %s: %w", CommitStream, err)
	}
	return nil
}

// Announce publishes a lane's checkpoint to those who [Watch] it. It is called
// after the checkpoint is durable; on return the announcement is in
// [CommitStream]. An announcement that fails is lost without harm: the next one
// says as much and more.
func Announce(ctx context.Context, js jetstream.JetStream, a Announcement) error {
	id, err := ParseID(a.Lane)
	if err != nil {
		return err
	}
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("announce %s: %w", id, err)
	}
	if _, err := js.Publish(ctx, id.CommitSubject(), data, jetstream.WithExpectStream(CommitStream)); err != nil {
		return fmt.Errorf("announce %s: %w", id, err)
	}
	return nil
}
