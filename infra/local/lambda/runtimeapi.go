package lambda

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/inorder-im/inorder/infra/local/loopback"
)

// unhandled is the FunctionError of every failure that a caller of Lambda sees.
const unhandled = "Unhandled"

const (
	errorTypeHeader = "Lambda-Runtime-Function-Error-Type"
	errorBodyHeader = "Lambda-Runtime-Function-Error-Body"

	// maxDrain is how much of a too large answer is read for nothing, so that
	// the runtime gets to read the refusal.
	maxDrain = 64 << 20
)

// errorDocument is how Lambda tells a caller about a failure of the function.
type errorDocument struct {
	Type    string `json:"errorType"`
	Message string `json:"errorMessage"`
}

func errorPayload(errorType, message string) []byte {
	body, _ := json.Marshal(errorDocument{Type: errorType, Message: message}) // two strings always marshal
	return body
}

// failed is a failure that the function did not report itself, in Lambda's words.
func failed(errorType string, inv *invocation, reason string) *result {
	message := fmt.Sprintf("RequestId: %s Error: %s", inv.id, reason)
	return &result{payload: errorPayload(errorType, message), functionError: unhandled, logged: message + " " + errorType}
}

// runtimeAPI is the server side of "Using the Lambda runtime API for custom
// runtimes" in the AWS documentation, for one process. The process is known by
// its port: runtimes are told host and port only. Web pages, which can find the
// port, are kept away.
func (proc *sandbox) runtimeAPI() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", proc.serveNext)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", proc.serveResponse)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", proc.serveError)
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", proc.serveInitError)
	return &http.Server{
		Handler:           loopback.Guard{}.Protect(mux),
		MaxHeaderBytes:    http.DefaultMaxHeaderBytes, // aws-lambda-go sends error causes of up to 1 MB
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          slog.NewLogLogger(proc.pool.cfg.Log.Handler(), slog.LevelDebug),
	}
}

// serveNext blocks until there is an invocation.
func (proc *sandbox) serveNext(w http.ResponseWriter, r *http.Request) {
	if !proc.setReady() {
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the current invocation has no answer yet")
		return
	}
	var inv *invocation
	select {
	case inv = <-proc.work:
	case <-r.Context().Done():
		return
	}
	if r.Context().Err() != nil {
		// Nobody listens any more: leave it to the next request, or to
		// another process if this one is ending.
		proc.work <- inv
		return
	}
	proc.mu.Lock()
	proc.state = working
	proc.mu.Unlock()
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(inv.payload)))
	h.Set("Lambda-Runtime-Aws-Request-Id", inv.id)
	h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(inv.deadline.UnixMilli(), 10))
	h.Set("Lambda-Runtime-Invoked-Function-Arn", proc.pool.fn.ARN)
	h.Set("Lambda-Runtime-Trace-Id", inv.traceID)
	_, _ = w.Write(inv.payload) // a broken connection shows as an exit or a timeout
}

// setReady notes that the process asks for work. It is false while it owes an answer.
func (proc *sandbox) setReady() bool {
	proc.mu.Lock()
	defer proc.mu.Unlock()
	switch proc.state {
	case starting, answered:
		proc.state = ready
		select {
		case proc.becameReady <- struct{}{}:
		default: // nobody waits any more: the process is being killed
		}
	case ready, assigned: // asks again after a broken connection
	case working:
		return false
	}
	return true
}

func (proc *sandbox) serveResponse(w http.ResponseWriter, r *http.Request) {
	inv, body, ok := proc.receive(w, r)
	if !ok {
		return
	}
	res := &result{payload: body}
	// A runtime that streams its answer reports a failure half-way in the trailers.
	if errorType := r.Trailer.Get(errorTypeHeader); errorType != "" {
		report, _ := base64.StdEncoding.DecodeString(r.Trailer.Get(errorBodyHeader))
		res = errorResult(errorType, report)
	}
	inv.answer <- res
	accept(w)
}

func (proc *sandbox) serveError(w http.ResponseWriter, r *http.Request) {
	inv, body, ok := proc.receive(w, r)
	if !ok {
		return
	}
	inv.answer <- errorResult(r.Header.Get(errorTypeHeader), body)
	accept(w)
}

func (proc *sandbox) serveInitError(w http.ResponseWriter, r *http.Request) {
	proc.mu.Lock()
	isStarting := proc.state == starting
	proc.mu.Unlock()
	if !isStarting {
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the initialisation is over")
		return
	}
	body, err := readAnswer(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "InvalidRequest", err.Error())
		return
	}
	select {
	case proc.initError <- errorResult(r.Header.Get(errorTypeHeader), body).payload:
	default: // one report is enough
	}
	accept(w)
}

// receive takes the answer to the current invocation. If it is not acceptable,
// ok is false and the runtime has been told.
func (proc *sandbox) receive(w http.ResponseWriter, r *http.Request) (inv *invocation, body []byte, ok bool) {
	proc.mu.Lock()
	isWorking, inv := proc.state == working, proc.current
	known := isWorking && inv.id == r.PathValue("id")
	if known {
		proc.state = answered
	}
	proc.mu.Unlock()
	switch {
	case !isWorking:
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "no invocation is waiting for an answer")
		return nil, nil, false
	case !known:
		refuse(w, http.StatusBadRequest, "InvalidRequestID", "Invalid request ID")
		return nil, nil, false
	}
	body, err := readAnswer(r)
	if err != nil {
		// The runtime broke off; it can only exit or time out now.
		refuse(w, http.StatusBadRequest, "TruncatedHTTPRequest", "HTTP request detected as truncated")
		return nil, nil, false
	}
	if len(body) > maxResponse {
		inv.answer <- &result{
			payload:       errorPayload("Function.ResponseSizeTooLarge", fmt.Sprintf("Response payload size exceeded maximum allowed payload size (%d bytes).", maxResponse)),
			functionError: unhandled,
		}
		refuse(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", fmt.Sprintf("Exceeded maximum allowed payload size (%d bytes).", maxResponse))
		return nil, nil, false
	}
	return inv, body, true
}

// readAnswer reads a body up to one byte more than allowed.
func readAnswer(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxResponse+1))
	if err == nil && len(body) > maxResponse {
		_, err = io.CopyN(io.Discard, r.Body, maxDrain)
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	return body, err
}

// errorResult is a failure that the runtime reported. Its document is passed on
// as it is; if it sent none, the type from the header makes one.
func errorResult(errorType string, report []byte) *result {
	if !json.Valid(report) {
		if errorType == "" {
			errorType = "Runtime.UnknownReason"
		}
		report = errorPayload(errorType, string(report))
	}
	return &result{payload: report, functionError: unhandled}
}

func accept(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"status":"OK"}`)
}

func refuse(w http.ResponseWriter, status int, errorType, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(errorPayload(errorType, message))
}
