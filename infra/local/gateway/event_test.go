package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/gateway"
	"github.com/inorder-im/inorder/infra/local/template"
)

// authorized is an API with everything an event can carry.
func authorized(t *testing.T) *api {
	t.Helper()
	api := app(template.Route{Key: "$connect", FunctionID: "connect", Authorize: true})
	api.Authorizer = &template.Authorizer{FunctionID: "authorizer", IdentitySources: []template.IdentitySource{{From: template.FromQuery, Name: "device"}}}
	return start(t, gateway.Config{API: api}, lifecycleFunctions(map[string]function{"authorizer": returns(allowing(`{"name":"Ann"}`))}))
}

func allowing(context string) string {
	return `{"principalId":"ann","policyDocument":{"Version":"2012-10-17","Statement":[{"Action":"execute-api:Invoke","Effect":"Allow","Resource":"*"}]},"context":` + context + `}`
}

// variable replaces what differs from one event to the next by a word, after checking
// its form.
func variable(t *testing.T, context map[string]any) {
	t.Helper()
	for _, key := range []string{"connectionId", "requestId", "messageId"} {
		id, present := context[key].(string)
		if !present {
			continue
		}
		require.Len(t, id, 16)
		decoded, err := base64.URLEncoding.DecodeString(id)
		require.NoError(t, err)
		require.Len(t, decoded, 11)
		if key == "requestId" {
			require.Equal(t, id, context["extendedRequestId"])
			context["extendedRequestId"] = "an id"
		}
		context[key] = "an id"
	}
	for _, key := range []string{"connectedAt", "requestTimeEpoch"} {
		at, isNumber := context[key].(float64)
		require.True(t, isNumber, key)
		require.WithinDuration(t, time.Now(), time.UnixMilli(int64(at)), patience)
		context[key] = "ms"
	}
	text, isString := context["requestTime"].(string)
	require.True(t, isString)
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", text)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, patience)
	require.Contains(t, text, " +0000")
	context["requestTime"] = "time"
	if authorizer, present := context["authorizer"].(map[string]any); present {
		require.IsType(t, float64(0), authorizer["integrationLatency"])
		authorizer["integrationLatency"] = "ms"
	}
}

