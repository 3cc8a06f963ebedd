// Package client publishes records to Spillway.
//
// # Publishing
//
// A [Producer] gathers records into batches and sends them to a lane, which is a
// JetStream stream from which workers write the records into files:
//
//	p, err := client.Connect("nats://127.0.0.1:4222", client.Options{})
//	...
//	defer p.Close(ctx)
//	pending, err := p.Publish(ctx, "flights", client.Record{Key: []byte("ABQ"), Value: data})
//	...
//	receipt, err := pending.Wait(ctx)
//
// Publish returns as soon as the record is in a batch. Wait tells its outcome.
// Do not wait for one record before publishing the next unless you must: batches
// are what makes publishing fast. Programs that publish a lot hold on to their
// Pendings and look at them later, or not at all: [Producer.Flush] waits for
// everything handed in so far and tells whether something failed. Where a single
// record has to be out before the program goes on, use [Producer.PublishSync],
// which does not linger; when many goroutines use it at once they share batches
// all the same.
//
// A producer is safe for concurrent use. One is enough for a program, for any
// number of topics.
//
// # Large payloads
//
// A lane takes values of up to [MaxValue] bytes. What is larger goes to S3, and a
// record with a [Reference] to it goes through the lane. With [Objects] that have
// a bucket, Publish does so by itself: it uploads the value under
// spillway/TOPIC/SHA-256, unless an object of that name, size and digest is there,
// and then publishes the reference. So a Publish that is repeated, because the
// program died before it was answered, say, finds its object and uploads nothing.
// The call lasts as long as the upload, and the value stays where it is: memory is
// a matter of the caller, and of 16 MiB parts, a few per call.
//
// What is on S3 already, or was put there by other means, is published with
// [Producer.Submit]. An object may be a file of many records, whose reference then
// has a [Batch]; readers get its rows. [Objects.Upload] puts a file there.
//
// A topic says which buckets its references may name; the ingest worker looks at
// each object, and rejects references to others, and to objects that are not as
// they say. It pins the objects of accepted records, if they are on Spillway's own
// filer: nothing of Spillway deletes them then, and lifecycle rules and people still
// can. Readers verify what they read. `spillway refs check` finds what was uploaded
// and never published. On topics that take their key from the value a reference
// keeps the key that it is published with.
//
// The AWS SDK makes a program that opens Objects about 5 MB larger, and others half
// a MB: what they never call is not linked.
//
// # What an outcome stands for
//
// [Buffered]: JetStream has the record in a lane. It survives a crash of this
// program, of the workers, and of the server's process. What else it survives is
// a matter of the lane's replicas and of the server's sync_interval: with one
// replica and the default of two minutes, a power failure can lose the records of
// the last two minutes; with three replicas in three places, that of one of them
// loses nothing; with "sync_interval: always" nothing is lost as long as the disk
// lives.
//
// [Stored]: the record is in a committed file on the SeaweedFS filer, and stays
// there whatever becomes of JetStream. What that survives is a matter of the
// replication and of the fsync setting of the filer's path. It takes a flush of a
// worker longer, usually well under a second, and forever when no worker runs;
// Wait ends with its context then. Choose it for a producer in [Options] or for a
// call with [WithAck].
//
// A record is in the topic's files exactly once, however often this package had
// to send it: each batch carries the producer's id and a dense sequence number,
// by which workers drop what they have seen.
//
// # Order
//
// Records that one goroutine publishes to one topic with one key are kept, and
// read back, in that order. So are those of different goroutines if one Publish
// returned before the other was called. There is no order between topics, between
// keys that lie in different lanes of a group with several, and between records
// that go different ways, through this package and through plain NATS messages.
// Where records without a key must keep their order, use a group of one lane, as
// the default group is. Where a topic takes its key from the value, publish with
// that same key if its lane group has several lanes.
//
// A topic can be bound to another lane group at any time. The producer follows,
// and the order of keys holds: see docs/adr/0010-lane-groups.md.
//
// # Waiting and retrying
//
// Failed attempts are repeated by the producer and by nobody else: when the
// connection breaks, while servers elect a leader or restart, when an answer is
// late, when the lane is full because workers do not keep up. Meanwhile up to
// MaxBuffered bytes of records wait, and then Publish blocks: that is how a slow
// lane slows its producers down. After RetryBudget without any progress a batch
// fails, all its records with the same error, and the next batch gets its turn;
// so there may be gaps in what arrives, but no disorder.
//
// [NotStored] sorts the errors. It is true where the record is certainly in no
// lane: [*LaneFullError], [*UnavailableError], [*RejectedError], [ErrClosed] and
// everything that Publish itself returns. Publish such a record again if it still
// matters, once the cause is gone.
//
// It is false for [*UnknownOutcomeError]: the batch was sent, its answer did not
// come, and it may be in the lane, or may arrive there yet. To publish it again
// may double it, not to may lose it, and only the program knows which is worse:
//
//   - If readers can tell doubles apart, by an id in the value, or if writing a
//     value twice does no harm, publish it again.
//   - Otherwise look: the error names the producer and the sequence, and records
//     carry these in their files. A record that is not there when a later batch
//     from anywhere in the same lane is there can still arrive only while the
//     broken connection's bytes are on their way: seconds, not hours.
//   - Or fail, loudly, and leave it to people.
//
// It is false as well for [*UnconfirmedError], which is no failure: the record is
// in the lane, and the wait for it to be stored was given up.
//
// # Without this package
//
// Any NATS client can publish, one record a message, to spillway.in.TOPIC, with
// the key in the header Spillway-Key and the event time, in RFC 3339, in
// Spillway-Event-Time. Use a JetStream publish, which is answered, and a
// Nats-Msg-Id, by which JetStream drops what is sent again within two minutes.
package client
