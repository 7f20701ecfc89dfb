//go:build !windows

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/infra/local/address"
	"github.com/inorder-im/inorder/infra/local/build"
	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/gateway"
	"github.com/inorder-im/inorder/infra/local/issuer"
	"github.com/inorder-im/inorder/infra/local/lambda"
	"github.com/inorder-im/inorder/infra/local/loopback"
	"github.com/inorder-im/inorder/infra/local/process"
	"github.com/inorder-im/inorder/infra/local/queue"
	"github.com/inorder-im/inorder/infra/local/schedule"
	"github.com/inorder-im/inorder/infra/local/stream"
	"github.com/inorder-im/inorder/infra/local/template"
)

// cloud is everything that runs.
type cloud struct {
	stack     *template.Stack
	text      []byte                  // of the template
	debug     []string                // functions that are built for a debugger, by logical id
	base      string                  // http://host:port
	socket    string                  // ws://host:port/stage
	dynamoDB  string                  // for functions; pages do not find it
	database  string                  // the same for people and tools
	elsewhere bool                    // dynamoDB is not an engine of ours
	engine    *dynamo.Engine          // nil if it is elsewhere
	endpoint  string                  // where functions find queues
	queues    map[string]*queue.Queue // by logical id
	pollers   []*stream.Poller        // all are there before a function runs
	failed    chan error              // gets one error if a part ends by itself
	closers   []func(context.Context)
}

