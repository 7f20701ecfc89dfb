package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on identifiers.
const (
	MaxUserIDBytes         = 128
	MaxDeviceIDBytes       = 64
	MaxClientMsgIDBytes    = 64
	MaxConversationIDBytes = 128
)

// SystemSender is the sender of what the publish function writes. No user may
// have this id, or one that looks like it.
const SystemSender = "system"

// ConversationID names a conversation. User ids are plain strings: to mix the two
// up takes two values of one type.
type ConversationID string

// Kind is how a conversation came to be and who may write in it. It is the
// part of a conversation id before the colon.
type Kind string

// The kinds of conversations.
const (
	KindSingle Kind = "single" // two users, or one user's notes
	KindGroup  Kind = "group"  // a roster that changes
	KindSystem Kind = "system" // written by the publish function alone
)

// SingleID is the id of the conversation between two users, who may be one and
// the same. Both sides compute the same id, so nobody has to look it up first.
//
// It is "single:" and the hex of the first 16 bytes of SHA-256 over the two
// user ids, sorted and each with its length before it; the length keeps
// ("ab","c") and ("a","bc") apart.
func SingleID(a, b string) ConversationID {
	if b < a {
		a, b = b, a
	}
	sum := sha256.Sum256([]byte(LengthPrefixed(a, b)))
	return ConversationID(string(KindSingle) + ":" + hex.EncodeToString(sum[:16]))
}

// SystemID is the id of the system conversation about key.
func SystemID(key string) ConversationID {
	return ConversationID(string(KindSystem) + ":" + key)
}

// LengthPrefixed joins parts so that no two different lists give one string.
func LengthPrefixed(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strconv.Itoa(len(p)))
		b.WriteByte(':')
		b.WriteString(p)
	}
	return b.String()
}

// Kind reads the kind off the id; ok is false for an id that no conversation can
// have.
func (id ConversationID) Kind() (kind Kind, ok bool) {
	prefix, key, found := strings.Cut(string(id), ":")
	if !found || key == "" || len(id) > MaxConversationIDBytes || hasControl(string(id)) {
		return "", false
	}
	switch k := Kind(prefix); k {
	case KindSingle, KindGroup, KindSystem:
		return k, true
	}
	return "", false
}

// ValidateUserID refuses what cannot become a userId: it is 1 to 128 bytes of
// well-formed Unicode without control characters, has something to see and no
// control of the text's direction, and does not look like SystemSender. It is
// taken as it is: no two ids are made one. field names it in the error.
func ValidateUserID(field, id string) error {
	if err := ValidateKnownUserID(field, id); err != nil {
		return err
	}
	if err := validateName(field, "a user id", id); err != nil {
		return err
	}
	switch {
	case strings.ContainsRune(id, unicode.ReplacementChar):
		// Decoders put it where something was no Unicode, so many ids would be one.
		return FieldErrorf(CodeBadRequest, field, "a user id is well-formed Unicode, without U+FFFD")
	case looksLikeSystem(id):
		return FieldErrorf(CodeBadRequest, field, "no user is called %q, or looks so: it is the name of what the product itself writes", SystemSender)
	}
	return nil
}

// ValidateKnownUserID refuses what cannot be a userId of anything stored, where
// there may be some from before the rules of ValidateUserID: it is 1 to 128 bytes
// of UTF-8 without control characters. It is for naming who is there, never for
// who comes.
func ValidateKnownUserID(field, id string) error {
	switch {
	case id == "":
		return FieldErrorf(CodeBadRequest, field, "a user id is missing")
	case len(id) > MaxUserIDBytes:
		return FieldErrorf(CodeBadRequest, field, "a user id has at most %d bytes, this has %d", MaxUserIDBytes, len(id))
	case hasControl(id):
		return FieldErrorf(CodeBadRequest, field, "a user id is UTF-8 without control characters")
	}
	return nil
}

// ValidateConversationID refuses what cannot be a conversation id.
func ValidateConversationID(field string, id ConversationID) error {
	if id == "" {
		return FieldErrorf(CodeBadRequest, field, "a conversation id is missing")
	}
	if _, ok := id.Kind(); !ok {
		return FieldErrorf(CodeBadRequest, field,
			"a conversation id starts with single:, group: or system: and has at most %d bytes", MaxConversationIDBytes)
	}
	return nil
}

// ValidateDeviceID refuses what cannot be a deviceId: it is 1 to 64 of
// A-Z a-z 0-9 . _ and -.
func ValidateDeviceID(field, id string) error {
	ok := id != "" && len(id) <= MaxDeviceIDBytes
	for _, c := range []byte(id) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if !ok {
		return FieldErrorf(CodeBadRequest, field, "a device id is 1 to %d of A-Z a-z 0-9 . _ -", MaxDeviceIDBytes)
	}
	return nil
}

// ValidateClientMsgID refuses what cannot be an idempotency key: it is 1 to 64
// printable ASCII characters.
func ValidateClientMsgID(field, id string) error {
	ok := id != "" && len(id) <= MaxClientMsgIDBytes
	for _, c := range []byte(id) {
		ok = ok && c >= 0x20 && c <= 0x7e
	}
	if !ok {
		return FieldErrorf(CodeBadRequest, field, "an idempotency key is 1 to %d printable ASCII characters", MaxClientMsgIDBytes)
	}
	return nil
}

// ValidateNumber refuses a seq or a cursor below least or above MaxSeq.
func ValidateNumber(field string, n, least int64) error {
	if n < least || n > MaxSeq {
		return FieldErrorf(CodeBadRequest, field, "%s is from %d to %d", field, least, int64(MaxSeq))
	}
	return nil
}

// DedupeKey is the key of the idempotency record of one sender's clientMsgId.
func DedupeKey(senderID, clientMsgID string) string {
	return LengthPrefixed(senderID, clientMsgID)
}

func hasControl(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)
}
