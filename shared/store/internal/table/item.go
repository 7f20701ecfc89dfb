package table

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
)

// Item is an item of a table, or a key.
type Item = map[string]types.AttributeValue

// Marshal makes an item of a struct. Attributes are named by the json tags, so a
// field has one name in code, frames and tables.
func Marshal(v any) (Item, error) {
	out, err := attributevalue.MarshalMapWithOptions(v, func(o *attributevalue.EncoderOptions) { o.TagKey = "json" })
	if err != nil {
		return nil, fmt.Errorf("encoding an item: %w", err)
	}
	return out, nil
}

// Unmarshal reads an item, or a part of one, into a struct.
func Unmarshal(in Item, v any) error {
	err := attributevalue.UnmarshalMapWithOptions(in, v, func(o *attributevalue.DecoderOptions) { o.TagKey = "json" })
	if err != nil {
		return fmt.Errorf("decoding an item: %w", err)
	}
	return nil
}

// Message is a message as the table holds it: data as the JSON text it came
// as, so that it is readable in the console and comes back unchanged.
type Message struct {
	chat.Message
	Data      string `json:"data,omitempty"`
	Via       string `json:"via,omitempty"`
	ExpiresAt int64  `json:"expiresAt,omitempty"` // seconds, for the table's TTL

	RecalledBy *RecalledBy `json:"recalledBy,omitempty"`
	Edits      []int64     `json:"edits,omitempty"`    // the seqs of the events that edited it, ascending
	Original   *Content    `json:"original,omitempty"` // of a group message's first edit: what it replaced

	// What readers note of it; not stored.
	Late    bool `json:"-"` // a Query did not show it yet
	Earlier bool `json:"-"` // its reader was away since
	Bytes   int  `json:"-"` // bytes it takes in a list of a frame
}

// Content is what an edit replaces, as the table holds it.
type Content struct {
	Text string `json:"text,omitempty"`
	Data string `json:"data,omitempty"`
}

// RecalledBy is the event that recalled a message.
type RecalledBy struct {
	Seq        int64  `json:"seq"`
	MessageID  string `json:"messageId"`
	ServerTime int64  `json:"serverTime"`
}

// MarshalMessage makes the item of a message. expiresAt is in seconds, 0 for never.
func MarshalMessage(m chat.Message, original *Content, expiresAt int64) (Item, error) {
	return Marshal(Message{Message: m, Data: string(m.Data), Via: m.Via, Original: original, ExpiresAt: expiresAt})
}

// UnmarshalMessage reads the item of a message.
func UnmarshalMessage(in Item) (Message, error) {
	var mi Message
	if err := Unmarshal(in, &mi); err != nil {
		return Message{}, err
	}
	if mi.Data != "" {
		mi.Message.Data = json.RawMessage(mi.Data)
	}
	mi.Message.Via = mi.Via
	return mi, nil
}

// Record says what a sender's clientMsgId became.
type Record struct {
	DedupeKey      string              `json:"dedupeKey"`
	ConversationID chat.ConversationID `json:"conversationId"`
	Seq            int64               `json:"seq"`
	MessageID      string              `json:"messageId"`
	Fingerprint    string              `json:"fingerprint"`
	ServerTime     int64               `json:"serverTime"`
	ExpiresAt      int64               `json:"expiresAt,omitempty"` // seconds; never before the message's
}

// Str is the value of a string.
func Str[S ~string](s S) types.AttributeValue {
	return &types.AttributeValueMemberS{Value: string(s)}
}

// Num is the value of a whole number.
func Num(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// Unum is the value of a whole number that has no sign.
func Unum(n uint64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(n, 10)}
}

// Set is the value of a set of strings.
func Set(s ...string) types.AttributeValue { return &types.AttributeValueMemberSS{Value: s} }

// HeadKey is the key of a head in the Conversations table.
func HeadKey(conversationID chat.ConversationID) Item {
	return Item{"conversationId": Str(conversationID)}
}

// MessageKey is the key of an entry in the Messages table.
func MessageKey(conversationID chat.ConversationID, seq int64) Item {
	return Item{"conversationId": Str(conversationID), "seq": Num(seq)}
}

// MemberKey is the key of a roster item in the Members table.
func MemberKey(conversationID chat.ConversationID, userID string) Item {
	return Item{"conversationId": Str(conversationID), "userId": Str(userID)}
}

// LineKey is the key of a line in the Inboxes table.
func LineKey(userID string, conversationID chat.ConversationID) Item {
	return Item{"userId": Str(userID), "conversationId": Str(conversationID)}
}
