package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// bot is a program that was started anew with what it has stored.
func bot(t *testing.T, s *clienttest.Server, store client.Store) *client.Client {
	t.Helper()
	cfg := config(s, "bot", "server")
	cfg.Store = store
	return online(t, cfg)
}

// given runs Incoming until n messages were given, or nothing comes any more.
func given(t *testing.T, c *client.Client, n int, handle func(*client.Incoming)) []string {
	t.Helper()
	got := []string{}
	for in, err := range c.Incoming(within(t, time.Minute)) {
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			break
		}
		got = append(got, in.Text)
		handle(in)
		if len(got) == n {
			break
		}
	}
	synctest.Wait()
	return got
}

func done(t *testing.T) func(*client.Incoming) {
	return func(in *client.Incoming) { require.NoError(t, in.Done()) }
}

func TestABotIsGivenWhatOthersWriteOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		store := client.NewMemory()
		group := s.MakeGroup("g", "alice", "bot")
		alice := online(t, config(s, "alice", "phone"))
		say := func(words string) client.Message {
			sent, err := alice.Send(ctx, text(group, words))
			require.NoError(t, err)
			return client.Message{ConversationID: group, Seq: sent.Seq, MessageID: sent.MessageID, Version: 1}
		}
		c := bot(t, s, store)
		first := say("one")
		_, err := c.Send(ctx, text(group, "the bot's own"))
		require.NoError(t, err)
		recalled := say("regretted")
		_, err = alice.Recall(ctx, recalled)
		require.NoError(t, err)
		_, err = alice.Send(ctx, client.Draft{To: "bot", Text: "two"})
		require.NoError(t, err)
		synctest.Wait()
		require.ElementsMatch(t, []string{"one", "two"}, given(t, c, 0, done(t)))
		_, err = alice.Edit(ctx, first, "won")
		require.NoError(t, err)
		require.Empty(t, given(t, c, 0, done(t)), "an edit is nothing new")
		_, read, _ := s.Positions("bot", group)
		require.Equal(t, first.Seq, read)
		c.Close()

		say("three")
		say("four")
		c = bot(t, s, store)
		require.Equal(t, []string{"three", "four"}, given(t, c, 0, func(in *client.Incoming) {
			if in.Text == "three" {
				require.NoError(t, in.Done())
			}
		}))
		c.Close()
		require.Equal(t, []string{"four"}, given(t, bot(t, s, store), 1, done(t)), "what it was not done with comes again")
		require.NoError(t, alice.Refresh(ctx))
		require.Equal(t, []string{"four"}, given(t, bot(t, s, client.NewMemory()), 1, done(t)), "without its store it starts above what is read")
	})
}

func TestAReplyIsSentOnceHoweverOftenTheBotStarts(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		store := client.NewMemory()
		group := s.MakeGroup("g", "alice", "bot")
		s.Post("alice", wire.Send{ConversationID: group, Text: "ping"})
		var first client.Sent
		for n, words := range []string{"pong", "pong", "in other words"} {
			c := bot(t, s, store)
			given(t, c, 1, func(in *client.Incoming) { // and it ends before it is done
				sent, err := in.Reply(t.Context(), words)
				require.NoError(t, err)
				require.Equal(t, n > 0, sent.Duplicate)
				if n == 0 {
					first = sent
				}
				require.Equal(t, [2]any{first.Seq, first.MessageID}, [2]any{sent.Seq, sent.MessageID})
			})
			c.Close()
		}
		given(t, bot(t, s, store), 1, func(in *client.Incoming) {
			for range 2 {
				_, err := in.Reply(t.Context(), "pong")
				require.NoError(t, err)
			}
			require.NoError(t, in.Done())
		})
		entries := s.Entries(group)
		require.Equal(t, []string{"ping", "pong", "pong"}, texts(entries), "the second is another reply")
		require.Equal(t, &client.ReplyTo{Seq: 1, MessageID: entries[0].MessageID}, entries[1].ReplyTo)
	})
}

// A reply that was not answered before the bot ended is sent by the next run, as it was.
func TestAReplyInTheOutboxIsTheReply(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		store := client.NewMemory()
		group := s.MakeGroup("g", "alice", "bot")
		s.Post("alice", wire.Send{ConversationID: group, Text: "ping"})
		c := bot(t, s, store)
		s.Interfere(first(1000, wire.ActionSend, clienttest.Busy))
		given(t, c, 1, func(in *client.Incoming) {
			_, err := in.Reply(within(t, time.Second), "pong")
			require.Error(t, err)
		})
		c.Close()
		cfg := config(s, "bot", "server")
		cfg.Store = store
		c = dial(t, cfg)
		time.AfterFunc(10*time.Second, func() { s.Interfere(clienttest.Hooks{}) })
		given(t, c, 1, func(in *client.Incoming) {
			_, err := in.Reply(t.Context(), "in other words")
			require.NoError(t, err)
		})
		require.Equal(t, []string{"ping", "pong"}, texts(s.Entries(group)))
	})
}

func TestG5_ABotMissesNothingOfARestoredServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		store := client.NewMemory()
		group := s.MakeGroup("g", "bot", "bob")
		post(s, group, 10)
		c := bot(t, s, store)
		var late *client.Incoming
		given(t, c, 10, func(in *client.Incoming) {
			require.NoError(t, in.Done())
			late = in
		})
		s.GoBack(group, 6, 60)
		for _, words := range []string{"a", "b", "c", "d"} {
			s.Post("bob", wire.Send{ConversationID: group, Text: words})
		}
		require.NoError(t, c.Refresh(within(t, time.Minute)))
		require.NoError(t, late.Done(), "of a message that the server has lost")
		c.Close()
		require.Equal(t, []string{"a", "b", "c", "d"}, given(t, bot(t, s, store), 4, done(t)))
	})
}
