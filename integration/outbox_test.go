package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/wire"
)

// A program that ends in the middle of what its user does, again and again, does each
// thing once and in the user's order.
func TestOutbox_WritesOutliveARestartOfTheProgram(t *testing.T) {
	t.Parallel()
	const runs = 20
	alice, bob := newUser("alice"), newUser("bob")
	path := filepath.Join(t.TempDir(), "laptop")
	device := keep(t, shared, alice, path)
	made, err := device.CreateGroup(t.Context(), client.CreateGroup{Title: "all", Members: []string{bob}})
	require.NoError(t, err)
	group := made.ConversationID
	first, err := device.Send(t.Context(), client.Draft{ConversationID: group, Text: "0"})
	require.NoError(t, err)
	require.NoError(t, device.stop())

	want, groups, version := []string{}, 0, int64(1)
	for run := range runs {
		device := keep(t, shared, alice, path)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(12))*time.Millisecond)
		key := fmt.Sprint("key ", run)
		switch run % 4 {
		case 0:
			_, err = device.Send(ctx, client.Draft{ConversationID: group, Text: key, ClientMsgID: key})
		case 1:
			_, err = device.SetTitle(ctx, client.SetTitle{ConversationID: group, Title: key, ClientMsgID: key})
		case 2:
			_, err = device.RequestEdit(ctx, wire.Edit{
				ConversationID: group, Seq: first.Seq, MessageID: first.MessageID, Version: version, Text: key, ClientMsgID: key,
			})
		case 3:
			_, err = device.CreateGroup(ctx, client.CreateGroup{Title: key, ClientMsgID: key})
		}
		cancel()
		_, pending := errors.AsType[*client.PendingError](err)
		switch {
		case err != nil && !pending:
			require.ErrorIs(t, err, context.DeadlineExceeded) // before it was in the outbox
		case run%4 == 3:
			groups++
		default:
			want = append(want, key)
			version += int64(run % 4 / 2) // by the edits
		}
		require.NoError(t, device.stop())
	}
	device = keep(t, shared, alice, path)
	require.Eventually(t, func() bool { return len(device.Outbox()) == 0 }, patience, 10*time.Millisecond)
	require.Empty(t, device.Refused())
	require.NoError(t, device.Refresh(t.Context()))
	messages, err := device.Stored(t.Context(), group, first.Seq, 1_000)
	require.NoError(t, err)
	var keys []string
	for _, m := range messages {
		keys = append(keys, m.ClientMsgID)
	}
	require.Equal(t, want, keys)
	require.Len(t, device.Conversations(), 1+groups)
}

func TestChangesNamesTheUser(t *testing.T) {
	t.Parallel()
	for _, user := range []string{newUser("alice"), newUser("名前 <&>")} {
		d := mustConnect(t, shared, user, "phone")
		none := int64(0)
		for range 2 { // the whole list, and what changed
			changed := must[wire.Changed](t, d, wire.ActionChanges, wire.Changes{SyncCursor: &none})
			require.Equal(t, user, changed.UserID)
			must[wire.Sent](t, d, wire.ActionSend, wire.Send{To: user, ClientMsgID: "note", MessageType: "text", Text: "to self"})
			none = changed.SyncCursor
		}
	}
}
