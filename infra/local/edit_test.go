//go:build !windows

package main_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// edits is a template whose functions tests change, in a copy.
const edits = "testdata/edits/template.yaml"

// project is a copy of an application that is worked on.
type project struct {
	t        *testing.T
	template string
}

func newProject(t *testing.T) *project {
	t.Helper()
	return &project{t: t, template: copyApp(t, edits)}
}

func (p *project) path(name string) string { return filepath.Join(filepath.Dir(p.template), name) }

// change replaces a piece of a file.
func (p *project) change(name, from, to string) {
	p.t.Helper()
	text, err := os.ReadFile(p.path(name))
	require.NoError(p.t, err)
	require.Equal(p.t, 1, strings.Count(string(text), from), "%s in %s", from, name)
	require.NoError(p.t, os.WriteFile(p.path(name), []byte(strings.Replace(string(text), from, to, 1)), 0o600))
}

func (p *project) start(o options, args ...string) *local {
	p.t.Helper()
	o.watch = true
	o.env = append(emptyHome(p.t), engine(p.t))
	return start(p.t, o, append([]string{"-template", p.template}, args...)...)
}

// ask sends a frame to a function and gives the answer.
func (c *client) ask(function string) string {
	c.t.Helper()
	c.send(`{"action":"` + function + `","text":"hello"}`)
	return c.receive()
}

// busy lets a function begin, which ends once release is called, and returns its answer.
func (c *client) busy(function string) (release func() string) {
	c.t.Helper()
	until := filepath.Join(c.t.TempDir(), "until")
	c.send(fmt.Sprintf(`{"action":%q,"text":"hello","until":%q}`, function, until))
	require.Eventually(c.t, func() bool {
		_, err := os.Stat(until + ".begun")
		return err == nil
	}, patience, often)
	return func() string {
		require.NoError(c.t, os.WriteFile(until, nil, 0o600))
		return c.receive()
	}
}

// said counts the lines.
func (c *local) said(pattern string) int {
	return len(regexp.MustCompile("(?m)"+pattern).FindAllString(c.stderr.String(), -1))
}

// A function is edited while sockets are open.
func TestEdit(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	c := p.start(options{})
	user, at := c.dial(""), c.dial("")
	require.Equal(t, "echo shared hello", user.ask("echo"))
	require.Equal(t, "other shared hello", user.ask("other"))

	release := at.busy("echo")
	p.change("echo/main.go", `"echo"`, `"edited"`)
	c.awaitLog(`^local      \| echo: rebuilt in \d+\.\d s$`)
	require.Equal(t, "edited shared hello", user.ask("echo"))
	require.Equal(t, "echo shared hello", release(), "what was at work ended as it began")
	require.Equal(t, "edited shared hello", at.ask("echo"))

	p.change("words/words.go", `"shared"`, `"common"`)
	c.awaitLog(`^local      \| echo, other: rebuilt in \d+\.\d s$`)
	require.Equal(t, "edited common hello", user.ask("echo"))
	require.Equal(t, "other common hello", user.ask("other"))

	p.change("template.yaml", "Timeout: 29", "Timeout: 28")
	c.awaitLog(`^local      \| ` + regexp.QuoteMeta(p.template) + ` has changed: restart to apply it$`)
	require.Equal(t, "other common hello", user.ask("other"))
	require.Equal(t, 1, c.said("has changed: restart"))
}

