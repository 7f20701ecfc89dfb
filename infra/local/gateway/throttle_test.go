package gateway_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/gateway"
	"github.com/inorder-im/inorder/infra/local/template"
)

// slow is a rate that gives no second token while a test runs.
const slow = 1e-6

func TestARouteIsThrottledForAllClientsTogether(t *testing.T) {
	t.Parallel()
	const burst = 3
	a := start(t, gateway.Config{API: app(
		template.Route{Key: "send", FunctionID: "send", Reply: true, Throttle: &template.Throttle{PerSecond: slow, Burst: burst}},
		template.Route{Key: "sync", FunctionID: "sync", Reply: true, Throttle: &template.Throttle{PerSecond: slow, Burst: burst}},
	)}, lifecycleFunctions(map[string]function{"send": echo(), "sync": echo()}))
	one, other := a.dial(t, nil), a.dial(t, nil)
	const send = `{"action":"send"}`
	for range burst {
		one.send(send)
		require.JSONEq(t, send, one.receive())
	}
	for _, c := range []*client{one, other} {
		c.send(send)
		var frame map[string]string
		require.NoError(t, json.Unmarshal([]byte(c.receive()), &frame))
		require.Equal(t, "Too Many Requests", frame["message"])
		require.NotEmpty(t, frame["connectionId"])
		require.NotEmpty(t, frame["requestId"])
		require.Len(t, frame, 3, "nothing says which request it was")
	}
	require.Len(t, a.of("send"), burst, "the function saw none of them")

	other.send(`{"action":"sync"}`)
	require.JSONEq(t, `{"action":"sync"}`, other.receive(), "each route has a bucket of its own")
	other.send(`{"action":"else"}`)
	require.JSONEq(t, `{"action":"else"}`, other.receive(), "or none")
}

func TestAThrottledRouteAdmitsAgain(t *testing.T) {
	t.Parallel()
	a := start(t, gateway.Config{API: app(
		template.Route{Key: "send", FunctionID: "send", Reply: true, Throttle: &template.Throttle{PerSecond: 20, Burst: 1}},
	)}, lifecycleFunctions(map[string]function{"send": echo()}))
	c := a.dial(t, nil)
	c.send(`{"action":"send"}`)
	require.JSONEq(t, `{"action":"send"}`, c.receive())
	require.Eventually(t, func() bool {
		c.send(`{"action":"send"}`)
		return c.receive() == `{"action":"send"}`
	}, patience, time.Millisecond)
}

func TestAThrottledHandshakeIs429(t *testing.T) {
	t.Parallel()
	api := app(template.Route{Key: "$connect", FunctionID: "connect", Authorize: true, Throttle: &template.Throttle{PerSecond: slow, Burst: 1}})
	api.Authorizer = &template.Authorizer{FunctionID: "authorizer"}
	a := start(t, gateway.Config{API: api}, lifecycleFunctions(map[string]function{"authorizer": returns(`{}`)}))
	_, _, err := a.tryDial(t, "", nil)
	require.Error(t, err, "the authorizer of this test refuses")
	require.Len(t, a.of("authorizer"), 1)
	status, body := a.refusal(t, "", nil)
	require.Equal(t, 429, status)
	require.Equal(t, "Too Many Requests", body["message"])
	require.Len(t, a.of("authorizer"), 1, "what is throttled costs no invocation")
}
