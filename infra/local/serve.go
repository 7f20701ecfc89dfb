//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/inorder-im/inorder/infra/local/address"
	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/gateway"
	"github.com/inorder-im/inorder/infra/local/issuer"
	"github.com/inorder-im/inorder/infra/local/loopback"
	"github.com/inorder-im/inorder/infra/local/queue"
)

// readyLine is the line that programs and people wait for.
func (c *cloud) readyLine() string {
	return fmt.Sprintf("ready  page=%s/  websocket=%s  dynamodb=%s", c.base, c.socket, c.database)
}

func listen(ctx context.Context, addr address.Address) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr.Listen())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("another program serves on %s; end it or choose another address with -addr, such as -addr 127.0.0.1:0", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("-addr %s: cannot serve there: %w", addr, err)
	}
	return listener, nil
}

// reachable returns the address as a client on this machine reaches it.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// serve answers on the listener: the socket, @connections, tokens and the page.
func (c *cloud) serve() {
	g := gateway.New(gateway.Config{
		API:        c.stack.API,
		Region:     c.stack.Region,
		AccountID:  c.stack.AccountID,
		DomainName: strings.TrimPrefix(c.base, "http://"),
		Serial:     c.serial,
		Invoker:    c.functions,
		Log:        c.out.logger("gateway"),
	})
	guard := loopback.NewGuard(loopback.Config{Addr: c.addr.Listen(), Origins: c.origins, Hosts: c.hosts})
	server := &http.Server{
		Handler:           c.routes(g, guard),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(c.out.logger(self).Handler(), slog.LevelWarn),
	}
	c.onClose(func(ctx context.Context) {
		_ = g.Close(ctx)
		_ = server.Shutdown(ctx)
	})
	go func() {
		if err := server.Serve(c.listener); !errors.Is(err, http.ErrServerClosed) {
			c.fail(fmt.Errorf("serving on %s: %w", c.base, err))
		}
	}()
}

// routes tells apart what is asked. The socket is for everybody who has a token, as
// on AWS, and so are the files of the page; tokens, and a folder of the developer's, are
// for the developer's pages; the rest is for programs on this machine.
func (c *cloud) routes(g *gateway.Gateway, guard loopback.Guard) http.Handler {
	page := guard.Open(c.page(guard))
	if c.folder != nil {
		page = guard.Show(c.page(guard))
	}
	queues := queue.Handler(slices.Collect(maps.Values(c.queues))...)
	stage := "/" + c.stack.API.Stage
	mux := http.NewServeMux()
	mux.Handle(stage, g)
	mux.Handle(stage+"/{$}", g)
	mux.Handle("/", page)
	mux.Handle("GET /{$}", page)
	// By their full paths: a stage may be called dev. And by any method: what a
	// browser asks first is not what the page asks.
	mux.Handle(issuer.TokenPath, guard.Welcome(c.tokens.Handler()))
	for pattern, handler := range map[string]http.Handler{
		stage + "/":     g,
		issuer.KeysPath: c.tokens.Handler(),
		invokePath:      invokeHandler(c.stack, c.functions),
		stackPath:       c.describeHandler(),
		"/{$}":          c.targetHandler(queues),

		"/" + c.stack.AccountID + "/{queue}": queues, // a queue's URL
	} {
		mux.Handle(pattern, guard.Protect(handler))
	}
	return mux
}

// targetHandler serves the APIs that a header tells apart: SQS, and DynamoDB with its
// streams if the engine is ours.
func (c *cloud) targetHandler(queues http.Handler) http.Handler {
	if c.elsewhere {
		return queues
	}
	database := dynamo.Handler(c.dynamoDB, c.likeness(), slog.NewLogLogger(c.out.logger("dynamodb").Handler(), slog.LevelWarn))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB") {
			database.ServeHTTP(w, r)
			return
		}
		queues.ServeHTTP(w, r)
	})
}
