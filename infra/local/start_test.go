//go:build !windows

package main_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
)

func TestStart_Product(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := start(t, options{}, "-template", product)
	t.Logf("ready after %v", time.Since(began).Round(time.Millisecond))
	require.Equal(t, c.page, "http://"+strings.TrimSuffix(strings.TrimPrefix(c.socket, "ws://"), "/v1")+"/")
	c.awaitLog(`^local      \| building \d+ functions$`)
	c.awaitLog(`^local      \| built send \(\d+ of \d+, \d+\.\d s\)$`)
	c.awaitLog(`^local      \| \d+ tables at ` + c.dynamoDB + `$`)

	// One chain from the token to the function that checks it.
	alice := c.dial("?device=phone", "Authorization", "Bearer "+c.token("alice"))
	alice.send(`{"action":"ping","id":"1"}`)
	require.Contains(t, alice.receive(), `"id":"1"`)
	c.awaitLog(`^connect    \| .*alice`)
	alice.send(`{"action":"sing","id":"2"}`)
	c.awaitLog(`^default    \| .*UNKNOWN_ACTION`)

	c.stop()
	require.Len(t, c.stdout.lines(), 1, "stdout has the ready line only")
}

func TestStart_ReadyIsTheLastLine(t *testing.T) {
	t.Parallel()
	c := start(t, options{together: true}, "-template", smallApp)
	c.dial("").send(`{"action":"echo","text":"hello"}`)
	c.awaitLog(`^echo       \| heard hello$`)
	lines := c.stdout.lines()
	require.Len(t, lines, slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "ready ") })+2, "what follows is of use, not of the start")
}

func TestServe_Dev(t *testing.T) {
	t.Parallel()
	// A stage may be called dev, and then shares a prefix with the tokens.
	c := startApp(t, "-param", "Stage=dev")
	require.True(t, strings.HasSuffix(c.socket, "/dev"), c.socket)
	echo := c.dial("")
	echo.send(`{"action":"echo","text":"here"}`)
	require.Equal(t, "here", echo.receive())

	tests := []struct {
		name, path, host string
		status           int
		want             string
	}{
		{"page", "", "", 200, "<title>Inorder</title>"},
		{"script of the page", "page.js", "", 200, "client/index.js"},
		{"client of the page", "client/index.js", "", 200, "export"},
		{"where the page connects", "config.json", "", 200, c.socket},
		{"keys", "dev/jwks.json", "", 200, `"keys":[{"kty":"EC"`},
		{"token", "dev/token?user=alice", "", 200, `"token":"ey`},
		{"token for nobody", "dev/token", "", 400, "user=alice"},
		{"token by a name of the internet", "dev/token?user=alice", "evil.example", 403, "allow it with -allow-host if it is yours"},
		{"token by localhost", "dev/token?user=alice", "localhost", 200, `"token":"ey`},
		{"nothing", "nothing", "", 404, "not found"},
		{"the socket without an upgrade", "dev", "", 403, "Forbidden"},
		{"connections, unsigned", "dev/@connections/gone", "", 403, "Missing Authentication Token"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			response, body := c.ask(request{method: http.MethodGet, path: test.path}, test.host, "Authorization", "")
			require.Equal(t, test.status, response.StatusCode, "%s", body)
			require.Contains(t, body+response.Header.Get("X-Amzn-Errortype"), test.want)
		})
	}
}

func TestADamagedDatabaseNamesItsFolderAndTheWayOut(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(data, "dynamodb.sqlite"), []byte(strings.Repeat("damage ", 2000)), 0o600))
	got := runToEnd(t, options{}, "-addr", "127.0.0.1:0", "-template", smallApp, "-data", data)
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "error: the database in "+data+" is damaged")
	require.Contains(t, got.stderr, "error: put a copy of the folder back, or begin anew without its data")
}

func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	// Both build the same functions into the same, still empty, place.
	app, own := copyApp(t, smallApp), options{env: append(emptyHome(t), engine(t))}
	a := launch(t, own, "-addr", "127.0.0.1:0", "-template", app)
	b := launch(t, own, "-addr", "127.0.0.1:0", "-template", app)
	for _, c := range []*local{a, b} {
		c.awaitReady()
		echo := c.dial("")
		echo.send(`{"action":"echo","text":"both"}`)
		require.Equal(t, "both", echo.receive())
	}
}

