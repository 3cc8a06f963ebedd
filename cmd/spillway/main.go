// Command spillway is the one binary: the command line, the development stack,
// and the functions that are deployed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	os.Exit(code)
}

// app is what the commands of one call share.
type app struct {
	out, errs io.Writer
	cfg       config
	log       *slog.Logger
	giveUp    func(error) // ends the command's context
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	a := &app{out: out, errs: errs, giveUp: giveUp}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	if gaveUp := context.Cause(ctx); err != nil && is[*functions.RetryError](gaveUp) {
		err = gaveUp // what follows from the end of the context explains nothing
	}
	if err = explain(a.natsError(err)); err != nil {
		fmt.Fprintf(errs, "%s: %v\n", cmd.CommandPath(), err)
	}
	return functions.ExitCode(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "spillway",
		Short: "Messages that arrive in floods become files that anything can query",
		Long: `Spillway takes messages in through NATS JetStream and keeps them, in key order
and exactly once, as files on a SeaweedFS filer.

Try it on one machine:

  spillway dev                             # a NATS server, a SeaweedFS, a worker and a planner
  spillway topic create orders             # in another terminal, same folder
  echo '{"id": 1}' | spillway publish orders -
  spillway read orders --from earliest
  spillway verify orders

With your own servers, name them by flags (--nats, --filer), by SPILLWAY_NATS and
SPILLWAY_FILER, or in a YAML file (--config). Exit codes: 0 done, 1 a fault or a
failed check, 2 wrong usage, 75 not available, try again, 78 wrong configuration.`,
		Example:       "  spillway dev --dir /var/tmp/stack\n  spillway topic list --filer filer:8888\n  spillway publish orders orders.ndjson --nats nats://nats:4222",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			a.cfg, err = loadConfig(cmd.Flags())
			if err == nil {
				a.log, err = a.cfg.logger(a.errs)
			}
			return err
		},
	}
	root.Args, root.RunE = usage(cobra.NoArgs), group
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &functions.UsageError{Err: err} })
	addGlobalFlags(root.PersistentFlags())
	root.AddCommand(
		a.dev(), a.nats(), a.runCommand(),
		a.topic(), a.publish(), a.submit(), a.read(), a.refs(), a.backfill(), a.verify(),
		a.version(),
	)
	addCompletion(root)
	root.AddCommand(a.segments(), a.edit(), a.plan(), a.trace(), a.lanes(), a.compact(), a.table())
	root.AddCommand(a.doctor(), a.repair())
	return root
}

// addCompletion adds cobra's own commands now, so that they get examples too.
func addCompletion(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for path, example := range map[string]string{
		"help":                  "  spillway help publish\n  spillway help topic create",
		"completion":            "  source <(spillway completion bash)",
		"completion bash":       "  source <(spillway completion bash)\n  spillway completion bash > /etc/bash_completion.d/spillway",
		"completion zsh":        "  spillway completion zsh > \"${fpath[1]}/_spillway\"",
		"completion fish":       "  spillway completion fish > ~/.config/fish/completions/spillway.fish",
		"completion powershell": "  spillway completion powershell | Out-String | Invoke-Expression",
	} {
		if cmd, _, err := root.Find(strings.Fields(path)); err == nil {
			cmd.Example = example
		}
	}
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: usage(cobra.NoArgs),
		Long:    "Prints the version of this program. Needs no server.",
		Example: "  spillway version\n  spillway version --json",
		RunE: func(*cobra.Command, []string) error {
			if a.cfg.JSON {
				return a.json(map[string]string{"version": version})
			}
			return a.printf("spillway %s\n", version)
		},
	}
}

// group is what a command that only holds others does: it says which.
func group(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// usage makes what is wrong with the arguments a usage error.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &functions.UsageError{Err: fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
		}
		return nil
	}
}

// printf writes to standard output. A reader that has gone away is no fault.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// note writes for people, to standard error.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.errs, format+"\n", args...)
}

func (a *app) json(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.printf("%s\n", b)
}
