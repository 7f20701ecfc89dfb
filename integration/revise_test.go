package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

func recallOf(m wire.Sent) wire.Recall {
	return wire.Recall{ConversationID: m.ConversationID, Seq: m.Seq, MessageID: m.MessageID, ClientMsgID: newID()}
}

func editOf(m wire.Sent, version int64, text string) wire.Edit {
	return wire.Edit{ConversationID: m.ConversationID, Seq: m.Seq, MessageID: m.MessageID, Version: version, Text: text, ClientMsgID: newID()}
}

// messageAt reads one message, as history has it.
func messageAt(tb testing.TB, d *device, conversationID chat.ConversationID, seq int64) chat.Message {
	tb.Helper()
	before, one := seq+1, 1
	page := must[wire.HistoryPage](tb, d, wire.ActionHistory, wire.History{ConversationID: conversationID, BeforeSeq: &before, Limit: &one})
	require.Len(tb, page.Messages, 1)
	require.Equal(tb, seq, page.Messages[0].Seq)
	return page.Messages[0]
}

// replica is how a client shows messages, from whatever it is told in whatever
// order: the highest version counts, and an event that comes before its message
// leaves a tombstone.
type replica map[string]shown

type shown struct {
	version  int64
	recalled bool
	text     string
}

func (r replica) take(m chat.Message) {
	e := m.Event
	switch {
	case e == nil:
		r.raise(m.MessageID, shown{version: m.Version, recalled: m.Status == chat.StatusRecalled, text: m.Text})
	case e.Kind == chat.EventEdit:
		r.raise(e.TargetMessageID, shown{version: e.Version, text: m.Text})
	case e.Kind == chat.EventRecall:
		r.raise(e.TargetMessageID, shown{version: e.Version, recalled: true})
	}
}

func (r replica) raise(messageID string, s shown) {
	if s.version > r[messageID].version {
		r[messageID] = s
	}
}

