package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client/web/browsertest"
	"github.com/inorder-im/inorder/shared/wire"
)

// Two people chat in two windows of a real browser, as the README invites to.
func TestPage(t *testing.T) {
	t.Parallel()
	cloud := startCloud(t)
	windows := openBrowser(t)
	aliceName, bobName := newUser("alice"), newUser("bob")
	alice := windows(cloud.Page, aliceName, "")
	bob := windows(cloud.Page, bobName, "")
	bob.attend()

	alice.converse(bobName)
	alice.say("hello bob")
	alice.awaitTexts("hello bob")
	bob.await("the new conversation", `document.querySelector("[data-conversation][data-unread='1']") !== null`)
	require.Contains(t, bob.text("#conversations"), aliceName)
	bob.click("[data-conversation]")
	bob.awaitTexts("hello bob")
	bob.await("that it is read", `document.querySelector("[data-conversation][data-unread='0']") !== null`)

	t.Log("both ways")
	expected := []string{"hello bob"}
	for i := range 3 {
		expected = append(expected, fmt.Sprintf("bob %d", i), fmt.Sprintf("alice %d", i))
		bob.say(expected[len(expected)-2])
		alice.awaitTexts(expected[:len(expected)-1]...)
		alice.say(expected[len(expected)-1])
		bob.awaitTexts(expected...)
	}
	alice.await("that all is sent", allSent)
	requireSame(t, alice, bob)

	t.Log("both at once")
	var both []string
	for i := range 5 {
		both = append(both, fmt.Sprintf("at once a%d", i), fmt.Sprintf("at once b%d", i))
		alice.say(both[len(both)-2])
		bob.say(both[len(both)-1])
	}
	total := len(expected) + len(both)
	alice.awaitCount(total)
	bob.awaitCount(total)
	requireSame(t, alice, bob)
	require.ElementsMatch(t, both, alice.texts()[len(expected):])

	t.Log("bob is away while ten messages come, and writes one himself")
	before := bob.texts()
	bob.click("#offline")
	bob.awaitState("offline")
	var ten []string
	for i := range 10 {
		ten = append(ten, fmt.Sprintf("while you were away %d", i))
		alice.say(ten[i])
	}
	alice.awaitTexts(append(slices.Clone(before), ten...)...)
	alice.await("that all is sent", allSent)
	bob.say("from my pocket")
	last := func(window *window) message { return window.messages()[len(window.messages())-1] }
	require.Equal(t, message{Sender: bobName, Text: "from my pocket", State: "sending"}, last(bob))
	require.Equal(t, append(slices.Clone(before), "from my pocket"), bob.texts(), "nothing comes while he is away")
	bob.record(last(bob).Text)
	bob.click("#offline")
	bob.awaitState("online")
	all := append(append(slices.Clone(before), ten...), "from my pocket")
	bob.awaitTexts(all...)
	alice.awaitTexts(all...)
	bob.await("that all is sent", allSent)
	require.Equal(t, []string{"sending", "sent"}, bob.recorded())
	requireSame(t, alice, bob)

	t.Log("a reload keeps everything, also what is not sent yet")
	bob.click("#offline")
	bob.awaitState("offline")
	bob.say("after the reload")
	bob.awaitKept("after the reload")
	bob.do(chromedp.Reload())
	all = append(all, "after the reload")
	bob.awaitState("online")
	bob.awaitTexts(all...)
	alice.awaitTexts(all...)
	bob.await("that all is sent", allSent)
	requireSame(t, alice, bob)

	t.Log("alice finds everything in a window that is another device")
	again := windows(cloud.Page, aliceName, "new")
	require.NotEqual(t, alice.text("#device"), again.text("#device"))
	require.Equal(t, alice.text("#device"), bob.text("#device"), "a browser is one device, whoever uses it")
	again.await("the conversation", `document.querySelector("[data-conversation]") !== null`)
	again.click("[data-conversation]")
	again.awaitTexts(all...)
	requireSame(t, again, bob)
}

// The menu of a message is used by the keyboard, which goes on where it was.
func TestPage_TheMenuByKeyboard(t *testing.T) {
	t.Parallel()
	cloud := startCloud(t)
	alice := openBrowser(t)(cloud.Page, newUser("alice"), "")
	alice.attend()
	alice.converse(newUser("bob"))
	alice.say("one")
	alice.say("two")
	alice.await("that all is sent", allSent)
	const inMenu = `document.getElementById("menu").contains(document.activeElement)`
	open := func() {
		evaluate[bool](alice, `(document.querySelector("#messages .more").focus(), true)`)
		alice.do(chromedp.KeyEvent(kb.Enter))
		alice.await("the menu", inMenu)
	}
	closed := func(at int) {
		alice.await("the menu to be closed", `!document.getElementById("menu").matches(":popover-open")`)
		alice.await("the focus", fmt.Sprintf(`document.querySelectorAll("#messages .more")[%d] === document.activeElement`, at))
	}
	open()
	alice.do(chromedp.KeyEvent(kb.Escape))
	closed(0)
	open()
	for range evaluate[int](alice, `document.getElementById("menu").childElementCount`) {
		require.True(t, evaluate[bool](alice, inMenu))
		alice.do(chromedp.KeyEvent(kb.Tab))
	}
	closed(1)
}

