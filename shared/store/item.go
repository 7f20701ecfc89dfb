package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"inorder/shared/chat"
)

type item = map[string]types.AttributeValue

// marshal makes an item of a struct. Attributes are named by the json tags, so a
// field has one name in code, frames and tables.
func marshal(v any) (item, error) {
	out, err := attributevalue.MarshalMapWithOptions(v, func(o *attributevalue.EncoderOptions) { o.TagKey = "json" })
	if err != nil {
		return nil, fmt.Errorf("encoding an item: %w", err)
	}
	return out, nil
}

func unmarshal(in item, v any) error {
	err := attributevalue.UnmarshalMapWithOptions(in, v, func(o *attributevalue.DecoderOptions) { o.TagKey = "json" })
	if err != nil {
		return fmt.Errorf("decoding an item: %w", err)
	}
	return nil
}

// messageItem is a message as the table holds it: data as the JSON text it came
// as, so that it is readable in the console and comes back unchanged.
type messageItem struct {
	chat.Message
	Data      string `json:"data,omitempty"`
	Via       string `json:"via,omitempty"`
	ExpiresAt int64  `json:"expiresAt,omitempty"` // seconds, for the table's TTL

	RecalledBy *recalledBy `json:"recalledBy,omitempty"`
	Edits      []int64     `json:"edits,omitempty"`    // the seqs of the events that edited it, ascending
	Original   *content    `json:"original,omitempty"` // of a group message's first edit: what it replaced

	late    bool // a Query did not show it yet; not stored
	earlier bool // its reader was away since; not stored
	size    int  // bytes it takes in a list of a frame; not stored
}

// content is what an edit replaces, as the table holds it.
type content struct {
	Text string `json:"text,omitempty"`
	Data string `json:"data,omitempty"`
}

// show gives the message other content.
func (mi *messageItem) show(c content) {
	mi.Text, mi.Data, mi.Message.Data = c.Text, c.Data, nil
	if c.Data != "" {
		mi.Message.Data = json.RawMessage(c.Data)
	}
}

// recalledBy is the event that recalled a message.
type recalledBy struct {
	Seq        int64  `json:"seq"`
	MessageID  string `json:"messageId"`
	ServerTime int64  `json:"serverTime"`
}

func marshalMessage(m chat.Message, original *content, expiresAt int64) (item, error) {
	return marshal(messageItem{Message: m, Data: string(m.Data), Via: m.Via, Original: original, ExpiresAt: expiresAt})
}

// erases reports whether the message is the event of an erasure.
func (mi messageItem) erases() bool { return erases(mi.Message) }

func erases(m chat.Message) bool { return m.Event != nil && m.Event.Kind == chat.EventErase }

// expiry is when a message expires, in seconds; 0 is never. The event of an erasure
// stays for devices that hold what expired long ago.
func (s *Store) expiry(m chat.Message) int64 {
	if s.retention == 0 || erases(m) {
		return 0
	}
	return time.UnixMilli(m.ServerTime).Add(s.retention).Unix()
}

// recordGrace is for how much longer than its message an idempotency record
// lives. A device that was away, and resends what it never got an answer to, must
// find the first result even where the message is gone by then.
const recordGrace = 30 * day

// recordExpiry is when the idempotency record of a message expires, in seconds; 0
// is never.
func (s *Store) recordExpiry(m chat.Message) int64 {
	if s.retention == 0 || erases(m) {
		return 0
	}
	return time.UnixMilli(m.ServerTime).Add(s.retention + recordGrace).Unix()
}

func unmarshalMessage(in item) (messageItem, error) {
	var mi messageItem
	if err := unmarshal(in, &mi); err != nil {
		return messageItem{}, err
	}
	if mi.Data != "" {
		mi.Message.Data = json.RawMessage(mi.Data)
	}
	mi.Message.Via = mi.Via
	return mi, nil
}

// idempotencyRecord says what a sender's clientMsgId became.
type idempotencyRecord struct {
	DedupeKey      string `json:"dedupeKey"`
	ConversationID string `json:"conversationId"`
	Seq            int64  `json:"seq"`
	MessageID      string `json:"messageId"`
	Fingerprint    string `json:"fingerprint"`
	ServerTime     int64  `json:"serverTime"`
	ExpiresAt      int64  `json:"expiresAt,omitempty"` // seconds; never before the message's
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
func unum(n uint64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(n, 10)}
}
func set(s ...string) types.AttributeValue { return &types.AttributeValueMemberSS{Value: s} }

func headKey(conversationID string) item { return item{"conversationId": str(conversationID)} }

func messageKey(conversationID string, seq int64) item {
	return item{"conversationId": str(conversationID), "seq": num(seq)}
}

func memberKey(conversationID, userID string) item {
	return item{"conversationId": str(conversationID), "userId": str(userID)}
}

func inboxKey(userID, conversationID string) item {
	return item{"userId": str(userID), "conversationId": str(conversationID)}
}
