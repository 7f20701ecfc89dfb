package store

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
)

func errDissolved() error { return chat.Errorf(chat.CodeDissolved, "the group is dissolved") }

func errNoConversation() error {
	return chat.FieldErrorf(chat.CodeNotFound, "conversationId", "no such conversation, or you are no member of it")
}

// errFull refuses to write where no seq is left that every JSON reader keeps exact.
func errFull() error {
	return &chat.Error{
		Code: chat.CodeLimit, Field: "conversationId", Details: map[string]any{"max": int64(chat.MaxSeq)},
		Message: fmt.Sprintf("this conversation has had %d messages, which is all it can have; go on in another", int64(chat.MaxSeq)),
	}
}

// errClosed refuses what creates a conversation. It is the same for every user
// named, whether there is such a user or not.
func errClosed(field, what string) error {
	return chat.FieldErrorf(chat.CodeForbidden, field, "here only the product opens %s, and it has not opened this one", what)
}

// crowded is busy for who may come again once some of the crowd is served, from half of
// crowdedPause to all of it later.
func crowded(conversationID chat.ConversationID, attempts int, cause error) error {
	wait := crowdedPause/2 + rand.N(crowdedPause/2) //nolint:gosec // jitter is no secret
	return fmt.Errorf("%w (after %d transactions: %w)", chat.FullFor(wait,
		"conversation %s takes no more at this moment; send again in %d ms with the same clientMsgId", conversationID, wait.Milliseconds()), attempts, cause)
}

const crowdedPause = time.Second

func busy(conversationID chat.ConversationID, attempts int, cause error) error {
	return fmt.Errorf("%w (after %d transactions: %w)", chat.Errorf(chat.CodeBusy,
		"conversation %s is busy; send again with the same clientMsgId", conversationID), attempts, cause)
}
