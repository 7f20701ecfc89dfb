package store_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

func custom(clientMsgID, data string) chat.Message {
	m := text("ann", clientMsgID, "")
	m.MessageType, m.Data = chat.TypeCustom, json.RawMessage(data)
	return m
}

// Data that no device should have to read gets into no ledger, by whatever way.
func TestG5_DataIsRefusedByEveryWay(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	first := must(t)(s.Append(t.Context(), custom("1", `{"a":2}`), "bob"))
	for name, data := range map[string]string{
		"a key twice": `{"a":1,"a":2}`, "half a character": `{"a":"\ud800"}`, "beyond a double": `{"a":1e999}`,
	} {
		_, err := s.Append(t.Context(), custom("2", data), "bob")
		require.Equal(t, "data", refused(t, chat.CodeBadRequest, err, name).Field)
		_, err = s.Edit(t.Context(), by("ann", "3"), store.Target{ConversationID: first.ConversationID, Seq: 1, MessageID: first.MessageID},
			store.Edited{Version: 1, Data: json.RawMessage(data)}, store.NoWindow)
		require.Equal(t, "data", refused(t, chat.CodeBadRequest, err, name).Field)
		p := publication("4", "ann")
		p.Message.Data = json.RawMessage(data)
		_, err = s.Publish(t.Context(), p)
		require.Equal(t, "data", refused(t, chat.CodeBadRequest, err, name).Field)
	}
	_, n := w.Since(0)
	for name, m := range map[string]chat.Message{
		"no JSON": custom("2", `{"a":`), "no data": custom("2", ""), "no text": text("ann", "2", ""),
	} {
		_, err := s.Append(t.Context(), m, "bob")
		requireCode(t, chat.CodeBadRequest, err, name)
	}
	calls, _ := w.Since(n)
	require.Empty(t, calls, "what was never taken costs nothing")
	require.Equal(t, 1, c.Count(c.Tables.Messages))
	require.Equal(t, 1, c.Count(c.Tables.Idempotency))
}

// Who is there under an id that is refused now is still read, led and removed.
func TestUsersOfOlderRulesStay(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	const odd = "System\u202e"
	_, err := s.Append(t.Context(), text("ann", "1", "hi"), odd)
	require.Equal(t, "to", refused(t, chat.CodeBadRequest, err).Field)
	_, _, err = s.CreateGroup(t.Context(), by("ann", "2"), "Trip", []string{odd}, chat.VisibleAll)
	require.Equal(t, "members", refused(t, chat.CodeBadRequest, err).Field)
	_, err = s.OpenSingle(t.Context(), "ann", odd)
	require.Equal(t, "between", refused(t, chat.CodeBadRequest, err).Field)
	_, err = s.OpenGroup(t.Context(), by(odd, "2"), "Trip", []string{"ann"}, chat.VisibleAll)
	require.Equal(t, "group.owner", refused(t, chat.CodeBadRequest, err).Field)
	p := publication("3", odd)
	_, err = s.Publish(t.Context(), p)
	require.Equal(t, "recipients", refused(t, chat.CodeBadRequest, err).Field)

	id := newGroup(t, s, chat.VisibleAll, odd, "bob")
	requireSees(t, s, odd, id, 1)
	require.Equal(t, int64(2), sendIn(t, s, odd, id, "1").Seq)
	_, err = s.AddMembers(t.Context(), by(odd, "2"), id, []string{"SYSTEM"})
	require.Equal(t, "members", refused(t, chat.CodeBadRequest, err).Field)
	must(t)(s.SetRole(t.Context(), by(odd, "3"), id, "bob", chat.RoleOwner))
	must(t)(s.SetRole(t.Context(), by("bob", "4"), id, odd, chat.RolePlain))
	must(t)(s.RemoveMembers(t.Context(), by("bob", "5"), id, []string{odd}))
}