// What does not compile is told, and is of no other consequence.
func TestEdit_Mistakes(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	c := p.start(options{})
	user := c.dial("")
	const wrong = `^local      \| error: echo/main\.go:\d+:\d+: undefined: nowhere$`

	p.change("echo/main.go", "words.Answer(name", "words.Answer(nowhere")
	c.awaitLog(wrong)
	c.awaitLog(`^local      \| echo: as before, until it compiles$`)
	require.Equal(t, "echo shared hello", user.ask("echo"))

	p.change("other/main.go", `"other"`, `"fine"`)
	c.awaitLog(`^local      \| other: rebuilt in`)
	require.Equal(t, "fine shared hello", user.ask("other"), "one does not keep another back")
	require.Equal(t, 1, c.said(wrong), "a mistake is told once")

	// A change of both, of which one is wrong still.
	p.change("words/words.go", `"shared"`, `"common"`)
	require.Eventually(t, func() bool { return c.said(`^local      \| other: rebuilt in`) == 2 }, patience, often)
	require.Equal(t, "fine common hello", user.ask("other"))
	require.Equal(t, "echo shared hello", user.ask("echo"))
	require.Equal(t, 2, c.said(wrong))

	p.change("echo/main.go", "words.Answer(nowhere", "words.Answer(name")
	c.awaitLog(`^local      \| echo: rebuilt in`)
	require.Equal(t, "echo common hello", user.ask("echo"))

	// A package that is not there yet.
	p.change("echo/main.go", `"github.com/inorder-im/inorder/words"`, `"github.com/inorder-im/inorder/more"; "github.com/inorder-im/inorder/words"`)
	c.awaitLog(`^local      \| error: echo/main\.go:\d+:\d+: no required module provides package github.com/inorder-im/inorder/more`)
	p.change("echo/main.go", "words.Answer(name", "words.Answer(more.Name")
	require.Eventually(t, func() bool { return c.said(`inorder-im/inorder/more`) == 2 }, patience, often)
	require.NoError(t, os.Mkdir(p.path("more"), 0o700))
	require.NoError(t, os.WriteFile(p.path("more/more.go"), []byte("package more\n\nconst Name = \"more\"\n"), 0o600))
	require.Eventually(t, func() bool { return c.said(`^local      \| echo: rebuilt in`) == 2 }, patience, often)
	require.Equal(t, "more common hello", user.ask("echo"))

	// A folder that is moved away, and back.
	require.NoError(t, os.Rename(p.path("echo"), p.path("away")))
	c.awaitLog(`^local      \| error: .*template\.yaml:\d+: Resources\.EchoFunction\.Properties\.CodeUri: there are no Go files in `)
	require.Equal(t, "more common hello", user.ask("echo"))
	require.NoError(t, os.Rename(p.path("away"), p.path("echo")))
	c.awaitLog(`^local      \| echo: compiles again, to what runs$`)
	require.Equal(t, "more common hello", user.ask("echo"))
}

// The end does not wait for a build, and leaves none behind.
func TestEdit_StopWhileABuildHangs(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	dir := t.TempDir()
	// It is the go tool's way to run a compiler, and hangs once it is told to.
	hang := filepath.Join(dir, "hang")
	wrapper := filepath.Join(dir, "wrapper")
	require.NoError(t, os.WriteFile(wrapper, []byte("#!/bin/sh\nif [ -e "+hang+" ]; then touch "+hang+".begun; sleep 1000; fi\nexec \"$@\"\n"), 0o700))
	env := append(emptyHome(t), engine(t), "GOFLAGS=-toolexec="+wrapper)
	c := start(t, options{watch: true, env: env}, "-template", p.template)
	require.NoError(t, os.WriteFile(hang, nil, 0o600))
	p.change("echo/main.go", `"echo"`, `"edited"`)
	require.Eventually(t, func() bool {
		_, err := os.Stat(hang + ".begun")
		return err == nil
	}, patience, often)
	require.Equal(t, "echo shared hello", c.dial("").ask("echo"))
	c.stop()
	require.Zero(t, c.said("error:"), "%s", c.stderr)
}

func TestEdit_Off(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	c := start(t, options{env: append(emptyHome(t), engine(t))}, "-template", p.template) // -watch=false
	user := c.dial("")
	p.change("echo/main.go", `"echo"`, `"edited"`)
	// As long as it takes a second one, which does see changes, to see one.
	other := p.start(options{})
	p.change("echo/main.go", `"edited"`, `"again"`)
	other.awaitLog(`^local      \| echo: rebuilt in`)
	require.Equal(t, "echo shared hello", user.ask("echo"))
	require.Zero(t, c.said("rebuilt"))
}

