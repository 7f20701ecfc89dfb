package chat

import (
	"errors"
	"fmt"
	"time"
)

// Code says what went wrong in terms a client program can act on. The same
// codes stand in error frames.
type Code string

// The codes. Only Busy and Internal are worth sending the same request again.
const (
	CodeBadRequest          Code = "BAD_REQUEST"
	CodeUnknownAction       Code = "UNKNOWN_ACTION"
	CodeTooLarge            Code = "TOO_LARGE"
	CodeNotFound            Code = "NOT_FOUND"
	CodeForbidden           Code = "FORBIDDEN"
	CodeIdempotencyConflict Code = "IDEMPOTENCY_CONFLICT"
	CodeVersionConflict     Code = "VERSION_CONFLICT"
	CodeTooLate             Code = "TOO_LATE"
	CodeDissolved           Code = "DISSOLVED"
	CodeLimit               Code = "LIMIT"
	CodeBusy                Code = "BUSY"
	CodeInternal            Code = "INTERNAL"
)

// Retryable reports whether the same request may succeed later. A retry of a
// write keeps its clientMsgId.
func (c Code) Retryable() bool { return c == CodeBusy || c == CodeInternal }

// Error is a refusal that the client is told about.
type Error struct {
	Code    Code
	Message string         // for a developer: what is wrong and what to do
	Field   string         // the request's field, where one is to blame
	Details map[string]any // facts the client can use, such as the first messageId
}

// Error returns the code, the field and the message.
func (e *Error) Error() string {
	if e.Field != "" {
		return fmt.Sprintf("%s: %s: %s", e.Code, e.Field, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// DetailRetryAfter is the field of an Error's Details that says for how many
// milliseconds the same request would be refused again.
const DetailRetryAfter = "retryAfterMs"

// BusyFor makes a Busy that asks to wait, in whole milliseconds.
func BusyFor(wait time.Duration, format string, args ...any) *Error {
	e := Errorf(CodeBusy, format, args...)
	e.Details = map[string]any{DetailRetryAfter: wait.Milliseconds()}
	return e
}

// FullFor is BusyFor where not the caller is too fast, but the conversation takes no more:
// what the caller has for others need not wait.
func FullFor(wait time.Duration, format string, args ...any) *Error {
	e := BusyFor(wait, format, args...)
	e.Field = "conversationId"
	return e
}

// Errorf makes an Error without a field.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// FieldErrorf makes an Error that blames one field of the request.
func FieldErrorf(code Code, field, format string, args ...any) *Error {
	return &Error{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of err: that of the Error in its chain, or Internal.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
