// Command hammer puts load on Inorder and says how it goes: once a second on
// stderr, and in the end, also after Ctrl-C, as a summary on stdout.
//
//	go run ./integration/hammer -local -users 64 -conversations 1 -rate 200 -for 30s
//	go run ./integration/hammer -addr 127.0.0.1:3000 -users 64
//	go run ./integration/hammer -url wss://….amazonaws.com/v1 -tokens https://… -users 64
//
// Users are spread over the conversations: one alone, two, or a group. All their
// devices send, and all get every message of their conversation. A device does
// what the protocol asks of one: it sends again what was not answered, filters
// what it has, and pulls what is missing.
//
// With -members and -watchers the conversations are groups with more members than
// those who send: watchers are connected and only listen, the rest is away. How
// soon a message has reached all watchers is in the summary.
//
// The exit code is 1 if something went wrong, such as a message that was acked
// and did not reach a device.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/inorder-im/inorder/infra/local/address"
	"github.com/inorder-im/inorder/integration/stack"
	"github.com/inorder-im/inorder/shared/chat"
)

const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options is what the command line says.
type options struct {
	stack.Stack
	addr           address.Address // of a local cloud that runs; none with local or Socket
	local          bool
	verbose        bool
	users, devices int
	conversations  int
	members        int
	watchers       int
	inflight       int
	rate           float64
	duration       time.Duration
	size           int
	json           bool
}

// defaultAddr is where a local cloud is, unless it was told otherwise.
const defaultAddr = "127.0.0.1:3000"

// run is main without the process: it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	s, err := execute(ctx, o, stderr)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "hammer:", err)
		return exitFailure
	}
	if o.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(s)
	} else {
		s.print(stdout)
	}
	if !s.ok() {
		return exitFailure
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("hammer", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Var(&o.addr, "addr", "`address` of a local cloud that runs, such as "+defaultAddr+", which is the default")
	flags.StringVar(&o.Socket, "url", "", "the WebSocket `URL` of a stack elsewhere, such as wss://….amazonaws.com/v1")
	flags.StringVar(&o.Tokens, "tokens", "", "`URL` that answers ?user=NAME with {\"token\": …}; a local cloud has its own")
	flags.BoolVar(&o.local, "local", false, "start a local cloud for the run instead, and count what its DynamoDB does")
	flags.BoolVar(&o.verbose, "v", false, "with -local: show what the local cloud says")
	flags.IntVar(&o.users, "users", 64, "`number` of users")
	flags.IntVar(&o.devices, "devices", 1, "`number` of devices of each user, at most 16")
	flags.IntVar(&o.conversations, "conversations", 1, "`number` of conversations that the users are spread over")
	flags.IntVar(&o.members, "members", 0, "`number` of members of each conversation, of whom those who are neither users nor watchers are away; 0 is no more than these")
	flags.IntVar(&o.watchers, "watchers", 0, "`number` of further users of each conversation, who are connected and send nothing")
	flags.IntVar(&o.inflight, "inflight", 1, "`number` of sends that a device has under way at a time")
	flags.Float64Var(&o.rate, "rate", 0, "sends a `second`, of all together; 0 is as fast as answers come")
	flags.DurationVar(&o.duration, "for", 30*time.Second, "`time` to send for; 0 is until Ctrl-C")
	flags.IntVar(&o.size, "size", 100, "`characters` in a message")
	flags.BoolVar(&o.json, "json", false, "print the summary as JSON")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	err := o.check(flags.Args())
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "hammer:", err)
	}
	return o, err
}

// maxDevices is how many devices of a user may be connected.
const maxDevices = 16

