package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/lane"
)

// noiseSize is how many random bytes there are; records take their values from
// it in turn, farther apart than any compressor looks back.
const noiseSize = 64 << 20

// lab is what the benchmarks work with.
type lab struct {
	env     *rig.Env
	lane    *rig.Lane
	worker  *rig.Process
	flights []rig.Flight
	noise   []byte
	quick   bool
	large   int // distinct objects of 64 MiB
	run     int
	limit   float64 // MB/s, what the parts below allow in this run
	bulk    *bulk   // nil: not put yet
}

// openLab starts the stack and a resident ingest worker in a process of its own.
func openLab(ctx context.Context, o options) (_ *lab, err error) {
	l := &lab{noise: make([]byte, noiseSize), quick: o.quick, large: o.large}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(l.noise) // never fails
	if l.flights, err = rig.Flights(); err != nil {
		return nil, err
	}
	if l.env, err = rig.Open(ctx, o.cfg); err != nil {
		return nil, err
	}
	if l.worker, err = l.env.StartWorker(); err == nil {
		l.lane, err = l.env.WaitLane(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lab) close() error {
	if l.worker != nil {
		l.worker.Kill()
	}
	if l.bulk != nil {
		l.bulk.store.Close()
	}
	return l.env.Close()
}

// once runs every benchmark that is wanted.
func (l *lab) once(ctx context.Context, run int, wanted func(benchmark) bool) ([]Row, error) {
	l.run = run
	var rows []Row
	for _, b := range benchmarks {
		if !wanted(b) {
			continue
		}
		begin := time.Now()
		got, err := b.run(ctx, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
		for i := range got {
			got[i].Name = strings.TrimSuffix(b.name+"/"+got[i].Name, "/")
			fmt.Fprintf(os.Stderr, "run %d  %-34s %12s %s\n", run+1, got[i].Name, number(got[i].Value), got[i].Unit)
		}
		fmt.Fprintf(os.Stderr, "run %d  %s took %.1f s\n", run+1, b.name, time.Since(begin).Seconds())
		rows = append(rows, got...)
	}
	return rows, nil
}

// topic makes a topic of this run and gives its name.
func (l *lab) topic(ctx context.Context, base string, flags ...string) (string, error) {
	name := fmt.Sprintf("%s-%d", base, l.run)
	_, err := l.env.CLI(ctx, append([]string{"topic", "create", name, "--key", "header"}, flags...)...)
	return name, err
}

// trim does at once what the trimmer does later, so that the lane has room for
// what comes next: it removes what is committed, but for the last message.
func (l *lab) trim(ctx context.Context) error {
	at, err := l.lane.Checkpoint(ctx)
	if err != nil {
		return err
	}
	s, err := l.env.JS.Stream(ctx, lane.ID{Group: lane.Default}.Stream())
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSequence(at))
}

// scale is how much to do: a tenth when it has to be quick.
func (l *lab) scale(n int) int {
	if l.quick {
		return n / 10
	}
	return n
}

func megabytes(bytes int, took time.Duration) float64 { return float64(bytes) / 1e6 / took.Seconds() }
