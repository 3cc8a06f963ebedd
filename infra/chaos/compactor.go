package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/rig"
)

// compactors is how many work on the same topics. By their flags there is always
// something of every step under way: files of a megabyte, chunks that go after a
// second.
const compactors = 2

var compactorFlags = []string{"--period", "1s", "--grace", "1s", "--file-size", "1MiB"}

// compactorKiller kills compactors again and again, whatever they are doing.
type compactorKiller struct {
	compactors []*supervisor
	rng        *rand.Rand
	kills      int // read after run
}

func newCompactorKiller(env *rig.Env, seed uint64) *compactorKiller {
	k := &compactorKiller{rng: rand.New(rand.NewPCG(seed, 3))}
	for range compactors {
		k.compactors = append(k.compactors, newSupervisor(func() (*rig.Process, error) {
			return env.Start("compactor", "compact", append([]string{"run", "compact"}, compactorFlags...)...)
		}))
	}
	return k
}

// run keeps them running, and kills them, until the context ends.
func (k *compactorKiller) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range k.compactors {
		g.Go(func() error { return c.run(ctx) })
	}
	g.Go(func() error {
		for rig.Pause(ctx, shortLife+time.Duration(k.rng.Int64N(int64(longLife-shortLife)))) == nil {
			one := k.compactors[k.rng.IntN(compactors)]
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			if one.kill(short, time.Duration(k.rng.Int64N(int64(maxPause)))) == nil {
				k.kills++
			}
			cancel()
		}
		return nil
	})
	return g.Wait()
}

// compactAll compacts what is left, so that all records are in data files and no
// chunk is left, and checks once more.
func (c *chaos) compactAll(ctx context.Context, k *compactorKiller) (string, error) {
	if _, err := c.env.CLI(ctx, "compact", topicName, "--roll", "--grace", "0s"); err != nil {
		return "", err
	}
	if err := c.check(ctx); err != nil {
		return "", fmt.Errorf("after everything was compacted: %w", err)
	}
	out, err := c.env.CLI(ctx, "verify", topicName, "--json")
	var report struct {
		Records   int `json:"records"`
		Compacted int `json:"compacted"`
		DataFiles int `json:"data_files"`
		TableRows int `json:"table_rows"`
		Chunks    int `json:"chunks"`
	}
	if err := errors.Join(err, json.Unmarshal(out, &report)); err != nil {
		return "", err
	}
	if report.TableRows != report.Records || report.Compacted == 0 || k.kills == 0 {
		return "", fmt.Errorf("%d records in %d compacted segments, %d rows in the table, after %d kills of compactors", report.Records, report.Compacted, report.TableRows, k.kills)
	}
	return fmt.Sprintf("%d kills of compactors; %d rows in the table, in %d files of %d segments",
		k.kills, report.TableRows, report.DataFiles, report.Compacted), nil
}