// startCloud starts every part. If one fails, or ctx ends, those that started
// are stopped again.
func startCloud(ctx context.Context, cfg config, out *console) (_ *cloud, err error) {
	c := &cloud{failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			c.close(closing)
		}
	}()
	listener, err := listen(ctx, cfg.addr)
	if err != nil {
		return nil, err
	}
	c.onClose(func(context.Context) { _ = listener.Close() })
	c.base = "http://" + reachable(listener.Addr())
	c.endpoint = cmp.Or(cfg.queues.URL(), c.base)
	folder, err := c.openFolder(cfg.web, out)
	if err != nil {
		return nil, err
	}

	dir, err := c.dataDir(cfg.dataDir)
	if err != nil {
		return nil, err
	}
	tokens, err := c.load(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.chooseDebugged(cfg.debug); err != nil {
		return nil, err
	}
	for _, note := range c.stack.Ignored {
		out.step("not run locally: %s", note)
	}
	reaper, err := process.StartReaper()
	if err != nil {
		return nil, err
	}
	c.onClose(func(context.Context) { _ = reaper.Close() })
	built, release, removed, err := claimFolder(ctx, c.stack.File)
	if err != nil {
		return nil, err
	}
	c.onClose(func(context.Context) { release() })
	if removed > 0 {
		out.step("removed built functions of templates that are gone or long unused: %d", removed)
	}

	// Compiling and the database take turns on nothing: do both at once.
	began := time.Now()
	var executables map[string]string
	group, starting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		executables, err = c.build(starting, built, out)
		return err
	})
	group.Go(func() error { return c.startDynamoDB(starting, cfg, dir, reaper, out) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	functions, err := lambda.New(lambda.Config{ //nolint:contextcheck // processes outlive every context
		Functions: c.functions(executables),
		Region:    c.stack.Region,
		Reaper:    reaper,
		Output:    func(function, line string) { out.function(shortName(function), line, cfg.rawLogs) },
		Answered:  func(string) { c.wakeStreams() },
		Started:   func(function string, pid int) { c.tellDebugger(function, pid, out) },
		Log:       out.logger("lambda"),
	})
	if err != nil {
		return nil, err
	}
	c.onClose(func(ctx context.Context) { _ = functions.Close(ctx) })
	c.openQueues(dir)
	if err := c.startStreams(ctx, functions, dir, out); err != nil {
		return nil, err
	}
	c.startTimeToLive(ctx, out)
	c.startQueues(ctx, functions, out)
	c.startSchedules(ctx, functions, out)
	c.serve(listener, functions, tokens, folder, cfg, out)
	tellOthers(listener.Addr(), out)
	if cfg.watch {
		return c, c.startWatch(ctx, functions, executables, built, began, out)
	}
	return c, nil
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

// dataDir returns the folder for what is kept: the user's, locked against a second
// local cloud, or a temporary one.
func (c *cloud) dataDir(dir string) (string, error) {
	if dir == "" {
		temporary, err := os.MkdirTemp("", "inorder-local-")
		if err != nil {
			return "", fmt.Errorf("making a temporary folder: %w", err)
		}
		c.onClose(func(context.Context) { _ = os.RemoveAll(temporary) })
		return temporary, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the data folder: %w", err)
	}
	unlock, free, err := tryLock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	if !free {
		return "", fmt.Errorf("the data folder %s is in use by another local cloud; end that one or choose another folder with -data", dir)
	}
	c.onClose(func(context.Context) { unlock() })
	return dir, nil
}

// load reads the template. Parameters that say whose tokens to trust get the
// local issuer's values, unless the command line has others.
func (c *cloud) load(cfg config) (*issuer.Issuer, error) {
	declared, err := template.ParameterNames(cfg.template)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no template at %s: run this in the folder of the template, or name it with -template", cfg.template)
	}
	if err != nil {
		return nil, err
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
	maps.Copy(params, cfg.params)
	if c.text, err = os.ReadFile(cfg.template); err != nil {
		return nil, fmt.Errorf("reading the template: %w", err)
	}
	c.stack, err = template.Load(cfg.template, template.Options{
		Region:     os.Getenv("AWS_REGION"),
		Parameters: params,
		HTTPBase:   cmp.Or(cfg.posts.URL(), c.base),
		WSBase:     socketBase,
		QueueBase:  c.endpoint,
	})
	if err != nil {
		return nil, err
	}
	if c.stack.API == nil {
		return nil, fmt.Errorf("%s: the template has no AWS::Serverless::WebSocketApi, so there is nothing to serve", cfg.template)
	}
	c.socket = socketBase + "/" + c.stack.API.Stage
	name, audience := cmp.Or(c.stack.Parameters["JwtIssuer"], c.base+"/"), cmp.Or(c.stack.Parameters["JwtAudience"], "local")
	if cfg.dataDir != "" {
		return issuer.Open(name, audience, filepath.Join(cfg.dataDir, keyFile))
	}
	return issuer.New(name, audience)
}

// keyFile is where in the data folder the key is that tokens are signed with.
const keyFile = "token-key.pem"

// build compiles the functions into their folder. What is there is up to date after
// a moment.
func (c *cloud) build(ctx context.Context, folder string, out *console) (map[string]string, error) {
	out.step("building %d functions", len(c.stack.Functions))
	return c.buildOnly(ctx, nil, build.Options{
		OutDir: folder,
		Progress: func(function string, took time.Duration, done, total int) {
			out.step("built %s (%d of %d, %.1f s)", shortName(function), done, total, took.Seconds())
		},
	}, func() { out.step("waiting for another local cloud that builds the same functions") })
}

// buildOnly compiles some, nil for all. It waits until no other local cloud does it.
func (c *cloud) buildOnly(ctx context.Context, only []string, o build.Options, waiting func()) (map[string]string, error) {
	unlock, err := awaitLock(ctx, filepath.Join(o.OutDir, buildLock), waiting)
	if err != nil {
		return nil, err
	}
	defer unlock()
	o.Only, o.Debug = only, c.debug
	return build.Functions(ctx, c.stack, o)
}

// startDynamoDB starts the engine, or uses the one named, and makes the tables.
func (c *cloud) startDynamoDB(ctx context.Context, cfg config, dir string, reaper *process.Reaper, out *console) error {
	c.dynamoDB, c.database, c.elsewhere = cfg.dynamoDB.URL(), cfg.dynamoDB.URL(), !cfg.dynamoDB.IsZero()
	if c.elsewhere {
		if err := checkEndpoint(ctx, c.dynamoDB); err != nil {
			return err
		}
	} else {
		binary, err := dynamo.Find(ctx, dynamo.Options{Progress: func(s string) { out.step("%s", s) }})
		if err != nil {
			return err
		}
		engine := dynamo.Config{
			Binary: binary,
			Reaper: reaper,
			Output: func(line string) { out.line("dynamodb", line) },

			TimeToLive: c.expires(),
		}
		if cfg.dataDir != "" {
			engine.DataFile = filepath.Join(dir, "dynamodb.sqlite")
		}
		e, err := dynamo.Start(ctx, engine)
		if errors.Is(err, dynamo.ErrDamaged) {
			return fmt.Errorf("the database in %s is damaged: %w\n"+
				"put a copy of the folder back, or begin anew without its data: move the folder away, or name another with -data", cfg.dataDir, err)
		}
		if err != nil {
			return err
		}
		c.onClose(e.Stop)
		go func() {
			<-e.Done()
			if err := e.Err(); err != nil {
				c.fail(err)
			}
		}()
		c.dynamoDB, c.database, c.engine = e.Endpoint(), c.base, e
	}
	db := dynamodb.New(dynamodb.Options{
		Region:       c.stack.Region,
		BaseEndpoint: &c.dynamoDB,
		Credentials:  c.credentials(),
	})
	if err := dynamo.CreateTables(ctx, db, c.stack.Tables); err != nil {
		return err
	}
	out.step("%d tables at %s", len(c.stack.Tables), c.database)
	return nil
}

// expires reports whether items of a table have a time to live.
func (c *cloud) expires() bool {
	return slices.ContainsFunc(c.stack.Tables, func(t *template.Table) bool { return t.TTLAttribute != "" })
}

// startTimeToLive deletes what has expired, as DynamoDB does within some days: at once
// what has while nothing ran, and then about every minute.
func (c *cloud) startTimeToLive(ctx context.Context, out *console) {
	if c.engine == nil || !c.expires() {
		return
	}
	log := out.logger("dynamodb")
	c.beside(ctx)(func(ctx context.Context) {
		c.engine.SweepOften(ctx, func(deleted int, err error) {
			switch {
			case err != nil:
				log.Warn("items that have expired stay for now", "error", err)
			case deleted > 0:
				log.Info("items have expired and are deleted", "items", deleted)
				c.wakeStreams()
			}
		})
	})
}

// endpointTimeout is how long a DynamoDB that the user named may take to answer.
const endpointTimeout = 5 * time.Second

// checkEndpoint asks for any answer at all, so that a wrong address is not hidden
// behind minutes of the SDK's retries.
func checkEndpoint(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return fmt.Errorf("-dynamodb-endpoint %s: %w", endpoint, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("-dynamodb-endpoint %s: no DynamoDB answers there: %w", endpoint, err)
	}
	_ = response.Body.Close()
	return nil
}

// awsEnv is what the AWS SDK finds in the environment, here and in functions.
// The developer's own credentials are passed on for a DynamoDB elsewhere only.
func (c *cloud) awsEnv() map[string]string {
	env := map[string]string{
		"AWS_ACCESS_KEY_ID":                 "local",
		"AWS_SECRET_ACCESS_KEY":             "local",
		"AWS_ENDPOINT_URL_DYNAMODB":         c.dynamoDB,
		"AWS_ENDPOINT_URL_DYNAMODB_STREAMS": c.database,
		"AWS_ENDPOINT_URL_SQS":              c.endpoint,
		"AWS_ENDPOINT_URL_LAMBDA":           c.base,
		"AWS_EC2_METADATA_DISABLED":         "true",
	}
	if c.elsewhere && os.Getenv("AWS_ACCESS_KEY_ID") != "" {
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
			if value := os.Getenv(name); value != "" {
				env[name] = value
			}
		}
	}
	return env
}

func (c *cloud) credentials() credentials.StaticCredentialsProvider {
	env := c.awsEnv()
	return credentials.NewStaticCredentialsProvider(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], env["AWS_SESSION_TOKEN"])
}

