package segment

import (
	"errors"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestStorageOfChunks: chunks are uploaded with their topic's settings, the ones
// that are encoded again after a lost race too.
func TestStorageOfChunks(t *testing.T) {
	fs := memfs.New()
	def := orders
	def.Replication, def.Fsync = "001", true
	top, err := testStore(fs, nil).CreateTopic(t.Context(), def, 1, noon)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		segs, err := top.Segments(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := mustAppend(t, segs[0], input(t, "a", 1, uint64(i+1)))
		for _, b := range out.Chunk.Entry.Blobs {
			if how, err := fs.StorageOf(b.ID); err != nil || how != (filer.Storage{Replication: "001", Fsync: true}) {
				t.Errorf("chunk %d was stored with %+v, error %v", i, how, err)
			}
		}
		if len(out.Chunk.Entry.Blobs) == 0 {
			t.Errorf("chunk %d has no blobs", i)
		}
	}
	again, err := testStore(fs, nil).Topic(t.Context(), def.Name)
	if err != nil || again.Replication != "001" || !again.Fsync {
		t.Errorf("the definition came back as %+v, error %v", again, err)
	}
}

// TestTopicThatWouldVanish: no topic is made where its files, or the checkpoints,
// would expire; nothing is left of the attempt.
func TestTopicThatWouldVanish(t *testing.T) {
	rule := filer.Expiry{Rule: "the rule", What: "ttl 1d"}
	for prefix, refused := range map[string]bool{
		"/buckets/": true, "/buckets/test/topics/": true, "/buckets/test/topics/ord": true, "/buckets/test/topics/orders/x/": true,
		"/buckets/test/checkpoints/": true, "/buckets/test/topics/other/": false, "/buckets/test/payloads/": false, "/buckets/tes1/": false,
	} {
		fs := memfs.New()
		fs.SetExpiry(prefix, rule)
		_, err := testStore(fs, nil).CreateTopic(t.Context(), orders, 1, noon)
		var found *filer.ExpiryError
		switch {
		case errors.As(err, &found) != refused, refused && !strings.Contains(err.Error(), "the rule: ttl 1d"):
			t.Errorf("rule for %s: error %v", prefix, err)
		case refused && len(fs.Paths()) > 0:
			t.Errorf("rule for %s: left %v", prefix, fs.Paths())
		}
	}
}

// TestTopicThatCannotBeStored: a topic is refused whose chunks nobody could store.
func TestTopicThatCannotBeStored(t *testing.T) {
	fs := memfs.New()
	def := orders
	def.Replication = "001"
	fs.SetReadOnly("/buckets/test/topics", true)
	_, err := testStore(fs, nil).CreateTopic(t.Context(), def, 1, noon)
	var refused *filer.StorageError
	if !errors.As(err, &refused) || len(fs.Paths()) > 0 {
		t.Errorf("error %v, left %v", err, fs.Paths())
	}
	def.Replication = "2"
	var bad *topic.ReplicationError
	if _, err := testStore(fs, nil).CreateTopic(t.Context(), def, 1, noon); !errors.As(err, &bad) {
		t.Errorf("nonsense: error %v", err)
	}
}
