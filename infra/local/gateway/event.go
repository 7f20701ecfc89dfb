package gateway

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// The event structs are our own, because those of aws-lambda-go omit an empty body and
// never omit an empty user agent; the real events do the opposite.

type eventType string

const (
	eventConnect    eventType = "CONNECT"
	eventMessage    eventType = "MESSAGE"
	eventDisconnect eventType = "DISCONNECT"
)

type identity struct {
	UserAgent string `json:"userAgent,omitempty"`
	SourceIP  string `json:"sourceIp"`
}

type requestContext struct {
	RouteKey             string         `json:"routeKey"`
	DisconnectStatusCode int            `json:"disconnectStatusCode,omitempty"`
	DisconnectReason     *string        `json:"disconnectReason,omitempty"`
	Authorizer           map[string]any `json:"authorizer,omitempty"`
	MessageID            string         `json:"messageId,omitempty"`
	EventType            eventType      `json:"eventType"`
	ExtendedRequestID    string         `json:"extendedRequestId"`
	RequestTime          string         `json:"requestTime"`
	MessageDirection     string         `json:"messageDirection"`
	Stage                string         `json:"stage"`
	ConnectedAt          int64          `json:"connectedAt"`
	RequestTimeEpoch     int64          `json:"requestTimeEpoch"`
	Identity             identity       `json:"identity"`
	RequestID            string         `json:"requestId"`
	DomainName           string         `json:"domainName"`
	ConnectionID         string         `json:"connectionId"`
	APIID                string         `json:"apiId"`
}

// event is what a route's function gets. A message has a body, the other two have headers.
type event struct {
	Headers                         map[string]string   `json:"headers,omitempty"`
	MultiValueHeaders               map[string][]string `json:"multiValueHeaders,omitempty"`
	QueryStringParameters           map[string]string   `json:"queryStringParameters,omitempty"`
	MultiValueQueryStringParameters map[string][]string `json:"multiValueQueryStringParameters,omitempty"`
	RequestContext                  requestContext      `json:"requestContext"`
	Body                            *string             `json:"body,omitempty"`
	IsBase64Encoded                 bool                `json:"isBase64Encoded"`
}

// authorizerEvent is what the authorizer's function gets. Its maps are there even when
// empty.
type authorizerEvent struct {
	Type                            string              `json:"type"`
	MethodARN                       string              `json:"methodArn"`
	Headers                         map[string]string   `json:"headers"`
	MultiValueHeaders               map[string][]string `json:"multiValueHeaders"`
	QueryStringParameters           map[string]string   `json:"queryStringParameters"`
	MultiValueQueryStringParameters map[string][]string `json:"multiValueQueryStringParameters"`
	StageVariables                  map[string]string   `json:"stageVariables"`
	RequestContext                  requestContext      `json:"requestContext"`
}

func (g *Gateway) requestContext(c *connection, kind eventType, routeKey string) requestContext {
	now := time.Now().UTC()
	id := newID()
	return requestContext{
		RouteKey:          routeKey,
		Authorizer:        c.authorizer,
		EventType:         kind,
		ExtendedRequestID: id,
		RequestTime:       now.Format("02/Jan/2006:15:04:05 -0700"),
		MessageDirection:  "IN",
		Stage:             g.cfg.API.Stage,
		ConnectedAt:       c.connectedAt.UnixMilli(),
		RequestTimeEpoch:  now.UnixMilli(),
		Identity:          c.identity,
		RequestID:         id,
		DomainName:        g.cfg.DomainName,
		ConnectionID:      c.id,
		APIID:             g.cfg.API.ID,
	}
}

func (g *Gateway) connectEvent(c *connection, r *http.Request) event {
	headers := eventHeaders(r)
	query := r.URL.Query()
	return event{
		Headers:                         last(headers),
		MultiValueHeaders:               headers,
		QueryStringParameters:           last(query),
		MultiValueQueryStringParameters: query,
		RequestContext:                  g.requestContext(c, eventConnect, routeConnect),
	}
}