func (c *cloud) functions(executables map[string]string) []lambda.Function {
	var functions []lambda.Function
	for _, f := range c.stack.Functions {
		env := c.awsEnv()
		env["AWS_SDK_UA_APP_ID"] = f.LogicalID // so that a proxy can tell whose request it sees
		functions = append(functions, lambda.Function{
			Function: *f, Dir: executables[f.LogicalID], Env: env, Debug: slices.Contains(c.debug, f.LogicalID),
		})
	}
	return functions
}

// streamConnections is how many connections for polling are kept.
const streamConnections = 16

// startStreams opens the event source mappings and runs them.
func (c *cloud) startStreams(ctx context.Context, functions *lambda.Service, dir string, out *console) error {
	streams := dynamodbstreams.New(dynamodbstreams.Options{
		Region:       c.stack.Region,
		BaseEndpoint: &c.dynamoDB,
		Credentials:  c.credentials(),
	}, func(o *dynamodbstreams.Options) {
		if !c.elsewhere {
			like := c.likeness()
			like.Base = &http.Transport{MaxIdleConnsPerHost: streamConnections}
			o.HTTPClient = &http.Client{Transport: like}
		}
	})
	run := c.beside(ctx)
	for _, f := range c.stack.Functions {
		for _, m := range f.Streams {
			poller, err := stream.Open(ctx, stream.Config{
				Streams:       streams,
				Invoker:       functions,
				DeadLetter:    c.deadLetters(m, out),
				CheckpointDir: filepath.Join(dir, "stream-positions"),
				Log:           out.logger("stream"),
			}, stream.Mapping{StreamMapping: m, Function: f.LogicalID, FunctionARN: f.ARN, Table: c.stack.Table(m.TableID).Name})
			if err != nil {
				return err
			}
			c.pollers = append(c.pollers, poller)
		}
	}
	for _, poller := range c.pollers {
		run(poller.Run)
	}
	return nil
}