func TestEditAndRecall(t *testing.T) {
	t.Parallel()
	alice, bob := newUser("alice"), newUser("bob")
	phone, laptop, b := listen(t, shared, alice, "phone"), listen(t, shared, alice, "laptop"), listen(t, shared, bob, "phone")
	sent := mustSend(t, phone.device, wire.Send{To: bob, Text: "helo", MessageType: chat.TypeText, Data: json.RawMessage(`{"a":1}`)})
	id := sent.ConversationID

	request := editOf(sent, 1, "hello")
	edited := must[wire.Edited](t, phone.device, wire.ActionEdit, request)
	require.Equal(t, wire.Edited{Sent: wire.Sent{ConversationID: id, Seq: 2, MessageID: edited.MessageID, ServerTime: edited.ServerTime}, Version: 2}, edited)
	again := must[wire.Edited](t, laptop.device, wire.ActionEdit, request)
	require.True(t, again.Duplicate, "a retry, from another device too")
	again.Duplicate = false
	require.Equal(t, edited, again)
	for _, l := range []*listener{phone, laptop, b} {
		m := entryAt(t, l, id, 2)
		require.Equal(t, &chat.Event{Kind: chat.EventEdit, TargetSeq: 1, TargetMessageID: sent.MessageID, Version: 2}, m.Event)
		require.Equal(t, "hello", m.Text, "the event carries the new content")
	}
	m := messageAt(t, b.device, id, 1)
	require.Equal(t, [2]any{"hello", int64(2)}, [2]any{m.Text, m.Version})
	require.Equal(t, chat.StatusNormal, m.Status)
	require.Empty(t, m.Data, "an edit replaces all of the content")

	e := requireRefused(t, laptop.device, wire.ActionEdit, editOf(sent, 1, "hullo"), chat.CodeVersionConflict, "version")
	require.Equal(t, 2.0, e.Details["version"])
	requireRefused(t, phone.device, wire.ActionEdit, editOf(sent, 7, "hullo"), chat.CodeVersionConflict, "version")
	requireRefused(t, b.device, wire.ActionEdit, editOf(sent, 2, "mine"), chat.CodeForbidden, "")
	requireRefused(t, b.device, wire.ActionRecall, recallOf(sent), chat.CodeForbidden, "")
	requireRefused(t, phone.device, wire.ActionEdit, editOf(sent, 2, ""), chat.CodeBadRequest, "text")
	requireRefused(t, phone.device, wire.ActionEdit, editOf(edited.Sent, 1, "an event"), chat.CodeForbidden, "")
	requireRefused(t, phone.device, wire.ActionRecall, recallOf(edited.Sent), chat.CodeForbidden, "")
	other := sent
	other.MessageID = edited.MessageID
	requireRefused(t, phone.device, wire.ActionRecall, recallOf(other), chat.CodeNotFound, "messageId")
	other = sent
	other.Seq = 99
	requireRefused(t, phone.device, wire.ActionEdit, editOf(other, 2, "x"), chat.CodeNotFound, "messageId")

	recall := recallOf(sent)
	recalled := must[wire.Sent](t, phone.device, wire.ActionRecall, recall)
	require.Equal(t, int64(3), recalled.Seq)
	for name, r := range map[string]wire.Recall{"the same request": recall, "another request": recallOf(sent)} {
		again := must[wire.Sent](t, laptop.device, wire.ActionRecall, r)
		require.True(t, again.Duplicate, name)
		again.Duplicate = false
		require.Equal(t, recalled, again, "%s is answered by the first recall", name)
	}
	requireRefused(t, phone.device, wire.ActionEdit, editOf(sent, 2, "too late"), chat.CodeVersionConflict, "version")
	requireRefused(t, phone.device, wire.ActionEdit, editOf(sent, 3, "too late"), chat.CodeVersionConflict, "version")
	m = entryAt(t, b, id, 3)
	require.Equal(t, &chat.Event{Kind: chat.EventRecall, TargetSeq: 1, TargetMessageID: sent.MessageID, Version: 3}, m.Event)
	page := must[wire.HistoryPage](t, b.device, wire.ActionHistory, wire.History{ConversationID: id})
	require.Equal(t, []int64{1, 2, 3}, seqsOf(page.Messages))
	require.Equal(t, chat.StatusRecalled, page.Messages[0].Status)
	for _, m := range page.Messages {
		require.Empty(t, m.Text, "what is recalled is gone, from the edits too: seq %d", m.Seq)
		require.Empty(t, m.Data)
	}
	line, ok := lineOf(t, b.device, id)
	require.True(t, ok)
	require.Empty(t, line.LastMessage.Text)
}

// Who may recall in a group. All of it is in the table of package chat; this is
// that the stack asks it.
func TestRecallInAGroup(t *testing.T) {
	t.Parallel()
	owner, admin, plain := newUser("owner"), newUser("admin"), newUser("plain")
	all := listenAll(t, shared, owner, admin, plain)
	id := createGroup(t, all[0].device, "", admin, plain)
	must[wire.Sent](t, all[0].device, wire.ActionSetRole, wire.SetRole{ConversationID: id, UserID: admin, Role: chat.RoleAdmin, ClientMsgID: newID()})
	by := map[string]wire.Sent{}
	for _, l := range all {
		by[l.user] = say(t, l.device, id, "I am "+l.user)
	}
	requireRefused(t, all[1].device, wire.ActionRecall, recallOf(by[owner]), chat.CodeForbidden, "")
	requireRefused(t, all[2].device, wire.ActionRecall, recallOf(by[admin]), chat.CodeForbidden, "")
	must[wire.Sent](t, all[1].device, wire.ActionRecall, recallOf(by[plain]))
	must[wire.Sent](t, all[0].device, wire.ActionRecall, recallOf(by[admin]))
	for user, want := range map[string]chat.Status{owner: chat.StatusNormal, admin: chat.StatusRecalled, plain: chat.StatusRecalled} {
		require.Equal(t, want, messageAt(t, all[2].device, id, by[user].Seq).Status, user)
	}
}

