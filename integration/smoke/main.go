// Command smoke looks whether a stack works: it connects a device each of two users,
// and sends, pushes, syncs and acknowledges a message both ways, as devices do.
//
//	go run ./integration/smoke
//	INORDER_TOKEN_1=… INORDER_TOKEN_2=… go run ./integration/smoke -url wss://….amazonaws.com/v1
//	go run ./integration/smoke -url wss://….amazonaws.com/v1 -token-command './token.sh "$1"'
//
// The tokens are those of two users that are kept for this, with the numbers 1 and 2;
// a local cloud gives its own. What it writes stays: two messages in their conversation.
//
// It prints each step with the time it took. The exit code is 0 if all is well, 1 if a
// step failed, with what to look at, and 2 for a command that cannot be read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/inorder-im/inorder/integration/stack"
)

const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options is what the command line and the environment say.
type options struct {
	socket  *url.URL
	command string        // prints a token
	given   [2]string     // tokens
	timeout time.Duration // of each step
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, err := parse(args, getenv, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return exitUsage
	}
	if !check(ctx, o, stdout) {
		return exitFailure
	}
	return 0
}

func parse(args []string, getenv func(string) string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("smoke", flag.ContinueOnError)
	flags.SetOutput(stderr)
	socket := flags.String("url", "ws://127.0.0.1:3000/v1", "the WebSocket `URL`, which a deployment prints as WebSocketUrl")
	flags.StringVar(&o.command, "token-command", "", "`command` for sh that prints the token of user $1, which is 1 or 2;\n"+
		"instead of INORDER_TOKEN_1 and INORDER_TOKEN_2 in the environment")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "`time` that a step may take")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.given = [2]string{getenv("INORDER_TOKEN_1"), getenv("INORDER_TOKEN_2")}
	o.socket, err = url.Parse(*socket)
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q; flags begin with a dash", flags.Arg(0))
	case err != nil || o.socket.Host == "" || o.socket.Scheme != "ws" && o.socket.Scheme != "wss":
		err = fmt.Errorf("-url %s: want a URL such as wss://abc.execute-api.eu-central-1.amazonaws.com/v1", *socket)
	case o.timeout <= 0:
		err = errors.New("-timeout is above 0")
	case o.command == "" && (o.given[0] == "" || o.given[1] == "") && !isLocal(o.socket):
		err = errors.New("tokens are missing: INORDER_TOKEN_1 and INORDER_TOKEN_2 in the environment, or -token-command; only a local cloud gives out its own")
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "smoke:", err)
	}
	return o, err
}

// isLocal reports whether the stack is on this machine.
func isLocal(socket *url.URL) bool {
	host := socket.Hostname()
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// token returns the token of the user with this number, 1 or 2, and who that is.
func (o options) token(ctx context.Context, number int) (token, user string, err error) {
	switch {
	case o.command != "":
		cmd := exec.CommandContext(ctx, "sh", "-c", o.command, "token-command", strconv.Itoa(number)) //nolint:gosec // what its user wants run
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		switch {
		case ctx.Err() != nil:
			return "", "", fmt.Errorf("-token-command for user %d: it did not end in %s", number, o.timeout)
		case err != nil:
			var said *exec.ExitError
			if errors.As(err, &said) {
				err = fmt.Errorf("%w: %.500s", err, said.Stderr)
			}
			return "", "", fmt.Errorf("-token-command for user %d: %w", number, err)
		}
		token = strings.TrimSpace(string(out))
	case o.given[number-1] != "":
		token = strings.TrimSpace(o.given[number-1])
	default:
		if token, err = o.localToken(ctx, number); err != nil {
			return "", "", err
		}
	}
	claims := jwt.RegisteredClaims{}
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil || claims.Subject == "" {
		return "", "", fmt.Errorf("the token of user %d is no JWT with a sub; is it an opaque one, or are there other words around it?", number)
	}
	return token, claims.Subject, nil
}

func (o options) localToken(ctx context.Context, number int) (string, error) {
	from := url.URL{Scheme: "http", Host: o.socket.Host, Path: "/dev/token"}
	token, err := stack.Stack{Tokens: from.String()}.Token(ctx, "smoke-"+strconv.Itoa(number), nil)
	if err != nil {
		return "", fmt.Errorf("no local cloud gives out tokens (go run ./infra/local starts one): %w", err)
	}
	return token, nil
}
