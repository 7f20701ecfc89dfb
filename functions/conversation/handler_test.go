package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/route/routetest"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// fakeGroups keeps what it was asked and answers with the line, what it became or
// the error it has.
type fakeGroups struct {
	line      store.Line
	committed store.Committed
	err       error
	asked     string
}

func (f *fakeGroups) keep(r store.Request, format string, args ...any) (store.Committed, error) {
	f.asked = r.UserID + "/" + r.DeviceID + " " + r.ClientMsgID + ": " + fmt.Sprintf(format, args...)
	return f.committed, f.err
}

func (f *fakeGroups) CreateGroup(_ context.Context, r store.Request, title string, userIDs []string, v chat.Visibility) (store.Line, store.Committed, error) {
	committed, err := f.keep(r, "create %q %q %s", title, userIDs, v)
	return f.line, committed, err
}

func (f *fakeGroups) AddMembers(_ context.Context, r store.Request, id chat.ConversationID, userIDs []string) (store.Committed, error) {
	return f.keep(r, "add %s %q", id, userIDs)
}

func (f *fakeGroups) RemoveMembers(_ context.Context, r store.Request, id chat.ConversationID, userIDs []string) (store.Committed, error) {
	return f.keep(r, "remove %s %q", id, userIDs)
}

func (f *fakeGroups) Leave(_ context.Context, r store.Request, id chat.ConversationID) (store.Committed, error) {
	return f.keep(r, "leave %s", id)
}

func (f *fakeGroups) SetRole(_ context.Context, r store.Request, id chat.ConversationID, userID string, role chat.Role) (store.Committed, error) {
	return f.keep(r, "role %s %s %s", id, userID, role)
}

func (f *fakeGroups) SetTitle(_ context.Context, r store.Request, id chat.ConversationID, title string) (store.Committed, error) {
	return f.keep(r, "title %s %q", id, title)
}

func (f *fakeGroups) Dissolve(_ context.Context, r store.Request, id chat.ConversationID) (store.Committed, error) {
	return f.keep(r, "dissolve %s", id)
}

func serve(t *testing.T, f *fakeGroups, body string) string {
	t.Helper()
	return routetest.Answer(t, slog.DiscardHandler, handler{groups: f}.actions(), routetest.Frame(t, "conversation", body))
}

func TestCreateGroupAnswersTheConversation(t *testing.T) {
	t.Parallel()
	f := &fakeGroups{
		line: store.Line{
			View: chat.View{
				Head: chat.Conversation{
					ConversationID: "group:1", Kind: chat.KindGroup, LastSeq: 1, MembersVersion: 1, MemberCount: 3, State: chat.StateActive,
					Title: "Sunday hike 🥾", Owner: "alice", Visibility: chat.VisibleSinceJoin, CreatedAt: 70, UpdatedAt: 70,
				},
				Line: chat.Line{ReadSeq: 1, DeliveredSeq: 1},
			},
			Last: &chat.Message{ConversationID: "group:1", Seq: 1, SenderID: "alice", MessageType: chat.TypeEvent, Status: chat.StatusNormal, ServerTime: 70},
		},
		committed: store.Committed{Sent: chat.Sent{Duplicate: true}},
	}
	require.Equal(t, `{"type":"reply","id":"r-12","action":"createGroup","result":{"conversationId":"group:1","kind":"group","title":"Sunday hike 🥾",`+
		`"state":"active","owner":"alice","visibility":"sinceJoin","memberCount":3,"lastSeq":1,"readSeq":1,"deliveredSeq":1,"clearedSeq":0,"unread":0,"updatedAt":70,`+
		`"lastMessage":{"seq":1,"senderId":"alice","messageType":"event","status":"normal","serverTime":70},"duplicate":true}}`,
		serve(t, f, ""))
	require.Equal(t, `alice/phone phone-81c2: create "Sunday hike 🥾" ["bob" "carol"] sinceJoin`, f.asked)
}

