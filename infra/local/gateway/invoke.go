package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/inorder-im/inorder/infra/local/template"
)

var errTimedOut = errors.New("the function did not answer within the integration timeout")

// functionError is what a function that crashed, ran out of time or returned an error
// left behind. Its message is not part of Error: it can quote what a client sent, and
// that stays out of the log.
type functionError struct {
	Type    string `json:"errorType"`
	Message string `json:"errorMessage"`
}

func (e *functionError) Error() string {
	return fmt.Sprintf("the function failed with %q; its own log has the message", e.Type)
}

// call invokes a function with event as its payload. The error is errTimedOut, a
// *functionError, or says that the function could not be run. After errTimedOut the
// function still runs, as it does in the cloud. The caller must be running work, see
// begin.
func (g *Gateway) call(function string, event any, timeout time.Duration) ([]byte, error) {
	payload, err := json.Marshal(event)
	if err != nil {
		return nil, fmt.Errorf("encoding the event: %w", err)
	}
	type result struct {
		payload []byte
		err     error
	}
	results := make(chan result, 1)
	g.running.Go(func() {
		out, err := g.invoke(function, payload)
		results <- result{out, err}
	})
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-results:
		return r.payload, r.err
	case <-timer.C:
		return nil, errTimedOut
	}
}

func (g *Gateway) invoke(function string, payload []byte) ([]byte, error) {
	out, unhandled, err := g.cfg.Invoker.Invoke(g.ctx, function, payload)
	if err != nil {
		return nil, fmt.Errorf("running the function: %w", err)
	}
	if unhandled == "" {
		return out, nil
	}
	failure := &functionError{}
	if json.Unmarshal(out, failure) != nil || failure.Type == "" {
		failure.Type = unhandled
	}
	return nil, failure
}

// proxyResponse is what a function behind a Lambda proxy integration returned.
type proxyResponse struct {
	status  int
	headers map[string]string // by lower-case name
	body    []byte
}

// parseProxyResponse reads a function's result. As in the cloud, a result that is no
// JSON object or has a key that is none of the format's is a malformed one and counts
// as a failure of the function; an absent statusCode means 200.
func parseProxyResponse(payload []byte) (proxyResponse, error) {
	var raw struct {
		StatusCode        json.Number      `json:"statusCode"`
		Headers           map[string]any   `json:"headers"`
		MultiValueHeaders map[string][]any `json:"multiValueHeaders"`
		Body              *string          `json:"body"`
		IsBase64Encoded   bool             `json:"isBase64Encoded"`
	}
	if !bytes.HasPrefix(bytes.TrimSpace(payload), []byte("{")) {
		return proxyResponse{}, errors.New(`malformed result: the function must return an object like {"statusCode": 200}`)
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&raw); err != nil {
		return proxyResponse{}, fmt.Errorf("malformed result: %w; the keys are statusCode, headers, multiValueHeaders, body and isBase64Encoded", err)
	}
	response := proxyResponse{status: 200, headers: map[string]string{}}
	if raw.StatusCode != "" {
		status, err := raw.StatusCode.Int64()
		if err != nil || status < 200 || status > 599 {
			return proxyResponse{}, fmt.Errorf("malformed result: statusCode %q is not between 200 and 599", raw.StatusCode)
		}
		response.status = int(status)
	}
	for name, value := range raw.Headers {
		response.headers[strings.ToLower(name)] = fmt.Sprint(value)
	}
	for name, values := range raw.MultiValueHeaders {
		if len(values) > 0 {
			response.headers[strings.ToLower(name)] = fmt.Sprint(values[len(values)-1])
		}
	}
	if raw.Body == nil {
		return response, nil
	}
	response.body = []byte(*raw.Body)
	if raw.IsBase64Encoded {
		decoded, err := base64.StdEncoding.DecodeString(*raw.Body)
		if err != nil {
			return proxyResponse{}, errors.New("malformed result: isBase64Encoded is set and the body is not base64")
		}
		response.body = decoded
	}
	return response, nil
}

// route finds the route of a message: the one whose key the expression yields, else
// $default. A message cannot name $connect or $disconnect: those belong to the
// connection's life.
func (g *Gateway) route(message []byte) (key string, route template.Route, ok bool) {
	if json.Valid(message) {
		key = g.cfg.API.RouteSelection.Key(message)
		if route, ok = g.routes[key]; ok && key != routeConnect && key != routeDisconnect {
			return key, route, true
		}
	}
	route, ok = g.routes[routeDefault]
	return routeDefault, route, ok
}
