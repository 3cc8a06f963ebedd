package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/internal/lane"
)

// startNATS stands in for a Spillway installation: a nats-server with the default
// lane, and somebody who announces that what arrives is stored.
func startNATS() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "example")
	check(err)
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	})
	check(err)
	go s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		log.Fatal("the server is not ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	check(err)
	js, err := jetstream.New(nc)
	check(err)
	ctx := context.Background()
	id := lane.ID{Group: lane.Default}
	info, err := lane.Ensure(ctx, js, id, lane.Settings{MaxBytes: 16 << 20})
	check(err)
	check(lane.EnsureCommitStream(ctx, js))
	worker, err := js.OrderedConsumer(ctx, info.Stream, jetstream.OrderedConsumerConfig{})
	check(err)
	work, err := worker.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		check(err)
		_ = lane.Announce(ctx, js, lane.Announcement{ // the next one makes up for a lost one
			Lane: id.String(), Incarnation: info.Incarnation, Checkpoint: meta.Sequence.Stream,
		})
	})
	check(err)
	return s.ClientURL(), func() {
		work.Stop()
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Publish a record and wait until it is in the lane.
func Example() {
	url, stop := startNATS()
	defer stop()
	ctx := context.Background()

	p, err := client.Connect(url, client.Options{})
	check(err)
	pending, err := p.Publish(ctx, "flights", client.Record{
		Key:       []byte("ABQ"),
		Value:     []byte(`{"delay": 12}`),
		Headers:   []client.Header{{Name: "carrier", Value: []byte("WN")}},
		EventTime: time.Date(2001, 1, 14, 9, 30, 0, 0, time.UTC),
	})
	check(err)
	receipt, err := pending.Wait(ctx)
	check(err)
	fmt.Printf("%v in lane %s, message %d, row %d\n", receipt.Level, receipt.Lane, receipt.Sequence, receipt.Row)

	again, err := client.ParseReceipt(receipt.String())
	check(err)
	fmt.Println(again.Sequence == receipt.Sequence)
	check(p.Close(ctx))
	// Output:
	// buffered in lane default.0, message 1, row 0
	// true
}

// Publish many records, and only then ask whether all arrived.
func ExampleProducer_Flush() {
	url, stop := startNATS()
	defer stop()
	ctx := context.Background()

	p, err := client.Connect(url, client.Options{})
	check(err)
	for i := range 10_000 {
		_, err := p.Publish(ctx, "flights", client.Record{Key: fmt.Appendf(nil, "airport-%d", i%300), Value: []byte("...")})
		check(err)
	}
	if err := p.Flush(ctx); err != nil {
		var failed *client.FailedError
		if errors.As(err, &failed) {
			fmt.Println(failed.Records, "records failed")
		}
		log.Fatal(err)
	}
	fmt.Println("all arrived")
	check(p.Close(ctx))
	// Output: all arrived
}

// Wait until a record is in a file.
func ExampleWithAck() {
	url, stop := startNATS()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	p, err := client.Connect(url, client.Options{})
	check(err)
	receipt, err := p.PublishSync(ctx, "payments", client.Record{Value: []byte("17.50")}, client.WithAck(client.Stored))
	check(err)
	fmt.Println(receipt.Level)
	check(p.Close(ctx))
	// Output: stored
}

// Tell a record that is certainly lost from one that may have arrived.
func ExampleNotStored() {
	url, stop := startNATS()
	defer stop()
	ctx := context.Background()

	p, err := client.Connect(url, client.Options{})
	check(err)
	_, err = p.PublishSync(ctx, "Flights/2001", client.Record{})
	fmt.Println(err)
	fmt.Println("may be published again:", client.NotStored(err))
	check(p.Close(ctx))
	// Output:
	// topic name "Flights/2001": 'F' is not allowed; use a-z, 0-9, '-' and '_'
	// may be published again: true
}

// Publish without this package: any NATS client will do.
func Example_plainNATS() {
	url, stop := startNATS()
	defer stop()

	nc, err := nats.Connect(url)
	check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	check(err)
	msg := nats.NewMsg("spillway.in.flights")
	msg.Header.Set("Spillway-Key", "ABQ")
	msg.Data = []byte(`{"delay": 12}`)
	ack, err := js.PublishMsg(context.Background(), msg, jetstream.WithMsgID("flight-WN-417-2001-01-14"))
	check(err)
	fmt.Println(ack.Stream, ack.Sequence)
	// Output: spillway-lane-default-0 1
}

// A payload that is on S3 already: the record refers to it. Values over MaxValue
// go to the bucket by themselves.
func ExampleProducer_Submit() {
	ctx := context.Background()
	objects, err := client.OpenObjects(ctx, client.ObjectsConfig{
		Endpoint: "http://127.0.0.1:8333", AccessKey: "key", SecretKey: "secret", Bucket: "payloads",
	})
	check(err)
	p, err := client.Connect("nats://127.0.0.1:4222", client.Options{Objects: objects})
	check(err)
	pending, err := p.Submit(ctx, "images", client.Reference{URL: "s3://photos/cat.png"}, client.Record{Key: []byte("cat")})
	if bad, ok := errors.AsType[*client.ReferenceError](err); ok {
		fmt.Println("not published, the object is", bad.State)
		return
	}
	check(err)
	_, err = pending.Wait(ctx)
	check(err)
}
