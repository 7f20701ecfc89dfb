package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// timeFormat is that of the times in a GetConnection answer.
const timeFormat = "2006-01-02T15:04:05.000Z"

// manage serves the @connections API: POST writes to a client, GET describes its
// connection, DELETE closes it.
func (g *Gateway) manage(w http.ResponseWriter, r *http.Request, id string) {
	w.Header().Set("X-Amzn-RequestId", newID())
	if !isSigned(r) {
		fail(w, http.StatusForbidden, "ForbiddenException", "Missing Authentication Token: sign the request with AWS Signature Version 4")
		return
	}
	if g.requests.Take("") > 0 {
		fail(w, http.StatusTooManyRequests, "LimitExceededException", "Too Many Requests")
		return
	}
	if !validID(id) {
		fail(w, http.StatusBadRequest, "BadRequestException", "Invalid connectionId: "+id)
		return
	}
	switch r.Method {
	case http.MethodPost:
		g.post(w, r, id)
	case http.MethodGet:
		g.describe(w, id)
	case http.MethodDelete:
		g.deleteConnection(w, id)
	default:
		fail(w, http.StatusForbidden, "ForbiddenException", "Forbidden")
	}
}

// isSigned looks for a signature and does not check it: locally there are no keys to
// check it with. That there is one finds a caller that the cloud would refuse.
func isSigned(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-") || r.URL.Query().Has("X-Amz-Signature")
}

func (g *Gateway) post(w http.ResponseWriter, r *http.Request, id string) {
	limit := g.limits.MessageBytes
	message, err := io.ReadAll(io.LimitReader(r.Body, int64(limit)+1))
	if err != nil {
		fail(w, http.StatusBadRequest, "BadRequestException", "the body could not be read")
		return
	}
	if len(message) > limit {
		fail(w, http.StatusRequestEntityTooLarge, "PayloadTooLargeException", fmt.Sprintf("a message has at most %d bytes", limit))
		return
	}
	c, ok := g.lookup(id)
	if !ok {
		gone(w)
		return
	}
	// The other error is that the caller has hung up: then nobody reads the answer.
	if err := c.send(r.Context(), message); errors.Is(err, errGone) {
		gone(w)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (g *Gateway) describe(w http.ResponseWriter, id string) {
	c, ok := g.lookup(id)
	if !ok {
		gone(w)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"connectedAt":  c.connectedAt.UTC().Format(timeFormat),
		"lastActiveAt": time.Unix(0, c.lastActive.Load()).UTC().Format(timeFormat),
		"identity":     c.identity,
	})
}

func (g *Gateway) deleteConnection(w http.ResponseWriter, id string) {
	c, ok := g.lookup(id)
	if !ok {
		gone(w)
		return
	}
	c.end(deleted)
	w.WriteHeader(http.StatusNoContent)
}

func gone(w http.ResponseWriter) {
	fail(w, http.StatusGone, "GoneException", "Gone")
}

// fail answers with an error that the SDKs map to its type: they read it from this header.
func fail(w http.ResponseWriter, status int, errorType, message string) {
	w.Header().Set("X-Amzn-ErrorType", errorType)
	writeJSON(w, status, map[string]string{"message": message})
}