func (g *Gateway) messageEvent(c *connection, routeKey, body string) event {
	context := g.requestContext(c, eventMessage, routeKey)
	context.MessageID = newID()
	return event{RequestContext: context, Body: &body}
}

func (g *Gateway) disconnectEvent(c *connection) event {
	context := g.requestContext(c, eventDisconnect, routeDisconnect)
	context.DisconnectStatusCode = int(c.ending.code)
	context.DisconnectReason = &c.ending.reason
	// These four, three of them empty, are what real $disconnect events carry.
	headers := map[string][]string{"Host": {g.cfg.DomainName}, "x-api-key": {""}, "X-Forwarded-For": {""}, "x-restapi": {""}}
	return event{
		Headers:           last(headers),
		MultiValueHeaders: headers,
		RequestContext:    context,
	}
}

func newAuthorizerEvent(methodARN string, connect event) authorizerEvent {
	return authorizerEvent{
		Type:                            "REQUEST",
		MethodARN:                       methodARN,
		Headers:                         notNil(connect.Headers),
		MultiValueHeaders:               notNil(connect.MultiValueHeaders),
		QueryStringParameters:           notNil(connect.QueryStringParameters),
		MultiValueQueryStringParameters: notNil(connect.MultiValueQueryStringParameters),
		StageVariables:                  map[string]string{},
		RequestContext:                  connect.RequestContext,
	}
}

func notNil[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// eventHeaders returns the headers of a handshake as the functions see them in the
// cloud: without the hop-by-hop ones, with those the service adds.
func eventHeaders(r *http.Request) map[string][]string {
	proto, port := "http", "80"
	if r.TLS != nil {
		proto, port = "https", "443"
	}
	if _, p, err := net.SplitHostPort(r.Host); err == nil {
		port = p
	}
	forwardedFor := sourceIP(r)
	if before := r.Header.Get("X-Forwarded-For"); before != "" {
		forwardedFor = before + ", " + forwardedFor
	}
	headers := map[string][]string{}
	for name, values := range r.Header {
		// net/http spells every name in its own way; this prefix is the one whose usual
		// spelling, which functions look for, is another.
		if rest, ok := strings.CutPrefix(name, "Sec-Websocket-"); ok {
			name = "Sec-WebSocket-" + rest
		}
		headers[name] = values
	}
	delete(headers, "Connection")
	delete(headers, "Upgrade")
	headers["Host"] = []string{r.Host}
	headers["X-Forwarded-For"] = []string{forwardedFor}
	headers["X-Forwarded-Port"] = []string{port}
	headers["X-Forwarded-Proto"] = []string{proto}
	if r.Header.Get("X-Amzn-Trace-Id") == "" {
		headers["X-Amzn-Trace-Id"] = []string{newTraceID()}
	}
	return headers
}

// last keeps one value per name: API Gateway's single-value maps hold the last one.
func last[M ~map[string][]string](m M) map[string]string {
	single := make(map[string]string, len(m))
	for name, values := range m {
		if len(values) > 0 {
			single[name] = values[len(values)-1]
		}
	}
	return single
}

func sourceIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// idBytes is the length of what is behind a connection, request or message id.
const idBytes = 11

// newID makes an id like the service's: 11 random bytes in base64 with the URL-safe
// alphabet and padding, as in "HEJGadx-IAMCJPQ=".
func newID() string {
	return base64.URLEncoding.EncodeToString(random(idBytes))
}

// validID tells an id that could be a connection's from one that never was.
func validID(id string) bool {
	decoded, err := base64.URLEncoding.DecodeString(id)
	return err == nil && len(decoded) == idBytes
}

func newTraceID() string {
	return fmt.Sprintf("Root=1-%08x-%s", time.Now().Unix(), hex.EncodeToString(random(12)))
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails (crypto/rand)
	return b
}
