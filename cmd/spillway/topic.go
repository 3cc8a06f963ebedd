package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/topic"
)

func (a *app) topic() *cobra.Command {
	cmd := &cobra.Command{
		Use: "topic", Short: "Create, list, describe, change and delete topics", Args: usage(cobra.NoArgs), RunE: group,
		Long: `A topic is a folder of segments on the filer, and a name that producers publish
to. It has no stream of its own: any lane carries any topic.`,
		Example: "  spillway topic create orders --key json:/customer/id\n  spillway topic list --json\n  spillway topic describe orders",
	}
	cmd.AddCommand(a.topicCreate(), a.topicList(), a.topicDescribe(), a.topicSet(), a.topicDelete())
	return cmd
}

func (a *app) topicCreate() *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a topic",
		Long: `Creates a topic. Its partition key says which records keep their order and lie
together: "header" takes the key that a record is published with, "json:/pointer"
takes it from the record's value, "none" spreads records evenly.

The flush age is how long a record may wait before it is written: longer makes
fewer, larger files. Publishers that ask for "stored" do not wait for it.

With --segments the topic starts with so many, of equal parts of the key space.
They can be split and merged at any time (spillway edit).

` + aboutAllow + `
Without --allow it is the bucket of the setting s3-bucket, if there is one, and
else none. --endpoint says for good where these buckets are; without it everybody
looks where their own settings say (--s3). All of it can be changed (topic set).`,
		Example: "  spillway topic create orders --key json:/customer/id --segments 4\n" +
			"  spillway topic create clicks --key none --flush-age 10s\n" +
			"  spillway topic create images --allow photos/2026/ --allow payloads",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			def, err := a.newDefinition(args[0], o, cmd.Flags().Changed("allow"))
			if err != nil {
				return err
			}
			t, err := a.createTopic(cmd.Context(), def)
			if err != nil {
				return err
			}
			if a.cfg.JSON {
				return a.json(t.Definition)
			}
			refs := ""
			if len(t.Buckets) > 0 {
				refs = ", references to " + strings.Join(t.Buckets, ", ")
			}
			return a.printf("created topic %s (key %s, flush age %s%s)\n", t.Name, t.Key, time.Duration(t.FlushAge), refs)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.key, "key", "header", "partition key: header, none or json:/pointer")
	lanesFlag(cmd, &o.lanes)
	f.IntVar(&o.segments, "segments", 1, fmt.Sprintf("segments to start with, 1 to %d", topic.MaxLive))
	f.DurationVar(&o.age, "flush-age", topic.DefaultFlushAge, "how long a record may wait for its flush")
	f.StringVar(&o.replication, "replication", "", `copies of its chunks, as SeaweedFS writes them: "001" is one more on another server (default: the filer's rules)`)
	f.BoolVar(&o.fsync, "fsync", false, "have chunks on disk before they are committed; their entries follow the filer's rules, which doctor tells (default: the rules)")
	f.StringArrayVar(&o.allow, "allow", nil, `bucket or bucket/prefix that records may refer to; may be repeated; "" is none`)
	referenceFlags(f, &o.endpoint, &o.removals)
	return cmd
}

// createOptions of one call.
type createOptions struct {
	key, lanes, replication string
	segments                int
	age                     time.Duration
	fsync                   bool
	allow                   []string
	endpoint                string
	removals                bool
}

// newDefinition is what is to be created. It tells all that is wrong with it.
func (a *app) newDefinition(name string, o createOptions, allowed bool) (topic.Definition, error) {
	k, err := topic.ParseKey(o.key)
	if err != nil {
		k = topic.KeyHeader // this error is told once
	}
	list, listErr := parseAllow("--allow", o.allow)
	endpoint, endErr := topic.ParseEndpoint(o.endpoint)
	def := topic.Definition{
		Name: name, Key: k, FlushAge: topic.Duration(o.age), Lanes: o.lanes, Roots: o.segments,
		Replication: o.replication, Fsync: o.fsync, Endpoint: endpoint, RecordRemovals: o.removals,
	}
	if listErr == nil {
		def.AllowOnly(list...)
	}
	if err := errors.Join(err, listErr, endErr, def.Validate()); err != nil {
		return def, &functions.UsageError{Err: err}
	}
	if def.Name == topic.Unrouted {
		return def, &functions.UsageError{Err: fmt.Errorf("topic %q is the system's own: it takes messages for topics that do not exist", def.Name)}
	}
	if allowed {
		return def, nil
	}
	def.AllowOnly(a.allowedByDefault()...)
	if err := topic.CheckBuckets(def.Buckets); err != nil {
		return def, &functions.ConfigError{Err: fmt.Errorf("setting s3-bucket: %w", err)}
	}
	return def, nil
}

func (a *app) topicList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List topics", Args: usage(cobra.NoArgs),
		Long: `Lists all topics of the bucket with their state, partition key, flush age and lane
group, by name. A topic whose deletion was interrupted shows as "deleting". Needs
the filer only.`,
		Example: "  spillway topic list\n  spillway topic list --json | jq -r '.[].name'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, done, err := a.filer(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			defs, err := store.Topics(cmd.Context())
			if err != nil {
				return err
			}
			if a.cfg.JSON {
				if defs == nil {
					defs = []topic.Definition{}
				}
				return a.json(defs)
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tSTATE\tKEY\tFLUSH AGE\tLANES\tCREATED")
			for _, d := range defs {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Name, d.State, d.Key, time.Duration(d.FlushAge), d.Lanes, d.Created.Format(time.RFC3339))
			}
			return w.Flush()
		},
	}
}

func (a *app) topicDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete NAME --yes", Short: "Delete a topic and all its records", Args: usage(cobra.ExactArgs(1)),
		Long: `Deletes a topic with all its records and files, for good. Records that are still
on their way to it go to the system topic "unrouted", or with it. A deletion that
was interrupted is finished by calling it again.`,
		Example: "  spillway topic delete orders --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return &functions.UsageError{Err: fmt.Errorf("this deletes all records of topic %q; say so with --yes", args[0])}
			}
			store, done, err := a.filer(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			if err := store.DeleteTopic(cmd.Context(), args[0], time.Now()); err != nil {
				return err
			}
			if a.cfg.JSON {
				return a.json(map[string]string{"deleted": args[0]})
			}
			return a.printf("deleted topic %s\n", args[0])
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}