// likeness is how the streams of our engine look.
func (c *cloud) likeness() dynamo.Likeness {
	return dynamo.Likeness{Region: c.stack.Region, Account: c.stack.AccountID}
}

// wakeStreams makes the mappings look for what a function has written.
func (c *cloud) wakeStreams() {
	for _, poller := range c.pollers {
		poller.Wake()
	}
}

// startQueues invokes functions with the messages of queues.
func (c *cloud) startQueues(ctx context.Context, functions *lambda.Service, out *console) {
	run := c.beside(ctx)
	for _, f := range c.stack.Functions {
		for _, m := range f.Queues {
			run(func(ctx context.Context) {
				c.queues[m.QueueID].Feed(ctx, queue.Source{
					QueueMapping: m, Function: f.LogicalID, Region: c.stack.Region,
					Invoker: functions, Log: out.logger("queue"),
				})
			})
		}
	}
}

// startSchedules invokes functions by the clock.
func (c *cloud) startSchedules(ctx context.Context, functions *lambda.Service, out *console) {
	var schedules []schedule.Schedule
	for _, f := range c.stack.Functions {
		for _, s := range f.Schedules {
			schedules = append(schedules, schedule.Schedule{Schedule: s, Function: f.LogicalID})
		}
	}
	c.beside(ctx)(func(ctx context.Context) {
		schedule.Run(ctx, schedule.Config{
			Invoker: functions, Region: c.stack.Region, AccountID: c.stack.AccountID, Log: out.logger("schedule"),
		}, schedules...)
	})
}

