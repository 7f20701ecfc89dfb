package client

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
)

// A message may come before the server's line of its conversation: who it is with has to
// be known then, and is never somebody else.
func TestThePeerOfAPushedMessageIsKnown(t *testing.T) {
	t.Parallel()
	single := SingleID("alice", "bob")
	for name, test := range map[string]struct {
		conversation        chat.ConversationID
		sender, known, peer string
	}{
		"the other one":               {conversation: single, sender: "alice", peer: "alice"},
		"the product":                 {conversation: single, sender: "system"},
		"the user, on another device": {conversation: single, sender: "bob"},
		"notes to oneself":            {conversation: SingleID("bob", "bob"), sender: "bob", peer: "bob"},
		"what the server said":        {conversation: single, sender: "alice", known: "said", peer: "said"},
		"a group":                     {conversation: "group:1", sender: "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cv := newConversation(test.conversation)
			cv.known.Peer = test.known
			m := chat.Message{ConversationID: test.conversation, Seq: 1, SenderID: test.sender, MessageType: chat.TypeText, Text: "hello"}
			cv.digest("bob", []chat.Message{m}, nil)
			require.Equal(t, test.peer, cv.known.Peer)
		})
	}
}
