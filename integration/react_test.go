package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/logtest"
)

// Two people chat in the React example: alice as its developer sees it, bob as it is built.
// Here, only the product opens conversations, so what is sent too early fails and is sent
// again; and alice loses the network for a while.
func TestExamples_React(t *testing.T) {
	t.Parallel()
	needLocal(t)
	windows := startBrowser(t)
	app := buildReact(t)
	app.requirePackage(t)
	cloud := startCloud(t, "-param", "DirectMessages=closed")
	network := startNetwork(t, cloud.Stack)
	aliceName, bobName := newUser("alice"), newUser("bob")
	alice := openReact(windows(app.serve(t, hostOf(t, stack{Socket: network.URL()})), aliceName))
	bob := openReact(windows(app.serve(t, hostOf(t, cloud.Stack), "preview"), bobName))

	t.Log("what the server refuses can be sent again")
	alice.write("user", bobName)
	alice.write("text", "hello bob")
	alice.await("that it is refused", `document.querySelector("li[data-state=failed]") !== null`)
	require.Contains(t, alice.text("li[data-state=failed] small"), "conversation")
	_, err := publish(t.Context(), t, cloud.Stack, map[string]any{"between": []string{aliceName, bobName}})
	require.NoError(t, err)
	alice.click("li[data-state=failed] button")
	expected := []string{"system: (members)", aliceName + ": hello bob"}
	alice.awaitRows(expected...)

	t.Log("both ways, told and read")
	bob.await("word of it", `document.querySelector("nav mark") !== null`)
	require.Contains(t, bob.text("nav"), aliceName)
	bob.click("nav button")
	for i := range 3 {
		for _, w := range []react{bob, alice} {
			expected = append(expected, fmt.Sprintf("%s: %d", w.user, i))
			w.write("text", fmt.Sprint(i))
			alice.awaitRows(expected...)
			bob.awaitRows(expected...)
		}
	}
	alice.await("that bob has read it", `[...document.querySelectorAll("li small")].at(-1).textContent.trim() === "read"`)

	t.Log("a reload without a network keeps what there is, and what is to be sent")
	network.Away(true)
	alice.await("word that she is not connected", `document.querySelector("[role=status]") !== null`)
	pending := []string{aliceName + ": from the tunnel", aliceName + ": still in it"}
	alice.write("text", "from the tunnel")
	alice.write("text", "still in it")
	bob.write("text", "where are you?")
	alice.await("what waits", `document.querySelectorAll("li[data-state=sending]").length === 2`)
	require.Equal(t, append(expected[:len(expected):len(expected)], pending...), alice.rows())
	expected = append(expected, bobName+": where are you?")
	bob.awaitRows(expected...)
	alice.awaitKept(len(pending))
	alice.do(chromedp.Reload())
	alice.await("her conversations", `document.querySelector("nav button") !== null`)
	alice.click("nav button")
	alice.await("what waits", `document.querySelectorAll("li[data-state=sending]").length === 2`)
	require.Equal(t, append(expected[:len(expected)-1:len(expected)-1], pending...), alice.rows())
	require.NotEmpty(t, alice.text("[role=status]"))

	network.Away(false)
	alice.click("[role=status] button")
	expected = append(expected, pending...)
	alice.awaitRows(expected...)
	bob.awaitRows(expected...)
	for _, w := range []react{alice, bob} {
		require.Zero(t, evaluate[int](w.window, `document.querySelectorAll("[role=status], [role=alert], li[data-state=failed]").length`))
		require.Empty(t, w.complaints(), "what %s's console says", w.user)
	}

	t.Log("a device that was opened somewhere else can be taken back")
	mustConnect(t, cloud.Stack, aliceName, evaluate[string](alice.window, "localStorage.device"))
	alice.await("word of it", `document.querySelector("[role=status]")?.textContent.startsWith("Offline: replaced")`)
	alice.click("[role=status] button")
	alice.await("being back", `document.querySelector("[role=status]") === null`)
}

// reactApp is the React example, built: the folder that it is in.
type reactApp string

// buildReact installs and builds the React example as its user would, checking its types.
// Without its packages the test is skipped, except in CI, where nobody would notice.
func buildReact(t *testing.T) reactApp {
	t.Helper()
	const example, client = "shared/client/examples/react", "shared/client/web"
	require.NoError(t, dependOnTheProduct())
	root := t.TempDir()
	for _, dir := range []string{example, client} {
		copySources(t, filepath.Join("..", dir), filepath.Join(root, dir))
	}
	dir := filepath.Join(root, example)
	if out, err := npm(t, dir, "ci", "--prefer-offline", "--no-audit", "--no-fund", "--fetch-retries=1"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("installing the packages of the React example: %v\n%s", err, out)
		}
		reason, _, _ := strings.Cut(out, "\n")
		t.Skipf("npm cannot install the packages of the React example here: %v: %s", err, reason)
	}
	out, err := npm(t, dir, "run", "build")
	require.NoError(t, err, out)
	return reactApp(dir)
}