// openQueues makes the template's queues, in a folder that is called after what most
// often comes into them.
func (c *cloud) openQueues(dir string) {
	c.queues = map[string]*queue.Queue{}
	for _, q := range c.stack.Queues {
		c.queues[q.LogicalID] = queue.Open(queue.Config{Queue: *q, Path: filepath.Join(dir, "dead-letters", q.Name+".jsonl")})
	}
	for _, q := range c.stack.Queues {
		if q.DeadLetters != "" {
			c.queues[q.LogicalID].RedriveTo(c.queues[q.DeadLetters])
		}
	}
}

// deadLetters sends to the queue what the cloud would send to it.
func (c *cloud) deadLetters(m template.StreamMapping, out *console) func(context.Context, []byte) error {
	if m.OnFailureQueue == "" {
		return nil
	}
	q := c.queues[m.OnFailureQueue]
	return func(ctx context.Context, record []byte) error {
		out.step("a dead letter goes to %s", q.Path)
		return q.Send(ctx, record)
	}
}

// serve answers on the listener: the socket, @connections, tokens and the page.
// The folder is what it shows instead of the page, nil for the page.
func (c *cloud) serve(listener net.Listener, functions *lambda.Service, tokens *issuer.Issuer, folder *os.Root, flags config, out *console) {
	g := gateway.New(gateway.Config{
		API:        c.stack.API,
		Region:     c.stack.Region,
		AccountID:  c.stack.AccountID,
		DomainName: strings.TrimPrefix(c.base, "http://"),
		Serial:     flags.serial,
		Invoker:    functions,
		Log:        out.logger("gateway"),
	})
	guard := loopback.NewGuard(loopback.Config{Addr: flags.addr.Listen(), Origins: flags.origins, Hosts: flags.hosts})
	server := &http.Server{
		Handler:           c.routes(g, functions, tokens, folder, guard, out),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(out.logger(self).Handler(), slog.LevelWarn),
	}
	c.onClose(func(ctx context.Context) {
		_ = g.Close(ctx)
		_ = server.Shutdown(ctx)
	})
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.fail(fmt.Errorf("serving on %s: %w", c.base, err))
		}
	}()
}

// routes tells apart what is asked. The socket is for everybody who has a token, as
// on AWS, and so are the files of the page; tokens, and a folder of the developer's, are
// for the developer's pages; the rest is for programs on this machine.
func (c *cloud) routes(g *gateway.Gateway, functions *lambda.Service, tokens *issuer.Issuer, folder *os.Root, guard loopback.Guard, out *console) http.Handler {
	page := guard.Open(c.page(guard, nil))
	if folder != nil {
		page = guard.Show(c.page(guard, folder))
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
	mux.Handle(issuer.TokenPath, guard.Welcome(tokens.Handler()))
	for pattern, handler := range map[string]http.Handler{
		stage + "/":     g,
		issuer.KeysPath: tokens.Handler(),
		invokePath:      invokeHandler(c.stack, functions),
		stackPath:       c.describeHandler(),
		"/{$}":          c.targetHandler(queues, out),

		"/" + c.stack.AccountID + "/{queue}": queues, // a queue's URL
	} {
		mux.Handle(pattern, guard.Protect(handler))
	}
	return mux
}

// targetHandler serves the APIs that a header tells apart: SQS, and DynamoDB with its
// streams if the engine is ours.
func (c *cloud) targetHandler(queues http.Handler, out *console) http.Handler {
	if c.elsewhere {
		return queues
	}
	database := dynamo.Handler(c.dynamoDB, c.likeness(), slog.NewLogLogger(out.logger("dynamodb").Handler(), slog.LevelWarn))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB") {
			database.ServeHTTP(w, r)
			return
		}
		queues.ServeHTTP(w, r)
	})
}

// shortName is a function's name as people say it: send for SendFunction.
func shortName(logicalID string) string {
	return strings.ToLower(cmp.Or(strings.TrimSuffix(logicalID, "Function"), logicalID))
}