var attachLine = regexp.MustCompile(`(?m)^local      \| bare has no limit of time\. To debug it: dlv attach (\d+)$`)

// pid waits until a debugger was told that many processes, and returns the last.
func (c *local) pid(number int) string {
	c.t.Helper()
	var found [][]string
	require.Eventually(c.t, func() bool {
		found = attachLine.FindAllStringSubmatch(c.stderr.String(), -1)
		return len(found) >= number
	}, patience, often)
	require.Len(c.t, found, number)
	return found[number-1][1]
}

// call is an invocation of the function bare.
type call struct {
	until  string // the file that it waits for
	answer chan string
}

func (c *local) call() *call {
	k := &call{until: filepath.Join(c.t.TempDir(), "until"), answer: make(chan string, 1)}
	go func() {
		var text []byte
		response, err := http.Post(c.page+"2015-03-31/functions/bare/invocations", "application/json", strings.NewReader(strconv.Quote(k.until)))
		if err == nil {
			text, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		k.answer <- fmt.Sprint(string(text), err)
	}()
	return k
}

func (k *call) begun() bool {
	_, err := os.Stat(k.until + ".begun")
	return err == nil
}

func (k *call) end(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(k.until, nil, 0o600))
}

func TestDebug(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	c := p.start(options{}, "-debug", "bare")
	pid := c.pid(1)
	first := c.call()
	require.Eventually(t, first.begun, patience, often)
	began := time.Now()
	second := c.call() // waits for the one process
	require.Eventually(t, func() bool { return time.Since(began) > 1500*time.Millisecond }, patience, often, "its limit is a second")
	require.False(t, second.begun())
	for _, k := range []*call{first, second} {
		k.end(t)
		require.Equal(t, `"bare `+pid+`"<nil>`, <-k.answer)
	}
	require.Zero(t, c.said("Timedout|timed out"))

	p.change("bare/main.go", `"bare"`, `"edited"`)
	c.awaitLog(`^local      \| bare: rebuilt in`)
	third := c.call()
	third.end(t)
	require.Equal(t, `"edited `+c.pid(2)+`"<nil>`, <-third.answer)
}

func TestErrors_Debug(t *testing.T) {
	t.Parallel()
	runToEnd(t, options{}, "-addr", "127.0.0.1:0", "-template", edits, "-debug", "nothing").
		requireError(t, `-debug nothing: there is no function "nothing"; there are bare, echo, other`)
}

// Who is signed in stays so while the data does.
func TestTokensOutliveARestartWithData(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	flags := []string{"-template", product, "-param", "JwtIssuer=http://issuer.example/"} // else the port is in it
	first := start(t, options{}, append(flags, "-data", data)...)
	token := first.token("alice")
	first.stop()
	info, err := os.Stat(filepath.Join(data, "token-key.pem"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	second := start(t, options{}, append(flags, "-data", data)...)
	alice := second.dial("?device=phone", "Authorization", "Bearer "+token)
	alice.send(`{"action":"ping","id":"1"}`)
	require.Contains(t, alice.receive(), `"id":"1"`)

	anew := start(t, options{}, flags...)
	_, response, err := websocket.Dial(t.Context(), anew.socket+"?device=phone", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	require.Error(t, err)
	require.Equal(t, http.StatusUnauthorized, response.StatusCode, "without data there is a new key")

	second.stop()
	require.NoError(t, os.WriteFile(filepath.Join(data, "token-key.pem"), []byte("damaged"), 0o600))
	runToEnd(t, options{}, append([]string{"-addr", "127.0.0.1:0", "-data", data}, flags...)...).
		requireError(t, "the token key in "+filepath.Join(data, "token-key.pem")+" cannot be used: ")
}
