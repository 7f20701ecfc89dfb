//go:build !windows

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/issuer"
	"github.com/inorder-im/inorder/infra/local/lambda"
	"github.com/inorder-im/inorder/infra/local/process"
	"github.com/inorder-im/inorder/infra/local/queue"
	"github.com/inorder-im/inorder/infra/local/stream"
	"github.com/inorder-im/inorder/infra/local/template"
)

// cloud is everything that runs.
type cloud struct {
	config
	out       *console
	dir       string // for what is kept
	stack     *template.Stack
	text      []byte   // of the template
	debugged  []string // functions that are built for a debugger, by logical id
	tokens    *issuer.Issuer
	listener  net.Listener
	folder    *os.Root // what is served instead of the page, nil for the page
	base      string   // http://host:port
	socket    string   // ws://host:port/stage
	reaper    *process.Reaper
	dynamoDB  string                  // for functions; pages do not find it
	database  string                  // the same for people and tools
	elsewhere bool                    // dynamoDB is not an engine of ours
	engine    *dynamo.Engine          // nil if it is elsewhere
	endpoint  string                  // where functions find queues
	queues    map[string]*queue.Queue // by logical id
	pollers   []*stream.Poller        // all are there before a function runs
	functions *lambda.Service
	failed    chan error // gets one error if a part ends by itself
	closers   []func(context.Context)
}

// startCloud starts every part. If one fails, or ctx ends, those that started
// are stopped again.
func startCloud(ctx context.Context, cfg config, out *console) (*cloud, error) {
	c := &cloud{config: cfg, out: out, failed: make(chan error, 1)}
	if err := c.start(ctx); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		c.close(closing)
		return nil, err
	}
	return c, nil
}

func (c *cloud) start(ctx context.Context) (err error) {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	built, release, removed, err := claimFolder(ctx, c.stack.File)
	if err != nil {
		return err
	}
	c.onClose(func(context.Context) { release() })
	if removed > 0 {
		c.out.step("removed built functions of templates that are gone or long unused: %d", removed)
	}

	// Compiling and the database take turns on nothing: do both at once.
	began := time.Now()
	var executables map[string]string
	group, starting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		executables, err = c.build(starting, built)
		return err
	})
	group.Go(func() error { return c.startDynamoDB(starting) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := c.startFunctions(executables); err != nil { //nolint:contextcheck // processes outlive every context
		return err
	}
	c.openQueues()
	if err := c.startStreams(ctx); err != nil {
		return err
	}
	c.startTimeToLive(ctx)
	c.startQueues(ctx)
	c.startSchedules(ctx)
	c.serve()
	c.tellOthers()
	if c.watch {
		return c.startWatch(ctx, executables, built, began)
	}
	return nil
}

// prepare claims what the parts need and reads the template.
func (c *cloud) prepare(ctx context.Context) (err error) {
	if c.listener, err = listen(ctx, c.addr); err != nil {
		return err
	}
	c.onClose(func(context.Context) { _ = c.listener.Close() })
	c.base = "http://" + reachable(c.listener.Addr())
	c.endpoint = cmp.Or(c.queuesAt.URL(), c.base)
	if err := c.openFolder(); err != nil {
		return err
	}
	if err := c.openDataDir(); err != nil {
		return err
	}
	if err := c.load(); err != nil {
		return err
	}
	if err := c.chooseDebugged(); err != nil {
		return err
	}
	for _, note := range c.stack.Ignored {
		c.out.step("not run locally: %s", note)
	}
	if c.reaper, err = process.StartReaper(); err != nil {
		return err
	}
	c.onClose(func(context.Context) { _ = c.reaper.Close() })
	return nil
}

func (c *cloud) onClose(f func(context.Context)) { c.closers = append(c.closers, f) }

// beside returns what starts work that goes on until the cloud closes, which waits for
// it. The context of a start ends before that.
func (c *cloud) beside(start context.Context) func(work func(ctx context.Context)) {
	running, cancel := context.WithCancel(context.WithoutCancel(start))
	var works sync.WaitGroup
	c.onClose(func(context.Context) {
		cancel()
		works.Wait()
	})
	return func(work func(context.Context)) { works.Go(func() { work(running) }) }
}

// close stops the parts in the opposite order of their start.
func (c *cloud) close(ctx context.Context) {
	for _, f := range slices.Backward(c.closers) {
		f(ctx)
	}
	c.closers = nil
}

// fail reports the first part that ended by itself.
func (c *cloud) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

// openDataDir finds the folder for what is kept: the user's, locked against a second
// local cloud, or a temporary one.
func (c *cloud) openDataDir() (err error) {
	if c.dataDir == "" {
		if c.dir, err = os.MkdirTemp("", "inorder-local-"); err != nil {
			return fmt.Errorf("making a temporary folder: %w", err)
		}
		c.onClose(func(context.Context) { _ = os.RemoveAll(c.dir) })
		return nil
	}
	c.dir = c.dataDir
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	unlock, free, err := tryLock(filepath.Join(c.dir, "lock"))
	if err != nil {
		return err
	}
	if !free {
		return fmt.Errorf("the data folder %s is in use by another local cloud; end that one or choose another folder with -data", c.dir)
	}
	c.onClose(func(context.Context) { unlock() })
	return nil
}

// load reads the template. Parameters that say whose tokens to trust get the
// local issuer's values, unless the command line has others.
func (c *cloud) load() error {
	declared, err := template.ParameterNames(c.templateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no template at %s: run this in the folder of the template, or name it with -template", c.templateFile)
	}
	if err != nil {
		return err
	}
	socketBase := "ws" + strings.TrimPrefix(c.base, "http")
	params := map[string]string{}
	for name, value := range map[string]string{
		"JwksUrl":   c.base + issuer.KeysPath,
		"JwtIssuer": c.base + "/",
	} {
		if slices.Contains(declared, name) {
			params[name] = value
		}
	}
	maps.Copy(params, c.params)
	if c.text, err = os.ReadFile(c.templateFile); err != nil {
		return fmt.Errorf("reading the template: %w", err)
	}
	c.stack, err = template.Load(c.templateFile, template.Options{
		Region:     os.Getenv("AWS_REGION"),
		Parameters: params,
		HTTPBase:   cmp.Or(c.postsAt.URL(), c.base),
		WSBase:     socketBase,
		QueueBase:  c.endpoint,
	})
	if err != nil {
		return err
	}
	if c.stack.API == nil {
		return fmt.Errorf("%s: the template has no AWS::Serverless::WebSocketApi, so there is nothing to serve", c.templateFile)
	}
	c.socket = socketBase + "/" + c.stack.API.Stage
	name, audience := cmp.Or(c.stack.Parameters["JwtIssuer"], c.base+"/"), cmp.Or(c.stack.Parameters["JwtAudience"], "local")
	if c.dataDir != "" {
		c.tokens, err = issuer.Open(name, audience, filepath.Join(c.dataDir, keyFile))
	} else {
		c.tokens, err = issuer.New(name, audience)
	}
	return err
}

// keyFile is where in the data folder the key is that tokens are signed with.
const keyFile = "token-key.pem"
