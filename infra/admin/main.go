// Command admin is the operator's tool: it looks into the conversations of a
// deployed stack or of the local cloud, replays dead letters, erases users and
// exports ledgers.
//
//	go run ./infra/admin
//
// What changes something only says what it would do, unless it is told -yes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command is a sub-command.
type command struct {
	name  string
	args  []string // what they are, for the usage
	more  bool     // any number of the last one
	about string   // one line
	help  string   // more, for -h

	// prepare declares the flags, and returns what runs once they are parsed.
	prepare func(flags *flag.FlagSet) func(ctx context.Context, s *session, args []string) error
}

// session is what a command works with.
type session struct {
	*target
	where  location
	out    io.Writer
	notes  io.Writer // progress and what is not part of the answer
	asJSON bool
}

func commands() []command {
	return []command{
		listCommand(), showCommand(), ledgerCommand(), rosterCommand(), findCommand(), hottestCommand(),
		exportCommand(), replayCommand(), eraseCommand(), repairCommand(), raiseCommand(), fillCommand(), createCommand(), createGroupCommand(),
	}
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = terminal{stdout}, terminal{stderr}
	if len(args) == 0 || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" || args[0] == "help" {
		usage(stderr)
		if len(args) == 0 {
			return exitUsage
		}
		return 0
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:], stdout, stderr)
		}
	}
	complain(stderr, fmt.Errorf("there is no command %q", args[0]))
	usage(stderr)
	return exitUsage
}

func (c command) run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		say(stderr, "%s\n\nusage: go run ./infra/admin %s [flags]", c.about, c.name)
		for _, a := range c.args {
			say(stderr, " <%s>", a)
		}
		if c.more {
			say(stderr, " …")
		}
		say(stderr, "\n\n%s\n\n", c.help)
		flags.PrintDefaults()
	}
	var where location
	where.declare(flags)
	asJSON := flags.Bool("json", false, "answer in JSON, an object per line")
	act := c.prepare(flags)
	rest, err := parse(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case len(rest) < len(c.args) || len(rest) > len(c.args) && !c.more:
		complain(stderr, fmt.Errorf("%s takes %s, not %d", c.name, c.takes(), len(rest)))
		flags.Usage()
		return exitUsage
	}
	t, err := where.find(ctx)
	if err == nil {
		err = act(ctx, &session{target: t, where: where, out: stdout, notes: stderr, asJSON: *asJSON}, rest)
	}
	if err != nil {
		complain(stderr, err)
		return exitFailure
	}
	return 0
}

// takes says how many arguments there are to be.
func (c command) takes() string {
	n := fmt.Sprintf("%d arguments", len(c.args))
	if len(c.args) == 1 {
		n = "1 argument"
	}
	if c.more {
		n += " or more"
	}
	return n
}

// parse takes flags before, between and after the arguments, and what is behind a "--" as
// an argument: users may have taken an id that begins as a flag does.
func parse(flags *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		parsed := args[:len(args)-flags.NArg()]
		if flags.NArg() == 0 || len(parsed) > 0 && parsed[len(parsed)-1] == "--" {
			return append(rest, flags.Args()...), nil
		}
		rest, args = append(rest, flags.Arg(0)), flags.Args()[1:]
	}
}

func usage(w io.Writer) {
	say(w, "Looks after the conversations of a stack.\n\nusage: go run ./infra/admin <command> [flags] [arguments]\n\n")
	for _, c := range commands() {
		say(w, "  %-12s %s\n", c.name, c.about)
	}
	say(w, "\nEach takes -h. Say where the stack is with -stack NAME, for one that is deployed, or\n"+
		"-addr ADDRESS for a local cloud; without either it is the local cloud at %s.\n", defaultLocal)
}

func complain(w io.Writer, err error) { say(w, "error: %v\n", err) }

func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...) // to the terminal, which may be gone
}
