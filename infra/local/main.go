//go:build !windows

// Command local runs a SAM WebSocket application on this machine, straight from
// its template: API Gateway, Lambda, DynamoDB and the stream between them,
// without Docker and without an AWS account.
//
//	go run ./infra/local
//
// It builds the functions, starts everything on loopback addresses, and ends
// all of it with Ctrl-C.
//
// Everybody may ask for a socket, as on AWS, and gets none without a token; and
// the page's files are no secret. All the rest (tokens, Invoke, @connections, SQS
// and DynamoDB, on one port, and the port of each function's runtime) is for
// programs on this machine, which have to call it by a loopback address or the
// host of -addr, and for web pages of that very address. A page of another origin
// that one develops is let in with -allow-origin; what other pages ask, and names
// that were made to point here, are refused. Only tokens are given to other machines
// too, if they are served (-addr 0.0.0.0:3000), and by the names of -allow-host: a page
// on a phone needs them. The database is behind that check, too: dynoxide itself would
// answer any page, so it has an address that pages do not find (except where 127.0.0.1
// is all there is, as on macOS: there it is a port that nobody is told of, and the
// browser's own permission for local addresses).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/inorder-im/inorder/infra/local/address"
	"github.com/inorder-im/inorder/infra/local/loopback"
)

const (
	exitFailure = 1
	exitUsage   = 2

	// defaultAddr is where a local cloud is, unless it was told otherwise.
	defaultAddr = "127.0.0.1:3000"

	// stopTimeout bounds the orderly end; what is left then is killed.
	stopTimeout = 10 * time.Second
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "invoke" {
		os.Exit(runInvoke(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	cfg, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := withParent(ctx)
	defer cancel()
	// A second Ctrl-C ends the program at once; the reaper ends the rest.
	context.AfterFunc(ctx, stop)

	out := newConsole(stderr)
	c, err := startCloud(ctx, cfg, out)
	if err != nil {
		if ctx.Err() == nil { // else it was stopped while starting: nothing to explain
			out.failure(err)
		}
		return exitFailure
	}
	_, _ = fmt.Fprintln(stdout, c.readyLine())
	select {
	case <-ctx.Done():
		out.step("stopping")
	case err = <-c.failed:
		out.failure(err)
	}
	closing, done := context.WithTimeout(context.Background(), stopTimeout)
	defer done()
	c.close(closing)
	if err != nil {
		return exitFailure
	}
	return 0
}

// config is what the command line says.
type config struct {
	addr         address.Address
	dataDir      string
	templateFile string
	params       map[string]string
	databaseAt   address.Address // none for an engine of our own
	postsAt      address.Address // where functions post to connections, none for here
	queuesAt     address.Address // where functions find queues, none for here
	serial       bool
	rawLogs      bool
	watch        bool
	debug        []string // functions, as they are called by invoke
	web          string   // the folder that is served instead of the page, "" for none
	origins      []string // of pages that may use what is for programs here
	hosts        []string // by which pages may call this machine
}

const usage = `Runs a SAM WebSocket application on this machine, straight from its template.

usage: go run ./infra/local [flags]
       go run ./infra/local invoke <function> <event.json>   (see invoke -h)

An address is written 127.0.0.1:3000 or http://127.0.0.1:3000.

`

func parseFlags(args []string, stderr io.Writer) (config, error) {
	cfg := config{params: map[string]string{}}
	flags := flag.NewFlagSet("local", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {}       // after a mistake, it would take the words about that off the screen
	_ = cfg.addr.Set(defaultAddr) // it is one
	flags.Func("addr", "`address` to serve on (default "+cfg.addr.URL()+"); port 0 takes a free one, and\n"+
		"0.0.0.0:3000 serves other machines of the network too, such as a phone", func(s string) error {
		if err := cfg.addr.Set(s); err != nil {
			return err
		}
		if cfg.addr.IsSecure() {
			return errors.New("it is served by http; put a proxy that speaks https before it, and allow its name with -allow-host")
		}
		return nil
	})
	flags.StringVar(&cfg.dataDir, "data", "", "`folder` that keeps the data; without it the data ends with the program")
	flags.StringVar(&cfg.templateFile, "template", "template.yaml", "the SAM template's `file`")
	flags.Func("param", "a template parameter as `name=value`; may be repeated", func(s string) error {
		name, value, found := strings.Cut(s, "=")
		if !found || name == "" {
			return errors.New("use -param name=value")
		}
		cfg.params[name] = value
		return nil
	})
	flags.Var(&cfg.databaseAt, "dynamodb-endpoint", "`address` of a DynamoDB to use instead of starting one")
	flags.Var(&cfg.postsAt, "connections-endpoint", "`address` that functions post to connections at, of a proxy that passes on to -addr")
	flags.Var(&cfg.queuesAt, "queues-endpoint", "`address` that functions find queues at, of a proxy that passes on to -addr")
	flags.StringVar(&cfg.web, "web", "", "`folder` with a page of your own to serve instead of the demo page; what it lacks of\n"+
		"/client/ and /config.json is still there")
	flags.Func("allow-origin", "`origin` of a web page you develop, such as http://localhost:5173, that may use what else is for\n"+
		"programs on this machine (tokens, Invoke, @connections, SQS, DynamoDB); may be repeated", func(s string) error {
		origin, err := loopback.ParseOrigin(s)
		cfg.origins = append(cfg.origins, origin)
		return err
	})
	flags.Func("allow-host", "`name` or address, without port, by which pages may call this machine, such as box.local or that of\n"+
		"a tunnel; whoever reaches it can then get tokens; may be repeated", func(s string) error {
		host, err := loopback.ParseHost(s)
		cfg.hosts = append(cfg.hosts, host)
		return err
	})
	flags.BoolVar(&cfg.serial, "serial", false, "hand each client's frames to the functions one by one; API Gateway does not")
	flags.BoolVar(&cfg.rawLogs, "raw-logs", false, "show the functions' log lines as CloudWatch gets them, with their metrics")
	flags.BoolVar(&cfg.watch, "watch", true, "build functions again when their sources change, beside what runs; sockets, tokens and data stay")
	flags.Func("debug", "`function` to debug: built with debug information, in one process without a limit of time;\n"+
		"how to attach to it is printed; may be repeated", func(s string) error {
		cfg.debug = append(cfg.debug, s)
		return nil
	})
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q; flags begin with a dash", flags.Arg(0))
		_, _ = fmt.Fprintln(stderr, err)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
		return config{}, err
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "-h lists the flags")
		return config{}, err
	}
	return cfg, nil
}

// parentCheck is how often the parent is looked for.
const parentCheck = 250 * time.Millisecond

// withParent ends the context when the process that started this one is gone:
// `go run`, when killed, leaves what it ran behind.
func withParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	if parent == 1 {
		return ctx, cancel // of a container or a service manager, which never goes
	}
	go func() {
		tick := time.NewTicker(parentCheck)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if os.Getppid() != parent {
					cancel()
					return
				}
			}
		}
	}()
	return ctx, cancel
}