// requirePackage checks that the browser client is a package that a program in another
// folder can install and use, with all that belongs to it and nothing else.
func (app reactApp) requirePackage(t *testing.T) {
	t.Helper()
	client, dir := filepath.Join(string(app), "../../web"), t.TempDir()
	out, err := npm(t, client, "pack", "--json", "--pack-destination", dir)
	require.NoError(t, err, out)
	var packed []struct {
		Filename string
		Files    []struct{ Path string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &packed), out)
	var files []string
	for _, file := range packed[0].Files {
		files = append(files, file.Path)
	}
	expected := []string{"LICENSE", "README.md", "package.json"}
	for _, pattern := range []string{"*.js", "generated/*.d.ts"} {
		found, err := filepath.Glob(filepath.Join(client, pattern))
		require.NoError(t, err)
		for _, file := range found {
			name, err := filepath.Rel(client, file)
			require.NoError(t, err)
			expected = append(expected, name)
		}
	}
	require.ElementsMatch(t, expected, files)
	ours, err := os.ReadFile("../LICENSE")
	require.NoError(t, err)
	its, err := os.ReadFile(filepath.Join(client, "LICENSE"))
	require.NoError(t, err)
	require.Equal(t, string(ours), string(its), "the package has the project's licence")

	const program = `import { type Row, open } from "inorder-client";
const client = await open({ url: "wss://example.com/v1", userId: "alice", deviceId: "laptop", token: () => "jwt" });
export const rows: readonly Row[] = client.messages(client.keyFor("bob"));
`
	for name, content := range map[string]string{"package.json": `{"type": "module"}`, "program.ts": program} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	out, err = npm(t, dir, "install", "--offline", "--no-audit", "--no-fund", filepath.Join(dir, packed[0].Filename))
	require.NoError(t, err, out)
	for _, args := range [][]string{
		{filepath.Join(string(app), "node_modules/typescript/bin/tsc"), "--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom", "--types", "", "program.ts"},
		{"--input-type=module", "--eval", `import("inorder-client").then(({ open }) => open({})).catch(({ message }) => { if (!message.startsWith("url has to be")) throw new Error(message); })`},
	} {
		cmd := exec.CommandContext(t.Context(), "node", args...)
		cmd.Dir = dir
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
}

// npm runs npm and gives what it says; what it prints for programs, if all went well.
func npm(t *testing.T, dir string, args ...string) (out string, err error) {
	t.Helper()
	limit := time.Minute
	if os.Getenv("CI") == "true" {
		limit = 5 * time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	said, complained := &logtest.Log{}, &logtest.Log{}
	cmd.Stdout, cmd.Stderr = said, complained
	if err := cmd.Run(); err != nil {
		return said.String() + complained.String(), err
	}
	return said.String(), nil
}

var viteSays = regexp.MustCompile(`Local: +(http://\S+)`)

// serve starts Vite with the local cloud at host behind it, and returns the page's address.
func (app reactApp) serve(t *testing.T, host string, command ...string) (address string) {
	t.Helper()
	args := slices.Concat([]string{"NO_COLOR=1", "INORDER_URL=http://" + host, "node", "node_modules/vite/bin/vite.js"}, command)
	vite := startExample(t, string(app), "env", append(args, "--host", "127.0.0.1", "--port", "0")...)
	vite.await("Local:")
	return viteSays.FindStringSubmatch(vite.out.String())[1]
}

// copySources copies a folder without what npm and Vite put there.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "dist"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(target, 0o750)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600)
	})
	require.NoError(t, err)
}

// react is a window with the React example.
type react struct {
	*window
	console *console
}

// click clicks in the page itself: a row that comes in between moves what the mouse
// was to hit.
func (r react) click(selector string) {
	r.t.Helper()
	clicked := evaluate[bool](r.window, fmt.Sprintf("(found => { found?.click(); return found !== null })(document.querySelector(%q))", selector))
	require.True(r.t, clicked, "there is no %s in %s's window", selector, r.user)
}

// console is what the browser's console has to complain about.
type console struct {
	mu  sync.Mutex
	say []string
}

// openReact logs a window's user in.
func openReact(w *window) react {
	w.t.Helper()
	r := react{w, &console{}}
	require.NoError(w.t, chromedp.Listen(w.ctx, r.console.take))
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("%s's console: %q", w.user, r.complaints())
		}
	})
	r.write("name", w.user)
	r.await("being online", `document.querySelector("main[data-state=online]") !== null`)
	return r
}

func (c *console) take(event any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError {
			c.say = append(c.say, fmt.Sprintf("%s %s", event.Args[0].Value, event.Args[0].Description))
		}
	case *runtime.EventExceptionThrown:
		c.say = append(c.say, event.ExceptionDetails.Text+" "+event.ExceptionDetails.Exception.Description)
	}
}

func (r react) complaints() []string {
	r.console.mu.Lock()
	defer r.console.mu.Unlock()
	return r.console.say
}

// write fills in a field, and Enter.
func (r react) write(field, text string) {
	r.t.Helper()
	r.do(chromedp.SendKeys(chromedp.CSS("input[name="+field+"]"), text+kb.Enter))
}

func (r react) rows() []string {
	r.t.Helper()
	return evaluate[[]string](r.window, `[...document.querySelectorAll("li:has(span)")].map((row) => row.querySelector("b").textContent + ": " + row.querySelector("span").textContent)`)
}

// awaitKept waits until so many messages that are to be sent are stored.
func (r react) awaitKept(count int) {
	r.t.Helper()
	r.await("what is to be sent being stored", fmt.Sprintf(`indexedDB.databases().then(([{ name }]) => new Promise((resolve) => {
		const opening = indexedDB.open(name);
		opening.onsuccess = () => {
			const counting = opening.result.transaction("outbox").objectStore("outbox").count();
			counting.onsuccess = () => resolve(counting.result === %d);
			opening.result.close();
		};
	}))`, count))
}

// awaitRows waits until these are shown, and nothing waits to be sent.
func (r react) awaitRows(rows ...string) {
	r.t.Helper()
	shown := fmt.Sprintf(`document.querySelectorAll("li:has(span)").length >= %d`, len(rows))
	r.await(fmt.Sprint(len(rows), " rows"), shown+` && document.querySelector("li[data-state=sending], li[data-state=failed]") === null`)
	require.Equal(r.t, rows, r.rows(), "in %s's window", r.user)
}
