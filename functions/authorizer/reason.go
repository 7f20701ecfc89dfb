package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/golang-jwt/jwt/v5"

	"github.com/inorder-im/inorder/shared/metric"
)

// reason is why a handshake is not let through, in one of a few words: what the
// log has is never what a client sent.
type reason string

const (
	noDevice     reason = "no device"
	notOneToken  reason = "not one token"
	tooLong      reason = "too long"
	malformed    reason = "malformed"
	critical     reason = "critical header"
	unknownKey   reason = "unknown key"
	badSignature reason = "signature"
	expired      reason = "expired"
	notYetValid  reason = "not yet valid"
	badClaims    reason = "claims"
	foreign      reason = "issuer or audience"
	badSubject   reason = "subject"
	noKeys       reason = "keys cannot be read"
)

// reasonOf says what is wrong with a token by the parser's error, whose text may
// quote the token.
func reasonOf(err error) reason {
	for _, known := range []struct {
		err error
		why reason
	}{
		{jwt.ErrTokenMalformed, malformed},
		{errCritical, critical},
		{jwt.ErrTokenUnverifiable, unknownKey},
		{jwt.ErrTokenSignatureInvalid, badSignature},
		{jwt.ErrTokenExpired, expired},
		{jwt.ErrTokenNotValidYet, notYetValid},
		{jwt.ErrTokenUsedBeforeIssued, notYetValid},
	} {
		if errors.Is(err, known.err) {
			return known.why
		}
	}
	return badClaims
}

// record writes the line of a handshake that is not let through.
func (a *authorizer) record(ctx context.Context, level slog.Level, what, requestID string, why reason, more ...slog.Attr) {
	attrs := append([]slog.Attr{
		slog.String("requestId", requestID), slog.String("reason", string(why)), metric.Count(metric.AuthorizerRefusals, 1),
	}, more...)
	a.log.LogAttrs(ctx, level, what, attrs...)
}
