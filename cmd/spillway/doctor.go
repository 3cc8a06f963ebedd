package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/internal/doctor"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

func (a *app) doctor() *cobra.Command {
	var monitor string
	var sweep bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check NATS, the filer, the catalog and what acknowledgements are worth", Args: usage(cobra.NoArgs),
		Long: `Checks that NATS and the filer are there and fit, that nothing would delete or lose
what was acknowledged, and what is left of work that was interrupted. Each line is
ok, warn or fail, with what was seen and what would mend it.

"buffered" and "stored" say what each level of acknowledgement survives here. How
often nats-server syncs its files shows only on its monitoring port (--nats-monitor).

"compaction" names the segments that cannot be compacted, with the reason and what to
do; with a catalog also those that nobody compacts. "table" is about topics' tables.

It changes nothing, but for files that it creates in the bucket and deletes again.
--sweep deletes folders of topics that are gone: those that hold no record and were
last written to a day ago.

Exits 0 when nothing failed, 78 when something has to be changed, 75 when something
could not be reached.`,
		Example: "  spillway doctor\n  spillway doctor --nats-monitor http://nats:8222 --json\n  spillway doctor --sweep",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.locate(); err != nil {
				return err
			}
			return a.examine(cmd.Context(), a.monitorURL(monitor), sweep)
		},
	}
	cmd.Flags().StringVar(&monitor, "nats-monitor", "", "URL of nats-server's monitoring port, such as http://host:8222")
	cmd.Flags().BoolVar(&sweep, "sweep", false, "delete folders of topics that are gone")
	return cmd
}

// monitorURL is the monitoring port that was named, or that of the stack.
func (a *app) monitorURL(named string) string {
	info, err := devstack.Load(cmp.Or(a.cfg.Stack, defaultStack))
	if named != "" || err != nil || info.NATS != a.cfg.NATS {
		return named
	}
	return fmt.Sprintf("http://127.0.0.1:%d", info.Ports.NATSMonitor)
}

// examined is what `doctor --json` shows.
type examined struct {
	OK bool `json:"ok"`
	doctor.Report
	Swept *doctor.Swept `json:"swept,omitempty"`
}

func (a *app) examine(ctx context.Context, monitor string, sweep bool) error {
	setup, done := a.setup(ctx, monitor)
	defer done()
	var result examined
	if sweep && setup.Store != nil {
		swept, err := doctor.Sweep(ctx, setup.Store, time.Now())
		if err != nil {
			return err
		}
		result.Swept = &swept
	}
	result.Report = doctor.Run(ctx, setup)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	result.OK = result.Count(doctor.Fail) == 0
	if a.cfg.JSON {
		if err := a.json(result); err != nil {
			return err
		}
	} else if err := a.showFindings(result); err != nil {
		return err
	}
	return judgement(result.Report)
}

// setup connects to what can be connected to.
func (a *app) setup(ctx context.Context, monitor string) (doctor.Setup, func()) {
	s := doctor.Setup{Now: time.Now}
	done := func() {}
	store, closeFiler, err := a.connectFiler(ctx)
	if err != nil {
		s.Missing = append(s.Missing, doctor.Missing("filer", err, is[*functions.ConfigError](err)))
	} else {
		s.Store, s.Filer = store, store.Filer.(*seaweed.Client)
		closeTables := a.setupTables(ctx, &s)
		done = func() { closeTables(); closeFiler() }
	}
	nc, err := a.connectNATS()
	if err != nil {
		s.Missing = append(s.Missing, doctor.Missing("nats", err, is[*functions.ConfigError](err)))
		return s, done
	}
	js, err := jetstream.New(nc)
	if err != nil {
		s.Missing = append(s.Missing, doctor.Missing("nats", err, true))
	} else {
		s.NATS = &doctor.JetStream{Conn: nc, JS: js, Monitor: monitor}
	}
	return s, func() { nc.Close(); done() }
}

// setupTables adds the catalog, if one is configured.
func (a *app) setupTables(ctx context.Context, s *doctor.Setup) (done func()) {
	tables, done, err := a.tables(ctx, s.Store)
	switch {
	case err != nil:
		s.Missing = append(s.Missing, doctor.Missing("catalog", err, is[*functions.ConfigError](err)))
		return func() {}
	case tables != nil:
		s.Tables = tableLooks{tables}
	}
	return done
}

// tableLooks looks at topics' tables for the doctor.
type tableLooks struct{ *table.Tables }

// Look implements [doctor.Tables].
func (t tableLooks) Look(ctx context.Context, name, incarnation string) (found bool, err error) {
	_, err = t.Find(ctx, table.Topic{Name: name, Incarnation: incarnation})
	switch {
	case errors.Is(err, table.ErrNoTable):
		return false, nil
	case is[*table.UnavailableError](err):
		err = fmt.Errorf("%w: %w", doctor.ErrAway, err)
	}
	return err == nil, err
}

// judgement gives a report its exit code.
func judgement(r doctor.Report) error {
	err := fmt.Errorf("%d of %d checks failed", r.Count(doctor.Fail), len(r.Findings))
	switch {
	case r.Unfit():
		return &functions.ConfigError{Err: err}
	case r.Unreachable():
		return &functions.RetryError{Err: err}
	}
	return nil
}

func (a *app) showFindings(e examined) error {
	width := 0
	for _, f := range e.Findings {
		width = max(width, len(f.Check))
	}
	for _, f := range e.Findings {
		if err := a.printf("%-4s  %-*s  %s\n", f.Status, width, f.Check, f.Seen); err != nil {
			return err
		}
		if f.Do == "" {
			continue
		}
		if err := a.printf("%*s  → %s\n", 6+width, "", f.Do); err != nil {
			return err
		}
	}
	if s := e.Swept; s != nil {
		if err := a.printf("\nswept %d folders; %d are younger than %s, %d hold records\n", len(s.Deleted), len(s.Young), doctor.SafeAge, len(s.Used)); err != nil {
			return err
		}
	}
	return a.printf("\n%d ok, %d to know, %d failed\n", e.Count(doctor.OK), e.Count(doctor.Warn), e.Count(doctor.Fail))
}