// Three tabs of one device against a real server: they share one connection, and go
// on when the one that has it crashes or is frozen.
func TestPage_TabsShareOneConnection(t *testing.T) {
	t.Parallel()
	cloud := startCloud(t)
	db := dynamotest.Client(t, cloud.DynamoDB)
	open := openBrowser(t)
	aliceName, bobName := newUser("alice"), newUser("bob")
	bob := mustConnect(t, cloud.Stack, bobName, "phone")
	tabs := []*window{open(cloud.Page, aliceName, ""), open(cloud.Page, aliceName, ""), open(cloud.Page, aliceName, "")}
	first := connections(t, db, aliceName)
	require.Len(t, first, 1)
	requireLeader(t, tabs, tabs[0])

	t.Log("all write at once, and show the same")
	for _, tab := range tabs {
		tab.converse(bobName)
	}
	expected := 0
	for i := range 4 {
		for _, tab := range tabs {
			tab.say(fmt.Sprintf("%s %d", tab.id(), i))
			expected++
		}
		mustSend(t, bob, wire.Send{To: aliceName, Text: fmt.Sprintf("bob %d", i)})
		expected++
	}
	awaitAll(t, tabs, expected)
	require.Equal(t, first, connections(t, db, aliceName), "it is the same connection, and the only one")

	t.Log("the tab that has the connection crashes while another one sends")
	tabs[1].sayMany("crash", 20)
	require.NoError(t, tabs[0].crash())
	expected += 20
	tabs = tabs[1:]
	awaitAll(t, tabs, expected)
	requireLeader(t, tabs, tabs[0])
	awaitConnections(t, db, aliceName, 1)

	t.Log("the next one is frozen while another one sends")
	tabs[1].sayMany("freeze", 20)
	tabs[0].freeze()
	expected += 20
	// It may be frozen between the check of its term and what it writes. The others can
	// then read and write no more until the browser ends that, which Chromium does after
	// a minute.
	tabs[1].patience = 3 * time.Minute
	awaitAll(t, tabs[1:], expected)
	requireLeader(t, tabs[1:], tabs[1])
	tabs[0].thaw()
	awaitAll(t, tabs, expected)
	requireLeader(t, tabs, tabs[1])
	awaitConnections(t, db, aliceName, 1)

	t.Log("one tab is closed: the other goes on")
	third := open(cloud.Page, aliceName, "")
	third.click("[data-conversation]")
	tabs[1].click("#leave")
	tabs[1].await("having left", `document.getElementById("welcome").checkVisibility()`)
	tabs = []*window{tabs[0], third}
	tabs[0].say("still here")
	expected++
	awaitAll(t, tabs, expected)

	t.Log("a reload of all without a connection shows everything, and takes messages")
	before := tabs[0].texts()
	for _, tab := range tabs {
		tab.block("*://*:*/dev/token*")
	}
	for _, tab := range tabs {
		tab.do(chromedp.Reload())
		tab.awaitTexts(before...)
		require.NotEqual(t, "online", tab.text("#state"))
		tab.await("word of it", `document.getElementById("notice").textContent === "Not connected: the server does not answer. Is the local cloud running? Its terminal says more."`)
	}
	tabs[1].say("without a connection")
	expected++
	tabs[0].await("the other tab's message", `document.querySelectorAll("#messages > [data-state='sending']").length === 1`)
	for _, tab := range tabs {
		tab.block()
	}
	awaitAll(t, tabs, expected)
	awaitConnections(t, db, aliceName, 1)

	conversation := chat.SingleID(aliceName, bobName)
	require.NoError(t, bob.sync(t.Context(), conversation))
	require.Len(t, bob.ledger(conversation).messages, expected)
}

// awaitAll waits until all tabs show so many committed messages, and checks that
// they are the same.
func awaitAll(t *testing.T, tabs []*window, count int) {
	t.Helper()
	for _, tab := range tabs {
		tab.awaitCount(count)
		tab.await("that all is sent", allSent)
	}
	for _, tab := range tabs {
		requireSame(t, tabs[0], tab)
	}
}

// requireLeader checks which of the tabs has the connection.
func requireLeader(t *testing.T, tabs []*window, leader *window) {
	t.Helper()
	for _, tab := range tabs {
		tab.await(fmt.Sprintf("leading: %v", tab == leader), fmt.Sprintf(`document.getElementById("app").dataset.leads === "%v"`, tab == leader))
	}
}