func TestG8_NoEditIsOverriddenByAnOlderOne(t *testing.T) {
	t.Parallel()
	t.Run("beside a recall", editsRaceARecall)
	t.Run("in turn", editsInTurn)
}

// An edit and a recall of one message race from two devices. Whichever is first,
// the message ends recalled, and everybody sees the same: those who read it and
// those who were told, in whatever order.
func editsRaceARecall(t *testing.T) {
	t.Parallel()
	const rounds, edits = 20, 3
	alice, bob := newUser("alice"), newUser("bob")
	b := listen(t, shared, bob, "phone")
	var devices []*device
	for i := range edits + 1 {
		devices = append(devices, mustConnect(t, shared, alice, fmt.Sprint(i)))
	}
	var id chat.ConversationID
	last := int64(0)
	won := map[string]int{}
	for round := range rounds {
		sent := mustSend(t, devices[0], wire.Send{To: bob, Text: text(0, round)})
		id = sent.ConversationID
		require.Equal(t, last+1, sent.Seq)
		events := make([]int64, edits+1)
		require.NoError(t, concurrently(t.Context(), edits+1, func(ctx context.Context, i int) error {
			if i == edits {
				recalled, err := try[wire.Sent](ctx, devices[i], wire.ActionRecall, recallOf(sent))
				events[i] = recalled.Seq
				return err
			}
			edited, err := try[wire.Edited](ctx, devices[i], wire.ActionEdit, editOf(sent, 1, fmt.Sprint("edit ", i)))
			if codeOf(err) == chat.CodeVersionConflict {
				return nil
			}
			events[i] = edited.Seq
			return err
		}))
		last = events[edits]
		edited := int64(0)
		for _, seq := range events[:edits] {
			require.True(t, seq == 0 || edited == 0, "two edits of one version")
			edited = max(edited, seq)
		}
		switch edited {
		case 0:
			won["recall"]++
			require.Equal(t, sent.Seq+1, last)
		default:
			won["edit"]++
			require.Equal(t, [2]int64{sent.Seq + 1, sent.Seq + 2}, [2]int64{edited, last}, "an edit comes before the recall or not at all")
		}
	}
	t.Log("first was", won)

	var history []chat.Message
	for before := (*int64)(nil); ; {
		page := must[wire.HistoryPage](t, b.device, wire.ActionHistory, wire.History{ConversationID: id, BeforeSeq: before})
		history = append(page.Messages, history...)
		if before = &page.NextBeforeSeq; !page.HasMore {
			break
		}
	}
	requireDense(t, history, int(last))
	final := replica{}
	for _, m := range history {
		if m.Event == nil {
			require.Equal(t, chat.StatusRecalled, m.Status)
		}
		require.Empty(t, m.Text)
		final.take(m)
	}

	require.NoError(t, b.await(t.Context(), "all pushes", func() bool {
		seen := map[int64]bool{}
		for _, m := range b.pushed[id] {
			seen[m.Seq] = true
		}
		return len(seen) == int(last)
	}))
	pushed := b.entries(id)
	for range 20 {
		rand.Shuffle(len(pushed), func(i, j int) { pushed[i], pushed[j] = pushed[j], pushed[i] })
		told := replica{}
		for _, m := range pushed {
			told.take(m)
		}
		require.Equal(t, final, told)
	}
}