// copyApp copies an application, as a module, to where it can be changed.
// It returns the template's path. What is built from it belongs into an emptyHome.
func copyApp(t *testing.T, app string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Dir(app))))
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return filepath.Join(dir, filepath.Base(app))
}

// emptyHome is the environment of a user who starts a local cloud for the first
// time, but has the go tool's caches.
func emptyHome(t *testing.T) []string {
	t.Helper()
	env := []string{"HOME=" + t.TempDir(), "XDG_CACHE_HOME=" + t.TempDir()}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		require.NoError(t, err)
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

// engine is the variable that names the DynamoDB engine.
func engine(t *testing.T) string {
	t.Helper()
	binary, err := dynamo.Find(t.Context(), dynamo.Options{})
	require.NoError(t, err)
	return "DYNOXIDE=" + binary
}

func TestFlags(t *testing.T) {
	t.Parallel()
	const usage, hint = "usage: go run ./infra/local [flags]", "-h lists the flags"
	tests := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"help", []string{"-h"}, 0, []string{usage, "-addr", "-data", "-template", "-param", "-dynamodb-endpoint", "-connections-endpoint", "-queues-endpoint", "-allow-origin", "-allow-host", "-web", "-watch", "-debug", "-serial", "An address is written 127.0.0.1:3000 or http://127.0.0.1:3000."}},
		{"unknown flag", []string{"-port", "3000"}, 2, []string{"flag provided but not defined: -port", hint}},
		{"no value", []string{"-addr"}, 2, []string{"flag needs an argument: -addr", hint}},
		{"no port", []string{"-addr", "3000"}, 2, []string{`invalid value "3000" for flag -addr: want an address such as 127.0.0.1:3000 or http://127.0.0.1:3000: there is only a number`, hint}},
		{"no port number", []string{"-addr", "127.0.0.1:http3"}, 2, []string{"-addr", "the port is no number", hint}},
		{"a socket", []string{"-addr", "ws://127.0.0.1:3000/v1"}, 2, []string{"-addr", "it begins with ws://", hint}},
		{"https", []string{"-addr", "https://127.0.0.1:3000"}, 2, []string{"-addr", "it is served by http; put a proxy that speaks https before it", hint}},
		{"a queues endpoint that is none", []string{"-queues-endpoint", "8001"}, 2, []string{"-queues-endpoint", "want an address such as 127.0.0.1:3000"}},
		{"a connections endpoint that is none", []string{"-connections-endpoint", "http://127.0.0.1:8001/v1"}, 2, []string{"-connections-endpoint", "it has a path"}},
		{"a database that is none", []string{"-dynamodb-endpoint", "localhost"}, 2, []string{"-dynamodb-endpoint", "the port is missing"}},
		{"a host that is none", []string{"-allow-host", "http://box.local:3000"}, 2, []string{"-allow-host", "want the name of a host, without scheme and port", hint}},
		{"all hosts", []string{"-allow-host", "*"}, 2, []string{"-allow-host", "want the name of a host", hint}},
		{"invoke in no address", []string{"invoke", "-addr", "3000", "echo", "-"}, 2, []string{"-addr", "want an address such as 127.0.0.1:3000"}},
		{"an origin that is none", []string{"-allow-origin", "localhost:5173"}, 2, []string{"-allow-origin", "want the origin of a page, such as http://localhost:5173", hint}},
		{"all origins", []string{"-allow-origin", "*"}, 2, []string{"-allow-origin", "want the origin of a page", hint}},
		{"a word", []string{"start"}, 2, []string{`unexpected argument "start"`, hint}},
		{"parameter without a value", []string{"-param", "JwtIssuer"}, 2, []string{"use -param name=value", hint}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := runToEnd(t, options{}, test.args...)
			require.Equal(t, test.code, got.code)
			require.Empty(t, got.stdout)
			for _, part := range test.want {
				require.Contains(t, got.stderr, part)
			}
			if slices.Contains(test.want, hint) {
				require.NotContains(t, got.stderr, usage, "what is wrong would be off the screen")
			}
		})
	}
}