// allSent is true when every own message that is shown has been committed.
const allSent = `document.querySelector("#messages > [data-state='sending'], #messages > [data-state='failed']") === null`

// requireSame checks that two windows show the same messages in the same order,
// numbered from 1 without a hole, each once.
func requireSame(t *testing.T, a, b *window) {
	t.Helper()
	shared := func(w *window) (list []message) {
		for _, m := range w.messages() {
			require.Contains(t, []string{"sent", "delivered", "read", ""}, m.State)
			m.State = "" // it is for the sender only
			list = append(list, m)
		}
		return list
	}
	require.Equal(t, shared(a), shared(b))
	seen := map[string]bool{}
	for i, m := range shared(a) {
		require.Equal(t, i+1, m.Seq)
		require.False(t, seen[m.ID] || m.ID == "", "%q is there twice", m.Text)
		seen[m.ID] = true
	}
}

// message is a row of the page.
type message struct {
	Seq    int    `json:"seq"` // 0 while it is not committed
	ID     string `json:"id"`  // clientMsgId, once it is committed
	Sender string `json:"sender"`
	Text   string `json:"text"`
	State  string `json:"state"` // of an own message
}

// window is one browser window, of one user.
type window struct {
	t        *testing.T
	ctx      context.Context
	user     string
	patience time.Duration
}

// openBrowser starts a browser and returns what opens a window of the page in it: device
// is "" for the browser's own, and "new" for another.
func openBrowser(t *testing.T) func(page, user, device string) *window {
	t.Helper()
	open := startBrowser(t)
	return func(page, user, device string) *window {
		parameters := url.Values{"user": {user}}
		if device != "" {
			parameters.Set("device", device)
		}
		w := open(page+"#"+parameters.Encode(), user)
		w.awaitState("online")
		return w
	}
}

// startBrowser starts a browser that ends with the test and returns what opens a window
// in it. Without a browser the test is skipped, except in CI, where nobody would notice.
func startBrowser(t *testing.T) func(address, user string) *window {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browsertest.Chromium(t)),
		chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-component-update", true),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to run as root with one
	}
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	var first context.Context
	t.Cleanup(func() {
		defer cancelAllocator()
		if first == nil {
			return
		}
		// It closes the browser and waits, so that its folder can be removed.
		if err := chromedp.Cancel(first); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("closing the browser: %v", err)
		}
	})
	return func(address, user string) *window {
		w := &window{t: t, user: user, patience: patience}
		if first == nil {
			first, _ = chromedp.NewContext(allocator)
			w.ctx = first
		} else {
			w.ctx, _ = chromedp.NewContext(first, chromedp.WithNewWindow(true))
		}
		// What starts the browser and the window must not be bounded: both would end
		// with the context.
		require.NoError(t, chromedp.Do(w.ctx))
		w.do(chromedp.Navigate(address))
		t.Cleanup(w.keepPicture)
		return w
	}
}

// keepPicture leaves a picture of a window in which something went wrong; see the
// -artifacts flag of go test.
func (w *window) keepPicture() {
	if !w.t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		w.t.Logf("taking a picture of %s's window: %v", w.user, err)
		return
	}
	file := filepath.Join(w.t.ArtifactDir(), w.user+".png")
	if err := os.WriteFile(file, picture, 0o600); err != nil {
		w.t.Logf("keeping a picture of %s's window: %v", w.user, err)
	}
}

// do runs steps, which have to succeed within the time a test has patience for.
func (w *window) do(steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	require.NoError(w.t, chromedp.Do(ctx, steps...), "in %s's window", w.user)
}

// evaluate returns the value of an expression in the page, or of its promise.
func evaluate[T any](w *window, expression string) T {
	w.t.Helper()
	value, err := tryEvaluate[T](w, expression)
	require.NoError(w.t, err, "in %s's window", w.user)
	return value
}