func TestEventsHaveTheRealShape(t *testing.T) {
	t.Parallel()
	a := authorized(t)
	ctx, cancel := contextWithPatience()
	defer cancel()
	conn, _, err := websocket.Dial(ctx, a.url("?device=a%20b&device=phone"), &websocket.DialOptions{
		HTTPHeader:   http.Header{"User-Agent": {"tests/1"}, "Authorization": {"Bearer x"}, "X-Twice": {"1", "2"}},
		Subprotocols: []string{"inorder.v1", "other"},
	})
	require.NoError(t, err)
	require.NoError(t, conn.Write(ctx, websocket.MessageText, []byte(`{"say":"<hello> & bye"}`)))
	_, _, err = conn.Read(ctx)
	require.NoError(t, err)
	require.NoError(t, conn.Close(4001, "enough"))

	authorizer, connect := a.await(t, "authorizer", 1).object(t), a.await(t, "connect", 1).object(t)
	message, disconnect := a.await(t, "default", 1).object(t), a.await(t, "disconnect", 1).object(t)

	ids, connectedAt := map[any]bool{}, map[any]bool{}
	for _, event := range []map[string]any{authorizer, connect, message, disconnect} {
		context := event["requestContext"].(map[string]any)
		ids[context["connectionId"]] = true
		connectedAt[context["connectedAt"]] = true
		variable(t, context)
	}
	require.Len(t, ids, 1, "one connection, one id")
	require.Len(t, connectedAt, 1, "connectedAt is constant over the connection")

	host := a.server.Listener.Addr().String()
	port := host[len("127.0.0.1:"):]
	single := map[string]any{
		"Host": host, "User-Agent": "tests/1", "Authorization": "Bearer x", "X-Twice": "2",
		"Sec-WebSocket-Protocol": "inorder.v1,other", "Sec-WebSocket-Version": "13",
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Port": port, "X-Forwarded-Proto": "http",
	}
	headers := connect["headers"].(map[string]any)
	require.Regexp(t, regexp.MustCompile(`^Root=1-[0-9a-f]{8}-[0-9a-f]{24}$`), headers["X-Amzn-Trace-Id"])
	for name, value := range single {
		require.Equal(t, value, headers[name], name)
	}
	require.NotEmpty(t, headers["Sec-WebSocket-Key"])
	require.NotContains(t, headers, "Connection")
	require.NotContains(t, headers, "Upgrade")
	multi := connect["multiValueHeaders"].(map[string]any)
	require.Equal(t, []any{"1", "2"}, multi["X-Twice"])
	require.Len(t, multi, len(headers))

	base := func(more map[string]any) map[string]any {
		context := map[string]any{
			"extendedRequestId": "an id", "requestId": "an id", "connectionId": "an id", "requestTime": "time",
			"requestTimeEpoch": "ms", "connectedAt": "ms", "messageDirection": "IN", "stage": "dev", "apiId": "api123",
			"domainName": "api123.execute-api.us-east-1.amazonaws.com",
			"identity":   map[string]any{"sourceIp": "127.0.0.1", "userAgent": "tests/1"},
		}
		for key, value := range more {
			context[key] = value
		}
		return context
	}
	principal := map[string]any{"principalId": "ann", "name": "Ann", "integrationLatency": "ms"}
	query := map[string]any{"device": "phone"}
	multiQuery := map[string]any{"device": []any{"a b", "phone"}}

	require.Equal(t, map[string]any{
		"type": "REQUEST", "methodArn": "arn:aws:execute-api:us-east-1:000000000000:api123/dev/$connect",
		"headers": headers, "multiValueHeaders": multi, "queryStringParameters": query, "multiValueQueryStringParameters": multiQuery,
		"stageVariables": map[string]any{}, "requestContext": base(map[string]any{"routeKey": "$connect", "eventType": "CONNECT"}),
	}, authorizer)
	require.Equal(t, map[string]any{
		"headers": headers, "multiValueHeaders": multi, "queryStringParameters": query, "multiValueQueryStringParameters": multiQuery,
		"isBase64Encoded": false,
		"requestContext":  base(map[string]any{"routeKey": "$connect", "eventType": "CONNECT", "authorizer": principal}),
	}, connect)
	require.Equal(t, map[string]any{
		"body": `{"say":"<hello> & bye"}`, "isBase64Encoded": false,
		"requestContext": base(map[string]any{"routeKey": "$default", "eventType": "MESSAGE", "messageId": "an id", "authorizer": principal}),
	}, message)
	require.Equal(t, map[string]any{
		"headers": map[string]any{"Host": "api123.execute-api.us-east-1.amazonaws.com", "x-api-key": "", "X-Forwarded-For": "", "x-restapi": ""},
		"multiValueHeaders": map[string]any{
			"Host": []any{"api123.execute-api.us-east-1.amazonaws.com"}, "x-api-key": []any{""}, "X-Forwarded-For": []any{""}, "x-restapi": []any{""},
		},
		"isBase64Encoded": false,
		"requestContext": base(map[string]any{
			"routeKey": "$disconnect", "eventType": "DISCONNECT", "authorizer": principal,
			"disconnectStatusCode": 4001.0, "disconnectReason": "enough",
		}),
	}, disconnect)
}

func TestEventsWithoutTheOptionalParts(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	raw := a.dialRaw(t)
	raw.write(frame(fin|opText, nil), frame(fin|opClose, nil))
	connect, message, disconnect := a.await(t, "connect", 1), a.await(t, "default", 1), a.await(t, "disconnect", 1)
	for _, i := range []struct {
		invocation
		keys []string
	}{
		{connect, []string{"headers", "multiValueHeaders", "requestContext", "isBase64Encoded"}},
		{message, []string{"requestContext", "body", "isBase64Encoded"}},
		{disconnect, []string{"headers", "multiValueHeaders", "requestContext", "isBase64Encoded"}},
	} {
		event := i.object(t)
		require.Len(t, event, len(i.keys))
		for _, key := range i.keys {
			require.Contains(t, event, key)
		}
		context := i.context(t)
		require.NotContains(t, context, "authorizer")
		require.Equal(t, map[string]any{"sourceIp": "127.0.0.1"}, context["identity"], "no user agent was sent")
	}
	require.Equal(t, "", message.object(t)["body"], "an empty message has an empty body")
	require.Contains(t, message.context(t), "messageId")
	require.NotContains(t, connect.context(t), "messageId")
	require.Equal(t, "gateway.test", connect.object(t)["headers"].(map[string]any)["Host"])
}

func TestEventsDecodeIntoTheTypesOfAWSLambdaGo(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	c, id := a.connect(t)
	c.send("hello")
	require.Equal(t, "hello", c.receive())
	require.NoError(t, c.Close(websocket.StatusNormalClosure, "bye"))
	for _, i := range []invocation{a.await(t, "connect", 1), a.await(t, "default", 1), a.await(t, "disconnect", 1)} {
		var event events.APIGatewayWebsocketProxyRequest
		require.NoError(t, json.Unmarshal(i.raw, &event))
		require.Equal(t, id, event.RequestContext.ConnectionID)
		if event.RequestContext.EventType == "DISCONNECT" {
			require.Equal(t, int64(1000), event.RequestContext.DisconnectStatusCode)
			require.Equal(t, "bye", *event.RequestContext.DisconnectReason)
		}
	}
}