func TestRequests(t *testing.T) {
	t.Parallel()
	const by = "alice/phone c: "
	for name, tc := range map[string]struct{ body, asked string }{
		"createGroup, visible by default":      {`"action":"createGroup","title":"T","members":["bob"],"clientMsgId":"c"`, by + `create "T" ["bob"] all`},
		"createGroup, null for what is absent": {`"action":"createGroup","title":"T","members":["bob"],"clientMsgId":"c","visibility":null`, by + `create "T" ["bob"] all`},
		"createGroup of oneself":               {`"action":"createGroup","title":"T","members":[],"clientMsgId":"c"`, by + `create "T" [] all`},
		"addMembers":                           {`"action":"addMembers","conversationId":"group:1","members":["bob","carol"],"clientMsgId":"c"`, by + `add group:1 ["bob" "carol"]`},
		"removeMembers":                        {`"action":"removeMembers","conversationId":"group:1","members":["bob"],"clientMsgId":"c"`, by + `remove group:1 ["bob"]`},
		"leave":                                {`"action":"leave","conversationId":"group:1","clientMsgId":"c"`, by + `leave group:1`},
		"setRole":                              {`"action":"setRole","conversationId":"group:1","userId":"bob","role":"admin","clientMsgId":"c"`, by + `role group:1 bob admin`},
		"setTitle":                             {`"action":"setTitle","conversationId":"group:1","title":"Über","clientMsgId":"c"`, by + `title group:1 "Über"`},
		"dissolve":                             {`"action":"dissolve","conversationId":"group:1","clientMsgId":"c"`, by + `dissolve group:1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeGroups{committed: store.Committed{Sent: chat.Sent{ConversationID: "group:1", Seq: 5, MessageID: "01K", ServerTime: 9, Duplicate: true}, Effort: metric.Effort{Attempts: 2}}}
			answer := serve(t, f, `{"id":"r",`+tc.body+`}`)
			require.Equal(t, tc.asked, f.asked)
			require.Contains(t, answer, `"type":"reply"`)
			if f.asked[len(by):len(by)+6] != "create" {
				require.Contains(t, answer, `"result":{"conversationId":"group:1","seq":5,"messageId":"01K","serverTime":9,"duplicate":true}`)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ body, field string }{
		"createGroup without members":         {`"action":"createGroup","title":"T","clientMsgId":"c"`, "members"},
		"createGroup of null":                 {`"action":"createGroup","title":"T","members":null,"clientMsgId":"c"`, "members"},
		"createGroup of a user":               {`"action":"createGroup","title":"T","members":"bob","clientMsgId":"c"`, "members"},
		"createGroup of numbers":              {`"action":"createGroup","title":"T","members":[1],"clientMsgId":"c"`, "members"},
		"createGroup, a number for its title": {`"action":"createGroup","title":1,"members":[],"clientMsgId":"c"`, "title"},
		"createGroup, visibility true":        {`"action":"createGroup","title":"T","members":[],"clientMsgId":"c","visibility":true`, "visibility"},
		"addMembers of an object":             {`"action":"addMembers","conversationId":"group:1","members":{"bob":1},"clientMsgId":"c"`, "members"},
		"removeMembers of a number":           {`"action":"removeMembers","conversationId":1,"members":["bob"],"clientMsgId":"c"`, "conversationId"},
		"leave by a number":                   {`"action":"leave","conversationId":"group:1","clientMsgId":1`, "clientMsgId"},
		"setRole of a list":                   {`"action":"setRole","conversationId":"group:1","userId":["bob"],"role":"admin","clientMsgId":"c"`, "userId"},
		"setRole to a number":                 {`"action":"setRole","conversationId":"group:1","userId":"bob","role":1,"clientMsgId":"c"`, "role"},
		"setTitle to a list":                  {`"action":"setTitle","conversationId":"group:1","title":["T"],"clientMsgId":"c"`, "title"},
		"dissolve of an object":               {`"action":"dissolve","conversationId":{},"clientMsgId":"c"`, "conversationId"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeGroups{}
			e := refusalOf(t, serve(t, f, `{"id":"r",`+tc.body+`}`))
			require.Equal(t, chat.CodeBadRequest, e.Code, e.Message)
			require.Equal(t, tc.field, e.Field, e.Message)
			require.Empty(t, f.asked)
		})
	}

	for _, action := range []string{"createGroup", "addMembers", "removeMembers", "leave", "setRole", "setTitle", "dissolve"} {
		t.Run(action+" as the store refuses it", func(t *testing.T) {
			t.Parallel()
			f := &fakeGroups{err: fmt.Errorf("wrapped: %w", &chat.Error{Code: chat.CodeLimit, Field: "members", Message: "too many", Details: map[string]any{"max": 48}})}
			e := refusalOf(t, serve(t, f, `{"id":"r","action":"`+action+`","members":[]}`))
			require.Equal(t, wire.Error{Code: chat.CodeLimit, Field: "members", Message: "too many", Details: map[string]any{"max": 48.0}}, e)
		})
	}
}

func refusalOf(t *testing.T, body string) wire.Error {
	t.Helper()
	var f wire.ErrorReply
	require.NoError(t, json.Unmarshal([]byte(body), &f))
	require.Equal(t, wire.TypeError, f.Type, body)
	return f.Error
}