func tryEvaluate[T any](w *window, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// await asks again and again: the page's Content-Security-Policy has no room for
// the functions with which the browser itself could wait.
func (w *window) await(what, condition string) {
	w.t.Helper()
	for deadline := time.Now().Add(w.patience); ; time.Sleep(10 * time.Millisecond) {
		holds, err := tryEvaluate[bool](w, condition)
		if holds {
			return
		}
		if time.Now().After(deadline) {
			shown, _ := tryEvaluate[string](w, `document.getElementById("app")?.dataset.connection + "\n" + document.body.innerText`)
			require.FailNow(w.t, "the page does not get there", "%s's window %s waits for %s (%v) and shows: %s", w.user, w.id(), what, err, shown)
		}
	}
}

func (w *window) awaitState(state string) {
	w.t.Helper()
	w.await("being "+state, fmt.Sprintf(`document.getElementById("app").dataset.connection === %q`, state))
}

func (w *window) awaitCount(count int) {
	w.t.Helper()
	w.await(fmt.Sprintf("%d committed messages", count), fmt.Sprintf(`document.querySelectorAll("#messages > [data-seq]").length === %d`, count))
}

func (w *window) awaitTexts(texts ...string) {
	w.t.Helper()
	w.awaitCount(len(texts))
	require.Equal(w.t, texts, w.texts(), "in %s's window", w.user)
}

func (w *window) click(selector string) {
	w.t.Helper()
	w.do(chromedp.Click(chromedp.CSS(selector)))
}

func (w *window) text(selector string) string {
	w.t.Helper()
	return evaluate[string](w, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

// converse starts a conversation with another user.
func (w *window) converse(user string) {
	w.t.Helper()
	w.do(chromedp.SendKeys(chromedp.CSS("#to"), user), chromedp.Click(chromedp.CSS("#start")))
}

// say types a message and sends it with the Enter key.
func (w *window) say(text string) {
	w.t.Helper()
	w.do(chromedp.SendKeys(chromedp.CSS("#text"), text+kb.Enter))
}

// awaitKept waits until the browser has stored a message that is still to be sent.
func (w *window) awaitKept(text string) {
	w.t.Helper()
	w.await(fmt.Sprintf("%q being stored", text), fmt.Sprintf(`import("/client/store.js").then(async ({ IndexedDBStore }) => {
		const store = await IndexedDBStore.open(%q, document.getElementById("device").textContent);
		const { outbox } = await store.load();
		store.close();
		return outbox.some(({ text }) => text === %q);
	})`, w.user, text))
}

// id names the window's tab, to tell what it wrote.
func (w *window) id() string {
	return string(chromedp.FromContext(w.ctx).Target.TargetID[:6])
}

// sayMany sends messages as fast as a program can, and returns while they are on
// their way.
func (w *window) sayMany(text string, count int) {
	w.t.Helper()
	evaluate[bool](w, fmt.Sprintf(`(() => {
		for (let i = 0; i < %d; i++) {
			const field = document.getElementById("text");
			field.value = %q + " " + i;
			field.dispatchEvent(new Event("input"));
			document.getElementById("composer").requestSubmit();
		}
		return true;
	})()`, count, text))
}

// crash ends the process that runs the window. The command has no answer then.
func (w *window) crash() error {
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	_, err := chromedp.Call(ctx, page.Crash, cdp.Empty{})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (w *window) freeze() { w.setLifecycle(page.SetWebLifecycleStateStateFrozen) }
func (w *window) thaw()   { w.setLifecycle(page.SetWebLifecycleStateStateActive) }

func (w *window) setLifecycle(state page.SetWebLifecycleStateState) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: state})
	require.NoError(w.t, err)
}

// block keeps the window from loading what is at URLs like these (in the syntax of
// URLPattern), and nothing else.
func (w *window) block(patterns ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(w.t, err)
	var blocked []*network.BlockPattern
	for _, pattern := range patterns {
		blocked = append(blocked, &network.BlockPattern{URLPattern: pattern, Block: true})
	}
	_, err = chromedp.Call(ctx, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: blocked})
	require.NoError(w.t, err)
}

// attend has somebody look at the window: what nobody sees is not read. It cannot be
// frozen then.
func (w *window) attend() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	require.NoError(w.t, err)
}

func (w *window) messages() []message {
	w.t.Helper()
	return evaluate[[]message](w, `[...document.querySelectorAll("#messages > .message")].map((row) => ({
		seq: Number(row.dataset.seq ?? 0),
		id: row.dataset.seq ? row.dataset.clientMsgId : "",
		sender: row.querySelector(".sender").textContent,
		text: row.querySelector(".text").textContent,
		state: row.dataset.state ?? "",
	}))`)
}

func (w *window) texts() []string {
	w.t.Helper()
	var texts []string
	for _, m := range w.messages() {
		texts = append(texts, m.Text)
	}
	return texts
}

// record notes the states that a message goes through from now on.
func (w *window) record(text string) {
	w.t.Helper()
	found := evaluate[bool](w, fmt.Sprintf(`(() => {
		const row = [...document.querySelectorAll("#messages > .message")].find((row) => row.querySelector(".text").textContent === %q);
		if (!row) return false;
		window.states = [row.dataset.state];
		new MutationObserver(() => {
			if (window.states.at(-1) !== row.dataset.state) window.states.push(row.dataset.state);
		}).observe(row, { attributeFilter: ["data-state"] });
		return true;
	})()`, text))
	require.True(w.t, found, "%s's window does not show %q", w.user, text)
}

func (w *window) recorded() []string {
	w.t.Helper()
	return evaluate[[]string](w, "window.states")
}
