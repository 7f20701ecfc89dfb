package client

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// frame is any frame of the server's, with the fields of its type.
type frame struct {
	Type string `json:"type"`

	ID     string          `json:"id"`     // reply, error
	Result json.RawMessage `json:"result"` // reply
	Error  wire.Error      `json:"error"`  // error

	Updates []wire.Update `json:"updates"` // push; notify, without messages

	ConversationID chat.ConversationID `json:"conversationId"` // receipt
	UserID         string              `json:"userId"`
	DeliveredSeq   int64               `json:"deliveredSeq"`
	ReadSeq        int64               `json:"readSeq"`

	Reason string `json:"reason"` // goodbye

	// Message is what API Gateway itself says, in a frame without a type.
	Message string `json:"message"`
}

// decode reads a frame. What it gives without an error is safe to use: the ids
// and seqs in it are possible ones. Frames of a type that this client does not
// know pass.
func decode(data []byte) (frame, error) {
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		return frame{}, violated("a frame that cannot be read: %v: %.100q", err, data)
	}
	switch f.Type {
	case wire.TypePush, wire.TypeNotify:
		return f, f.checkUpdates()
	case wire.TypeReceipt:
		if _, ok := f.ConversationID.Kind(); !ok || chat.ValidateKnownUserID("userId", f.UserID) != nil {
			return f, violated("a receipt of conversation %.100q and user %.100q", f.ConversationID, f.UserID)
		}
		if !possible(f.DeliveredSeq) || !possible(f.ReadSeq) {
			return f, violated("a receipt with deliveredSeq %d and readSeq %d", f.DeliveredSeq, f.ReadSeq)
		}
	case wire.TypeReply:
		if f.ID == "" {
			return f, violated("a reply without an id")
		}
	case "":
		if f.Message == "" {
			return f, violated("a frame without a type: %.100q", data)
		}
	}
	return f, nil
}

func (f frame) checkUpdates() error {
	for _, u := range f.Updates {
		if _, ok := u.ConversationID.Kind(); !ok || !possible(u.CommittedMaxSeq) {
			return violated("a %s of conversation %.100q with committedMaxSeq %d", f.Type, u.ConversationID, u.CommittedMaxSeq)
		}
		for _, m := range u.Messages {
			if err := plausible(u.ConversationID, m); err != nil {
				return err
			}
		}
		tidy(u.Messages)
	}
	return nil
}

func possible(seq int64) bool { return seq >= 0 && seq <= chat.MaxSeq }

// failure is the error that an error frame, or one of API Gateway, stands for. A
// frame without an id is about a request that nobody can tell, so no request is
// given up because of it.
func (f frame) failure() error {
	switch {
	case f.Type == "":
		return again(fmt.Errorf("the platform answered: %s", f.Message))
	case f.Error.Code == "":
		return violated("an error without a code")
	case f.ID == "":
		return again(refusal(f.Error))
	}
	return refusal(f.Error)
}

// encodeRequest puts action and id before a request's own fields.
func encodeRequest(action, id string, request any) ([]byte, error) {
	head := `{"action":` + strconv.Quote(action) + `,"id":` + strconv.Quote(id)
	if request == nil {
		return []byte(head + "}"), nil
	}
	body, err := wire.Encode(request)
	if err != nil {
		return nil, chat.Errorf(chat.CodeBadRequest, "the %s request cannot be encoded: %v", action, err)
	}
	if len(body) <= len("{}") {
		return []byte(head + "}"), nil
	}
	data := append([]byte(head+","), body[1:]...)
	if len(data) > wire.MaxFrameBytes {
		return nil, chat.Errorf(chat.CodeTooLarge, "the %s request takes %d bytes, at most %d are allowed", action, len(data), wire.MaxFrameBytes)
	}
	return data, nil
}
