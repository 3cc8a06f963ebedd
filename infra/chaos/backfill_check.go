package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/infra/rig"
)

// check verifies the topic, and compares what is in it with the files and with what
// the publishers were told.
func (b *backfills) check(ctx context.Context) (string, error) {
	dropped, err := b.summaries(ctx)
	if err != nil {
		return "", err
	}
	bulk, live := rig.NewBulkComparison(), b.ledger.Compare()
	for _, j := range b.jobs {
		if err := bulk.Expect(j.Job, j.objects); err != nil {
			return "", err
		}
	}
	err = rig.ReadSources(ctx, b.env.Store, bulkTopic, func(r rig.SourcedRecord) {
		if !bulk.Add(r) {
			live.Add(r.Live())
		}
	})
	if err != nil {
		return "", err
	}
	if ok := bulk.Done(); !live.Done() || !ok {
		problems := slices.Concat(bulk.Problems, live.Problems)
		return "", fmt.Errorf("%d problems:\n  %s", len(problems)+bulk.More+live.More, strings.Join(problems, "\n  "))
	}
	b.say("read back %d rows, each once and in the order of its key in its source, and %d live records, likewise", bulk.Read, live.Read)
	if err := b.verified(ctx, bulk.Read+live.Read); err != nil {
		return "", err
	}
	return b.summary(ctx, bulk, live, dropped)
}

// summaries compares what the jobs say they did with the files, and gives how many
// rows they dropped since they were in already.
func (b *backfills) summaries(ctx context.Context) (dropped uint64, err error) {
	for _, j := range b.jobs {
		s, err := j.all.State(ctx, j.ID)
		if err != nil {
			return 0, err
		}
		sum := s.Summary
		if sum == nil || sum.Rows != uint64(j.objects.Rows()) || sum.Bytes != j.objects.Bytes() ||
			sum.Objects != uint64(len(j.objects.Names)) || sum.Rejected+sum.Filtered+sum.Failed > 0 {
			return 0, fmt.Errorf("the summary of job %s is %+v, and there are %d rows of %d bytes in %d objects",
				j.ID, sum, j.objects.Rows(), j.objects.Bytes(), len(j.objects.Names))
		}
		dropped += sum.Dropped
	}
	return dropped, nil
}

// verified has `spillway verify` say the same.
func (b *backfills) verified(ctx context.Context, records int) error {
	out, err := b.env.CLI(ctx, "verify", bulkTopic, "--json")
	if err != nil {
		return errors.Join(err, fmt.Errorf("verify: %.2000s", out))
	}
	var report struct {
		OK      bool `json:"ok"`
		Records int  `json:"records"`
		Chunks  int  `json:"chunks"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return fmt.Errorf("spillway verify printed no report: %w", err)
	}
	if !report.OK || report.Records != records {
		return fmt.Errorf("verify does not agree with the reader: ok %v, %d records, read %d", report.OK, report.Records, records)
	}
	b.say("verified: %d records in %d chunks", report.Records, report.Chunks)
	return nil
}

// summary tells what a round that passed has been through.
func (b *backfills) summary(ctx context.Context, bulk *rig.BulkComparison, live *rig.Comparison, dropped uint64) (string, error) {
	edits, err := b.env.Edits(ctx, bulkTopic, 0)
	if err != nil {
		return "", err
	}
	if len(edits) == 0 {
		return "", errors.New("nobody edited the topic: that is no test")
	}
	kills, restarts := 0, int64(0)
	for _, j := range b.jobs {
		kills += j.kills
		restarts += j.runs.restarts.Load()
	}
	what := "a sample of the flights"
	if b.full {
		what = "all flights"
	}
	return fmt.Sprintf("backfills of %s, from %d Parquet and %d NDJSON objects: %d rows read back, each once and in order (%d were brought again and dropped), "+
		"beside %d live records, each once; %d kills of their runs (%d ended by themselves), %d of workers, %d of weed, %d of planners; %d edits",
		what, len(b.jobs[0].objects.Names), len(b.jobs[1].objects.Names), bulk.Read, dropped, live.Read,
		kills, restarts, b.kills.worker, b.kills.weed, b.killer.kills, len(edits)), nil
}
