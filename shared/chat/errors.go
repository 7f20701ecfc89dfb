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
	BadRequest          Code = "BAD_REQUEST"
	UnknownAction       Code = "UNKNOWN_ACTION"
	TooLarge            Code = "TOO_LARGE"
	NotFound            Code = "NOT_FOUND"
	Forbidden           Code = "FORBIDDEN"
	IdempotencyConflict Code = "IDEMPOTENCY_CONFLICT"
	VersionConflict     Code = "VERSION_CONFLICT"
	TooLate             Code = "TOO_LATE"
	Dissolved           Code = "DISSOLVED"
	Limit               Code = "LIMIT"
	Busy                Code = "BUSY"
	Internal            Code = "INTERNAL"
)

// Retryable reports whether the same request may succeed later. A retry of a
// write keeps its clientMsgId.
func (c Code) Retryable() bool { return c == Busy || c == Internal }

// Error is a refusal that the client is told about.
type Error struct {
	Code    Code
	Message string         // for a developer: what is wrong and what to do
	Field   string         // the request's field, where one is to blame
	Details map[string]any // facts the client can use, such as the first messageId
}

// Error gives the code, the field and the message.
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
	e := Errorf(Busy, format, args...)
	e.Details = map[string]any{DetailRetryAfter: wait.Milliseconds()}
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

// CodeOf gives the code of err: that of the Error in its chain, or Internal.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}
