package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/sqlite"
	"github.com/inorder-im/inorder/shared/wire"
)

// keeper is a program of bob's that keeps what it has in a file.
type keeper struct {
	*client.Client
	store *sqlite.Store
	path  string
}

// keep starts a keeper and waits until it has caught up.
func keep(t *testing.T, s stack, user, path string) keeper {
	t.Helper()
	store, err := sqlite.Open(t.Context(), path)
	require.NoError(t, err)
	cfg := clientOf(s, user, filepath.Base(path))
	cfg.Store = store
	c, err := client.Dial(t.Context(), cfg)
	require.NoError(t, err)
	k := keeper{c, store, path}
	t.Cleanup(func() { _ = k.stop() }) // it may have been stopped
	require.NoError(t, c.Refresh(t.Context()))
	return k
}

func (k keeper) stop() error {
	k.Close()
	return k.store.Close()
}

// holds reports whether the files of the store contain a text, in whatever place.
func (k keeper) holds(t *testing.T, text string) bool {
	t.Helper()
	files, err := filepath.Glob(k.path + "*")
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		if bytes.Contains(content, []byte(text)) {
			return true
		}
	}
	return false
}

// What an operator erases goes from the file of a device that is online, and from
// that of one that was away, in conversations that live, that the user has left and
// that are dissolved. A former member's device is not told, and keeps it until the user
// is a member again.
func TestErasure_ReachesDevices(t *testing.T) {
	t.Parallel()
	needLocal(t)
	ctx := t.Context()
	alice := mustConnect(t, shared, newUser("alice"), "phone")
	bob, former := newUser("bob"), newUser("former")
	const secret = "geheim"
	single := mustSend(t, alice, wire.Send{To: bob, Text: secret})
	edit := wire.Edit{ConversationID: single.ConversationID, Seq: 1, MessageID: single.MessageID, Version: 1, Text: secret + " 2", ClientMsgID: newID()}
	must[wire.Edited](t, alice, wire.ActionEdit, edit)
	ids := []chat.ConversationID{single.ConversationID}
	for _, end := range []string{"", wire.ActionLeave, wire.ActionDissolve} {
		group := createGroup(t, alice, chat.VisibleAll, bob, former)
		for i := range 3 {
			mustSend(t, alice, wire.Send{ConversationID: group, Text: fmt.Sprint(secret, i)})
		}
		if end != "" {
			must[wire.Sent](t, alice, end, wire.ChangeGroup{ConversationID: group, ClientMsgID: newID()})
		}
		ids = append(ids, group)
	}
	dir := t.TempDir()
	online, away := keep(t, shared, bob, filepath.Join(dir, "online")), keep(t, shared, bob, filepath.Join(dir, "away"))
	gone := keep(t, shared, former, filepath.Join(dir, "gone"))
	for _, k := range []keeper{online, away, gone} {
		require.True(t, k.holds(t, secret), k.path)
	}
	require.NoError(t, away.stop())
	must[wire.Sent](t, alice, wire.ActionRemoveMembers, wire.ChangeMembers{ConversationID: ids[1], Members: []string{former}, ClientMsgID: newID()})
	require.Eventually(t, func() bool {
		line, _ := gone.Conversation(ids[1])
		return line.LeftSeq > 0
	}, patience, 20*time.Millisecond)

	operate(t, shared, "erase-user", "-yes", alice.user).must(t)
	require.Eventually(t, func() bool { return !online.holds(t, secret) }, patience, 20*time.Millisecond, "by push")
	away = keep(t, shared, bob, away.path)
	require.False(t, away.holds(t, secret), "caught up")
	fresh := keep(t, shared, bob, filepath.Join(dir, "fresh"))
	for _, id := range ids {
		want, err := fresh.Stored(ctx, id, 0, 100)
		require.NoError(t, err)
		require.Equal(t, &chat.Event{Kind: chat.EventErase, Erased: alice.user}, want[len(want)-1].Event)
		for _, k := range []keeper{online, away} {
			got, err := k.Stored(ctx, id, 0, 100)
			require.NoError(t, err)
			require.Equal(t, want, got, "%s as a new device has it", id)
		}
		require.Empty(t, mustAudit(t, shared, `{"conversationId": "`+string(id)+`"}`).Violations)
	}
	require.NoError(t, gone.Refresh(ctx))
	left, err := gone.Stored(ctx, ids[1], 0, 100)
	require.NoError(t, err)
	require.Equal(t, secret+"0", left[1].Text, "infra/admin/README.md says so")

	must[wire.Sent](t, alice, wire.ActionAddMembers, wire.ChangeMembers{ConversationID: ids[1], Members: []string{former}, ClientMsgID: newID()})
	require.Eventually(t, func() bool {
		left, err = gone.Stored(ctx, ids[1], 1, 3)
		require.NoError(t, err)
		return !slices.ContainsFunc(left, func(m chat.Message) bool { return m.Text != "" })
	}, patience, 20*time.Millisecond)
	require.NoError(t, gone.stop())
	require.False(t, gone.holds(t, secret), "once its log is folded in")
}

// A browser that holds the text does not, neither on the page nor in its database.
func TestPage_AnErasureReachesBrowsers(t *testing.T) {
	t.Parallel()
	needLocal(t)
	windows := openBrowser(t)
	alice, bob := mustConnect(t, shared, newUser("alice"), "phone"), newUser("bob")
	sent := mustSend(t, alice, wire.Send{To: bob, Text: "my secret"})
	w := windows(shared.Page, bob, "")
	w.await("the conversation", `document.querySelector("[data-conversation]") !== null`)
	w.click("[data-conversation]")
	w.awaitTexts("my secret")
	w.awaitStored(sent.ConversationID, true, "my secret")
	w.click("#offline")
	w.awaitState("offline")
	operate(t, shared, "erase-user", "-yes", alice.user).must(t)
	w.do(chromedp.Reload())
	w.awaitState("online")
	w.await("that it is shown as recalled", `!document.body.textContent.includes("my secret") && document.body.textContent.includes("This message was recalled.")`)
	w.awaitStored(sent.ConversationID, false, "my secret")
}

// awaitStored waits until the browser's database has a conversation's messages with,
// or without, a text in them.
func (w *window) awaitStored(conversationID chat.ConversationID, with bool, text string) {
	w.t.Helper()
	w.await(fmt.Sprintf("%q being stored: %t", text, with), fmt.Sprintf(`import("/client/store.js").then(async ({ IndexedDBStore }) => {
		const store = await IndexedDBStore.open(%q, document.getElementById("device").textContent);
		const saved = await store.load();
		store.close();
		const found = saved.messages.filter(({ conversationId }) => conversationId === %q);
		return found.length > 0 && JSON.stringify(saved).includes(%q) === %t;
	})`, w.user, conversationID, text, with))
}