func (o *options) check(rest []string) error {
	u, err := url.Parse(o.Socket)
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q; flags begin with a dash", rest[0])
	case o.local && (o.Socket != "" || !o.addr.IsZero()) || o.Socket != "" && !o.addr.IsZero():
		return errors.New("-local, -addr and -url are three stacks; name one")
	case o.Socket != "" && (err != nil || u.Host == "" || u.Scheme != "ws" && u.Scheme != "wss"):
		return fmt.Errorf("-url %s: want a WebSocket URL such as wss://….amazonaws.com/v1; where a local cloud is says -addr", o.Socket)
	case o.users < 1 || o.conversations < 1 || o.inflight < 1:
		return errors.New("-users, -conversations and -inflight are at least 1")
	case o.conversations > o.users:
		return fmt.Errorf("%d users cannot be spread over %d conversations", o.users, o.conversations)
	case o.users > o.conversations*chat.MaxGroupMembers:
		return fmt.Errorf("a conversation has at most %d users: use more -conversations", chat.MaxGroupMembers)
	case o.watchers < 0 || o.members < 0:
		return errors.New("-members and -watchers are not below 0")
	case o.members > 0 && o.members < o.usersEach()+o.watchers:
		return fmt.Errorf("-members %d: each conversation has %d users and %d watchers already", o.members, o.usersEach(), o.watchers)
	case o.devices < 1 || o.devices > maxDevices:
		return fmt.Errorf("-devices %d: a user has 1 to %d", o.devices, maxDevices)
	case o.rate < 0 || o.duration < 0:
		return errors.New("-rate and -for are not below 0")
	case o.size < 1 || o.size > chat.MaxTextRunes:
		return fmt.Errorf("-size %d: a text has 1 to %d characters", o.size, chat.MaxTextRunes)
	case o.Socket != "" && o.Tokens == "":
		return errors.New("-tokens is missing: only a local cloud gives out tokens by itself")
	case o.Socket == "" && !o.local && o.addr.IsZero():
		return o.addr.Set(defaultAddr)
	}
	return nil
}

// usersEach is how many users a conversation has at most, without watchers.
func (o *options) usersEach() int { return (o.users + o.conversations - 1) / o.conversations }

// execute runs the load. The error says that it could not begin.
func execute(ctx context.Context, o options, stderr io.Writer) (summary, error) {
	tell := func(format string, args ...any) { _, _ = fmt.Fprintf(stderr, format+"\n", args...) }
	var m *meter
	if o.local {
		var log io.Writer
		if o.verbose {
			log = stderr
		}
		tell("starting a local cloud")
		c, err := startLocalCloud(ctx, log)
		if err != nil {
			return summary{}, err
		}
		defer c.stop()
		o.Stack, m = c.Stack, c.meter
	}
	if !o.addr.IsZero() {
		if err := o.askWhich(ctx, tell); err != nil {
			return summary{}, err
		}
	}
	l := newLoad(o)
	l.tell = tell
	living, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	prepared := context.AfterFunc(ctx, hangUp)
	all := o.users + o.watchers*o.conversations
	tell("connecting %d devices of %d users to %s", all*o.devices, all, o.Socket)
	done, err := l.prepare(living)
	if done != nil {
		defer func() {
			hangUp()
			done()
		}()
	}
	if err != nil {
		return summary{}, err
	}
	prepared() // from here on Ctrl-C only ends the load
	report := func() summary { return l.report(time.Now(), nil, nil) }
	if m != nil {
		from := m.now()
		report = func() summary {
			to := m.now()
			return l.report(time.Now(), &from, &to)
		}
	}
	l.watch(ctx, tell, report)
	s := report()
	s.Missing = l.missing()
	return s, nil
}

// askWhich asks the local cloud where its socket is, and names it: it gets the load, and
// keeps the users and messages of the run. What listens there and is none is left alone.
func (o *options) askWhich(ctx context.Context, tell func(string, ...any)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.addr.URL()+"/dev/stack", http.NoBody) //nolint:gosec // the user says where
	if err != nil {
		return fmt.Errorf("asking the local cloud at %s what it runs: %w", o.addr, err)
	}
	response, err := http.DefaultClient.Do(request) //nolint:gosec // likewise
	if err != nil {
		return fmt.Errorf("no local cloud answers at %s: %w\nstart one with go run ./infra/local, say where it is with -addr, or use -local", o.addr, err)
	}
	defer func() { _ = response.Body.Close() }()
	var runs struct{ Name, Template, WebSocket string }
	if json.NewDecoder(response.Body).Decode(&runs) != nil || runs.Name == "" || runs.WebSocket == "" {
		return fmt.Errorf("what answers at %s is no local cloud; say where it is with -addr, or use -local", o.addr)
	}
	tell("loading %s of %s, at %s: its users and messages stay there (-local starts one for the run)", runs.Name, runs.Template, o.addr)
	o.Socket = runs.WebSocket
	if o.Tokens == "" {
		o.Tokens = o.addr.URL() + "/dev/token"
	}
	return nil
}

// watch runs the load and tells the figures once a second.
func (l *load) watch(ctx context.Context, tell func(string, ...any), report func() summary) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.hammer(ctx)
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	v := &live{load: l, at: time.Now()}
	for {
		select {
		case <-over:
			return
		case now := <-tick.C:
			if l.figures.isOver() {
				tell("waiting for the last answers and pushes: %s missing", strconv.FormatInt(l.missing(), 10))
				continue
			}
			tell("%s", v.line(now, report()))
		}
	}
}