// Many devices edit in turn; no edit is lost, and the last one stays.
func editsInTurn(t *testing.T) {
	t.Parallel()
	const devices, each = 4, 5
	alice := newUser("alice")
	var all []*device
	for i := range devices {
		all = append(all, mustConnect(t, shared, alice, fmt.Sprint(i)))
	}
	sent := mustSend(t, all[0], wire.Send{To: alice, Text: "0"})
	require.NoError(t, concurrently(t.Context(), devices, func(ctx context.Context, i int) error {
		version := int64(1)
		for range each {
			for {
				edited, err := try[wire.Edited](ctx, all[i], wire.ActionEdit, editOf(sent, version, fmt.Sprint(version)))
				if refused, ok := errors.AsType[*refusal](err); ok && refused.Frame.Code == chat.CodeVersionConflict {
					current, _ := refused.Frame.Details["version"].(float64)
					version = int64(current)
					continue
				}
				if err == nil && edited.Version != version+1 {
					err = fmt.Errorf("version %d after %d", edited.Version, version)
				}
				if err != nil {
					return err
				}
				version = edited.Version
				break
			}
		}
		return nil
	}))
	m := messageAt(t, all[0], sent.ConversationID, 1)
	require.Equal(t, [2]any{int64(1 + devices*each), fmt.Sprint(devices * each)}, [2]any{m.Version, m.Text})
	page := must[wire.HistoryPage](t, all[0], wire.ActionHistory, wire.History{ConversationID: sent.ConversationID})
	requireDense(t, page.Messages, 1+devices*each)
	for i, m := range page.Messages[1:] {
		require.Equal(t, [2]any{int64(i + 2), fmt.Sprint(i + 1)}, [2]any{m.Event.Version, m.Text}, "the edits are one after the other")
	}
}

// A reply names a message that its sender can see.
func TestReplies(t *testing.T) {
	t.Parallel()
	alice, bob := newUser("alice"), newUser("bob")
	a, b := mustConnect(t, shared, alice, "phone"), mustConnect(t, shared, bob, "phone")
	id := createGroup(t, a, chat.VisibleSinceJoin)
	hidden := say(t, a, id, "before bob")
	addMembers(t, a, id, bob)
	question := say(t, a, id, "tea?")
	elsewhere := mustSend(t, a, wire.Send{To: bob, Text: "tea!"})

	reply := func(seq int64, messageID string) wire.Send {
		return wire.Send{
			ConversationID: id, ClientMsgID: newID(), MessageType: chat.TypeText, Text: "yes",
			ReplyTo: &chat.ReplyTo{Seq: seq, MessageID: messageID},
		}
	}
	sent := mustSend(t, b, reply(question.Seq, question.MessageID))
	require.Equal(t, &chat.ReplyTo{Seq: question.Seq, MessageID: question.MessageID}, messageAt(t, a, id, sent.Seq).ReplyTo)
	for name, r := range map[string]wire.Send{
		"what bob cannot see":         reply(hidden.Seq, hidden.MessageID),
		"another message's id":        reply(question.Seq, hidden.MessageID),
		"another message's seq":       reply(sent.Seq, question.MessageID),
		"what is not there yet":       reply(sent.Seq+1, question.MessageID),
		"one of another conversation": reply(elsewhere.Seq, elsewhere.MessageID),
	} {
		e := requireRefused(t, b, wire.ActionSend, r, chat.CodeNotFound, "replyTo")
		require.NotEmpty(t, e.Message, name)
	}
	must[wire.Sent](t, a, wire.ActionRecall, recallOf(question))
	_, err := b.send(t.Context(), reply(question.Seq, question.MessageID))
	require.NoError(t, err, "what was recalled is there all the same")
}

// The windows are parameters of the stack.
func TestRecallAndEditWindows(t *testing.T) {
	t.Parallel()
	c := startCloud(t, "-param", "RecallWindowSeconds=0", "-param", "EditWindowSeconds=-1")
	alice, bob := newUser("alice"), newUser("bob")
	a, b := mustConnect(t, c.Stack, alice, "phone"), mustConnect(t, c.Stack, bob, "phone")
	id := createGroup(t, a, "", bob)
	sent := say(t, b, id, "mine")
	requireRefused(t, b, wire.ActionRecall, recallOf(sent), chat.CodeTooLate, "")
	require.Equal(t, int64(2), must[wire.Edited](t, b, wire.ActionEdit, editOf(sent, 1, "mine too")).Version)
	must[wire.Sent](t, a, wire.ActionRecall, recallOf(sent)) // an owner's right has no window
}