func TestErrors_Parameters(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, param, want string }{
		{"unknown", "JwtIsuer=x", "template.yaml: Parameters: there is no parameter JwtIsuer; the template has "},
		{"not allowed", "DeletionProtection=maybe", `Parameters.DeletionProtection: parameter DeletionProtection: "maybe" is none of the AllowedValues true, false`},
		{"pattern", "JwksUrl=keys", `parameter JwksUrl: "keys" does not match AllowedPattern`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			runToEnd(t, options{}, "-addr", "127.0.0.1:0", "-template", product, "-param", test.param).requireError(t, test.want)
		})
	}
}

func TestErrors_Address(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	tests := []struct{ name, addr, want string }{
		{"in use", taken.Addr().String(), "another program serves on http://" + taken.Addr().String() + "; end it or choose another address with -addr"},
		{"in use, by its URL", "http://" + taken.Addr().String() + "/", "another program serves on http://" + taken.Addr().String() + "; end it or choose another address with -addr"},
		{"another machine's", "192.0.2.1:3000", "-addr http://192.0.2.1:3000: "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			runToEnd(t, options{}, "-addr", test.addr, "-template", smallApp).requireError(t, test.want)
		})
	}
}

func TestErrors_Template(t *testing.T) {
	t.Parallel()
	const (
		head     = "Transform: AWS::Serverless-2016-10-31\nResources:\n"                                                               // 2 lines
		function = head + "  F:\n    Type: AWS::Serverless::Function\n    Properties:\n      Runtime: provided.al2023\n"               // 6 lines
		api      = "  A:\n    Type: AWS::Serverless::WebSocketApi\n    Properties:\n      RouteSelectionExpression: $request.body.a\n" // 4 lines
	)
	tests := []struct{ name, template, want string }{
		{"no YAML", "Resources:\n\tA: x\n", "template.yaml:2: not valid YAML"},
		{"unknown intrinsic function", function + "      CodeUri: !Upper code\n", "template.yaml:7: Resources.F.Properties.CodeUri: the local cloud does not know the function Fn::Upper"},
		{"no CodeUri", function, "template.yaml:5: Resources.F.Properties.CodeUri: is required and missing"},
		{"no such folder", function + "      CodeUri: code\n", "template.yaml:7: Resources.F.Properties.CodeUri: there is no folder code"},
		{"no code in the folder", function + "      CodeUri: .\n    Metadata: {BuildMethod: go1.x}\n" + api +
			"      Routes: {$default: {FunctionArn: !GetAtt F.Arn}}\n", "template.yaml:3: Resources.F.Properties.CodeUri: there are no Go files in "},
		{"wrong type of a value", function + "      CodeUri: .\n      Timeout: [3]\n", "template.yaml:8: Resources.F.Properties.Timeout: want a whole number, not a list"},
		{"wrong type of a resource", "Resources:\n  V:\n    Type: AWS::EC2::VPC\n", "template.yaml:3: Resources.V.Type: the local cloud cannot run a resource of type AWS::EC2::VPC"},
		{"unknown name", function + "      CodeUri: .\n      FunctionName: !Ref Nothing\n", `template.yaml:8: Resources.F.Properties.FunctionName: unknown name "Nothing"`},
		{"no routes", head + api, "template.yaml:5: Resources.A.Properties.Routes: is required and missing"},
		{"no API", "Resources:\n  T: {Type: AWS::SNS::Topic}\n", "template.yaml: the template has no AWS::Serverless::WebSocketApi"},
		{"two mistakes", function + "      Timeout: x\n", "template.yaml:7: Resources.F.Properties.Timeout: "},
	}
	own := options{env: append(emptyHome(t), engine(t))}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "template.yaml")
			require.NoError(t, os.WriteFile(file, []byte(test.template), 0o600))
			got := runToEnd(t, own, "-addr", "127.0.0.1:0", "-template", file)
			got.requireError(t)
			require.Contains(t, got.errorLines(), filepath.Dir(file)+string(filepath.Separator)+test.want)
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		runToEnd(t, options{}, "-addr", "127.0.0.1:0", "-template", "nowhere.yaml").
			requireError(t, "there is no template at nowhere.yaml", "-template")
	})
}

