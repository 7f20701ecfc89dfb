// Package routetest has what the tests of functions have in common: the sample events
// of the folder events, and a frame that is answered. It is for tests in the folders
// of functions, from where it finds the samples.
package routetest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/route"
)

// Sample reads the sample event of a function.
func Sample[Event any](t require.TestingT, name string) (event Event) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "events", name+".json")) //nolint:gosec // a sample of this project
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &event))
	return event
}

// Frame is the sample event of a function behind a route, with another body unless
// that is "".
func Frame(t require.TestingT, name, body string) events.APIGatewayWebsocketProxyRequest {
	event := Sample[events.APIGatewayWebsocketProxyRequest](t, name)
	if body != "" {
		event.Body = body
	}
	return event
}

// Answer is what a device gets for a frame, which no limits refuse.
func Answer(t require.TestingT, log slog.Handler, actions map[string]route.Action, frame events.APIGatewayWebsocketProxyRequest) string {
	response, err := route.Serve(slog.New(log), nil, nil, actions)(context.Background(), frame)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	return response.Body
}
