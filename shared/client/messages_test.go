package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

func TestMessages(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		want := post(s, group, 250)
		ctx, cancel := context.WithCancelCause(t.Context())
		type end struct {
			texts []string
			err   error
		}
		ends := make(chan end)
		for _, after := range []int64{0, 100, 1000} {
			go func() {
				var e end
				for m, err := range alice.Messages(ctx, group, after) {
					if e.err = err; err == nil {
						e.texts = append(e.texts, m.Text)
					}
				}
				ends <- e
			}()
		}
		synctest.Wait()
		want = append(want, "new")
		s.Post("bob", wire.Send{ConversationID: group, Text: "new"})
		time.Sleep(time.Second)
		why := fmt.Errorf("that is enough")
		cancel(why)
		lengths := map[int]bool{}
		for range 3 {
			e := <-ends
			require.ErrorIs(t, e.err, why)
			require.Equal(t, want[len(want)-len(e.texts):], append([]string{}, e.texts...))
			lengths[len(e.texts)] = true
		}
		require.Equal(t, map[int]bool{251: true, 151: true, 0: true}, lengths)

		for _, err := range alice.Messages(t.Context(), "no id", 0) {
			require.Equal(t, chat.CodeBadRequest, chat.CodeOf(err))
		}
		_, ok := alice.Conversation("group:other")
		require.False(t, ok)
	})
}

func TestLatest(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		want := post(s, group, 250)
		s.Punch(group, 246, 247, 248, 249)
		alice := online(t, config(s, "alice", "phone"))
		want = append(want[:245], want[249])
		for _, n := range []int{-1, 0, 1, 3, 150, 246, 1000} {
			latest, err := alice.Latest(t.Context(), group, n)
			require.NoError(t, err)
			require.Equal(t, want[max(0, len(want)-max(0, n)):], append([]string{}, texts(latest)...))
		}
		none, err := alice.Latest(t.Context(), "group:none", 3)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

// What a program has in hand is enough to change it, and one import to write it.
func TestAMessageIsEditedAndRecalled(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Minute)
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		_, err := alice.Send(ctx, client.Draft{ConversationID: group, Type: client.TypeImage, Text: "a cat", Data: []byte(`{"url":"x"}`)})
		require.NoError(t, err)
		m := take(t, alice, group, 1)[0]
		edited, err := alice.Edit(ctx, m, "the cat")
		require.NoError(t, err)
		require.Equal(t, int64(2), edited.Version)
		_, err = alice.Edit(ctx, m, "again")
		require.Equal(t, client.CodeVersionConflict, client.CodeOf(err))
		both := take(t, alice, group, 2)
		require.Equal(t, []string{"the cat", "the cat"}, texts(both))
		require.JSONEq(t, `{"url":"x"}`, string(both[0].Data))
		require.Equal(t, []bool{false, true}, []bool{client.IsEvent(both[0]), client.IsEvent(both[1])})
		_, err = alice.Recall(ctx, m)
		require.NoError(t, err)
		require.Equal(t, client.StatusRecalled, take(t, alice, group, 3)[0].Status)
	})
}

func TestMessagesOfWhatDoesNotExistYet(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		bob := online(t, config(s, "bob", "phone"))
		alice := online(t, config(s, "alice", "phone"))
		id := chat.SingleID("alice", "bob")
		go func() { // on its way while bob waits
			time.Sleep(time.Minute)
			_, err := alice.Send(t.Context(), client.Draft{To: "bob", Text: "hi"})
			require.NoError(t, err)
		}()
		require.Empty(t, bob.Conversations())
		require.Equal(t, []string{"hi"}, texts(take(t, bob, id, 1)))
		synctest.Wait()
		line, ok := bob.Conversation(id)
		require.True(t, ok)
		require.Equal(t, "alice", line.Peer)
		require.Equal(t, chat.KindSingle, line.Kind)
		require.Equal(t, "hi", line.LastMessage.Text)
	})
}

func TestADeviceShowsWhatItHasWithoutAConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		want := post(s, group, 3)
		cfg := config(s, "alice", "phone")
		cfg.Store = client.NewMemory()
		online(t, cfg).Close()
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
		alice := dial(t, cfg)
		require.Equal(t, want, texts(take(t, alice, group, 3)))
		require.Len(t, alice.Conversations(), 1)
		require.Equal(t, int64(3), alice.Conversations()[0].Unread)
	})
}

func TestChanges(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "bob", "alice")
		alice := online(t, config(s, "alice", "phone"))
		changes := alice.Changes(within(t, time.Minute))
		for i := range 3 {
			s.Post("bob", wire.Send{ConversationID: group, Text: fmt.Sprint(i)})
		}
		s.Say("alice", "phone", `{"type":"receipt","conversationId":"group:g","userId":"bob","readSeq":1}`)
		s.Say("alice", "phone", `{"type":"receipt","conversationId":"group:g","userId":"bob","readSeq":2}`)
		bob := online(t, config(s, "bob", "phone"))
		_, err := bob.SetTitle(t.Context(), wire.SetTitle{ConversationID: group, Title: "new"})
		require.NoError(t, err)
		synctest.Wait()
		var got []client.Change
		for change := range changes {
			got = append(got, change)
		}
		require.Equal(t, []client.Change{
			client.MessagesChanged{ConversationID: group, FromSeq: 1, ThroughSeq: 4}, // a slow reader gets one for all
			client.ReceiptChanged{ConversationID: group, UserID: "bob", Positions: client.Positions{DeliveredSeq: 2, ReadSeq: 2}},
			client.RosterChanged{ConversationID: group},
		}, got)
	})
}

func TestAReaderOfChangesThatIsTooSlowIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		alice := online(t, config(s, "alice", "phone"))
		s.Interfere(first(1000, wire.ActionChanges, clienttest.Busy)) // which would not list them
		changes := alice.Changes(within(t, time.Minute))
		const many = 5000
		for i := 0; i < many; {
			var updates []string
			for range 100 {
				updates = append(updates, fmt.Sprintf(`{"conversationId":"group:%d","committedMaxSeq":1,"messages":[
					{"conversationId":"group:%d","seq":1,"messageId":"m","senderId":"bob","messageType":"text","text":"x","version":1,"status":"normal"}]}`, i, i))
				i++
			}
			s.Say("alice", "phone", `{"type":"push","updates":[`+strings.Join(updates, ",")+`]}`)
		}
		synctest.Wait()
		var got []client.Change
		for change := range changes {
			got = append(got, change)
		}
		require.Equal(t, client.Missed{}, got[0])
		require.Len(t, got, 4097)
		require.Equal(t, client.MessagesChanged{ConversationID: chat.ConversationID(fmt.Sprintf("group:%d", many-1)), FromSeq: 1, ThroughSeq: 1}, got[len(got)-1])
	})
}