func TestErrors_CodeThatDoesNotCompile(t *testing.T) {
	t.Parallel()
	app := copyApp(t, smallApp)
	code := filepath.Join(filepath.Dir(app), "function", "main.go")
	text, err := os.ReadFile(code)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(code, []byte(strings.Replace(string(text), "lambda.Start(echo)", "lambda.Start(ecco)", 1)), 0o600))
	got := runToEnd(t, options{env: append(emptyHome(t), engine(t))}, "-addr", "127.0.0.1:0", "-template", app)
	got.requireError(t)
	require.Regexp(t, `building CrashFunction, EchoFunction, LateFunction, PostFunction, RefuseFunction, RetryFunction, StuckFunction, TickFunction: \S+ does not compile:\n`+
		`\S+main\.go:42:16: undefined: ecco`, got.errorLines())
}

func TestErrors_NoEngine(t *testing.T) {
	t.Parallel()
	tools := t.TempDir() // a PATH with the go tool and nothing else
	goTool, err := exec.LookPath("go")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(goTool, filepath.Join(tools, "go")))
	env := append(emptyHome(t), "PATH="+tools)

	t.Run("nowhere", func(t *testing.T) {
		t.Parallel()
		got := runToEnd(t, options{bare: true, env: env}, "-addr", "127.0.0.1:0", "-template", smallApp)
		got.requireError(t, "npm, which would install it, is not on PATH")
		for _, way := range []string{"install Node.js", "put a dynoxide 1.2.1 binary on PATH", "set DYNOXIDE", "-dynamodb-endpoint ADDRESS"} {
			require.Equal(t, 1, strings.Count(got.errorLines(), way), "said once: %s", way)
		}
	})
	for name, dynoxide := range map[string]string{"no such file": "/no/such/dynoxide", "another program": goTool} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runToEnd(t, options{bare: true, env: append(env[:len(env):len(env)], "DYNOXIDE="+dynoxide)}, "-addr", "127.0.0.1:0", "-template", smallApp)
			got.requireError(t, "the environment variable DYNOXIDE must name the binary of dynoxide 1.2.1", dynoxide)
		})
	}
}

func TestDynamoDBEndpoint(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	// With DYNOXIDE pointing nowhere an engine could not even be looked for.
	c := start(t, options{env: []string{"DYNOXIDE=/no/such/dynoxide"}}, "-template", smallApp, "-dynamodb-endpoint", endpoint)
	require.Equal(t, endpoint, c.dynamoDB)
	putThing(t, client, "made there")
	require.True(t, hasThing(t, dynamotest.Client(t, c.dynamoDB), "made there"))
	for _, process := range c.running() {
		require.NotContains(t, process, "serve --host", "an engine was started")
	}
	c.stop()
	require.True(t, hasThing(t, client, "made there"), "the engine is not ours to end")
}

func TestErrors_DynamoDBEndpoint(t *testing.T) {
	t.Parallel()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	silent, closed := listen(), listen()
	require.NoError(t, closed.Close())
	tests := []struct{ name, endpoint, want string }{
		{"nobody listens", "http://" + closed.Addr().String(), "no DynamoDB answers there"},
		{"nobody answers", "http://" + silent.Addr().String(), "no DynamoDB answers there"},
		{"nobody, without a URL", closed.Addr().String(), "no DynamoDB answers there"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := launch(t, options{}, "-addr", "127.0.0.1:0", "-template", smallApp, "-dynamodb-endpoint", test.endpoint)
			c.requireEnd(patience)
			outcome{c.cmd.ProcessState.ExitCode(), c.stdout.String(), c.stderr.String()}.
				requireError(t, "-dynamodb-endpoint http://"+strings.TrimPrefix(test.endpoint, "http://"), test.want)
		})
	}
}

// token asks for a token as anyone on this machine may.
func (c *local) token(user string) string {
	c.t.Helper()
	_, body := c.ask(request{method: http.MethodGet, path: "dev/token?user=" + user}, "")
	var answer struct{ Token string }
	require.NoError(c.t, json.Unmarshal([]byte(body), &answer))
	require.Regexp(c.t, regexp.MustCompile(`^ey[\w-]+\.[\w-]+\.[\w-]+$`), answer.Token)
	return answer.Token
}

// On Windows the program says where it runs, instead of not compiling.
func TestWindowsIsRefusedPlainly(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-f", "{{.GoFiles}} {{.Imports}}", ".")
	list.Env = append(os.Environ(), "GOOS=windows", "CGO_ENABLED=0")
	out, err := list.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "[main_windows.go] [fmt os]\n", string(out))
}
