package main

import (
	"context"
	"errors"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/topic"
)

// runOptions of one call.
type runOptions struct {
	backfillOptions
	sources                  []string
	manifest                 string
	dryRun, detach, progress bool

	how    backfill.Read
	as     backfill.As
	limits backfill.Limits
}

func (a *app) backfillRun() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use: "run TOPIC SOURCE...", Short: "Make records of files, a record of each row", Args: usage(cobra.MinimumNArgs(1)),
		Long: `Makes a job of what SOURCE names, and works on it until it is done. SOURCE is
s3://bucket/key, s3://bucket/prefix for all objects whose keys begin so, or a file or
folder of this machine. --manifest names a file, or an object, that lists objects, one
URL a line; it may also be a manifest of Redshift or the manifest.json of an S3
inventory.

The format of each object is told by its name (.ndjson, .jsonl, .json, .csv, .tsv,
.avro, .parquet, and .gz or .zst behind it), or by --format and --compression. The
value of a record is its row as JSON. A place in a row, as for --key and --time, is the
name of a column, or a JSON pointer such as /customer/id. On a topic that takes its
keys from values --key is left out.

Rows that cannot be taken become rejected records, with the object and the row:
spillway read TOPIC --rejected. An object that changes, or that cannot be read to its
end, is told of at the end; the others are read. The job stops itself when more than
--max-rejects of its rows are rejected.

--dry-run looks at the objects, reads the beginning of some, and makes nothing.
--detach makes the job, and leaves the work to spillway run backfill.

Ctrl-C, or SIGTERM, commits what is read and ends with code 75; the job stays open, and
what it prints resumes it. What a killed run had taken in is not taken in twice.
Calling run again makes another job, that takes all of it in once more.

Exit codes: 0 all is read, 1 all is done, but some objects could not be read to their
ends, or more rows were rejected than --max-rejects, 2 wrong usage, 75 the job stays
open, or a server is not available, 78 the job has stopped itself, or was paused or
cancelled, or the setup is wrong.`,
		Example: "  spillway backfill run orders s3://exports/orders/2025/ --key customer --time created_at\n" +
			"  spillway backfill run orders s3://exports/orders/ --include '*.csv.gz' --where 2025-01-01..2025-07-01 --time created_at --dry-run\n" +
			"  spillway backfill run clicks logs/ --time /ts --time-layout unix_ms --rate-bytes 10MB --max-rejects 1%\n" +
			"  spillway backfill run orders --manifest s3://exports/manifest.json --parallel 8 --detach",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.sources = args[1:]
			if err := errors.Join(o.check(), o.endpointOr(a.cfg.S3, cmd.Flags().Changed("endpoint"))); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.jobCommand(cmd, args[0], func(ctx context.Context, j *jobsOf) error { return a.runBackfill(ctx, j, o) })
		},
	}
	f := cmd.Flags()
	o.flags(f)
	o.endpointFlag(f)
	f.StringVar(&o.manifest, "manifest", "", "file, or object, that lists the objects")
	f.BoolVar(&o.dryRun, "dry-run", false, "look at the objects, say what would be done, and make nothing")
	f.BoolVar(&o.detach, "detach", false, "make the job, and leave the work to spillway run backfill")
	f.BoolVar(&o.progress, "progress", false, "draw a progress bar even if standard error is no terminal")
	return cmd
}

// endpointFlag says for whoever works on a job where its objects are.
func (o *backfillOptions) endpointFlag(f *pflag.FlagSet) {
	f.StringVar(&o.endpoint, "endpoint", "", `S3 endpoint that has the objects, for whoever reads them (default: that of --s3); "": of everybody's own settings`)
}

// endpointOr takes the endpoint of the settings unless another one is given. That of a
// stack is not kept: its port may be another one the next time.
func (o *backfillOptions) endpointOr(setting string, given bool) (err error) {
	if !given {
		o.endpoint = setting
	}
	o.endpoint, err = topic.ParseEndpoint(o.endpoint)
	return err
}

// check reads the options, and tells all that is wrong with them.
func (o *runOptions) check() error {
	var errs [5]error
	o.how, errs[0] = o.read()
	o.as, errs[1] = o.backfillOptions.as()
	o.limits, errs[2] = o.backfillOptions.limits.limits()
	errs[3] = checkSources(o.sources, o.manifest)
	if o.dryRun && o.detach {
		errs[4] = errors.New("--dry-run makes no job, so there is nothing to detach from")
	}
	if o.detach && len(o.sources) > 0 && isFile(o.sources[0]) {
		errs[4] = errors.New("--detach: files of this machine are read by a run on it; leave --detach out")
	}
	return errors.Join(errs[:]...)
}

// needsS3 tells whether anything of the call is on S3.
func (o *runOptions) needsS3() bool { return o.manifest != "" || !isFile(o.sources[0]) }

func (a *app) runBackfill(ctx context.Context, j *jobsOf, o runOptions) error {
	var s3 *object.Store
	if o.needsS3() {
		var err error
		if s3, err = a.s3(ctx); err != nil {
			return err
		}
		defer s3.Close()
	}
	found, err := a.find(ctx, s3, o)
	if err != nil {
		return err
	}
	read, err := backfill.Formats(o.how, found.Objects, o.as)
	if err != nil {
		return err
	}
	if found.host != "" {
		o.endpoint = ""
	}
	job := backfill.Job{
		By: who(), Origin: found.origin, Host: found.host, Endpoint: o.endpoint, Read: read, Limits: o.limits,
		Sources: backfill.Divide(found.Objects, "", o.parallel),
	}
	if o.dryRun {
		return a.dryBackfill(ctx, j, s3, job)
	}
	if o.detach {
		return a.leaveJob(ctx, j, job)
	}
	w, err := a.newWork(ctx, j)
	if err != nil {
		return err
	}
	defer w.close()
	if job, err = j.Create(ctx, job); err != nil {
		return err
	}
	if err := a.showCreated(job); err != nil {
		return err
	}
	return w.run(ctx, functions.JobOptions{Topic: job.Topic, ID: job.ID}, o.progress)
}

// leaveJob makes a job, and leaves the work to others.
func (a *app) leaveJob(ctx context.Context, j *jobsOf, job backfill.Job) error {
	nc, err := a.connectNATS()
	if err != nil {
		return err
	}
	defer nc.Close()
	if job, err = j.Create(ctx, job); err != nil {
		return err
	}
	a.call(ctx, nc, job.Topic)
	return a.showCreated(job)
}

// createdView is a job that was made.
type createdView struct {
	Topic   string `json:"topic"`
	Job     string `json:"job"`
	Objects uint64 `json:"objects"`
	Bytes   uint64 `json:"bytes"`
	Sources int    `json:"sources"`
}

func (a *app) showCreated(j backfill.Job) error {
	n, size := j.Objects()
	return a.showMade(createdView{j.Topic, j.ID, n, size, len(j.Sources)})
}

func (a *app) showMade(v createdView) error {
	if a.cfg.JSON {
		return a.json(v)
	}
	return a.printf("job %s of topic %s: %s of %s, %d at a time\n", v.Job, v.Topic, count(int(v.Objects), "object"), humanize.Bytes(v.Bytes), v.Sources)
}
