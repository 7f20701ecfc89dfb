package integration_test

import (
	"context"
	"flag"
	"net/url"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/shared/wire/wiretest"
)

var record = flag.Bool("record", false, "have TestCorpus fill in what is missing in the scripts of shared/wire/testdata")

// The stack answers and pushes as the corpus says, which the fake servers do, too.
func TestCorpus(t *testing.T) {
	t.Parallel()
	wiretest.Play(t, "../shared/wire/testdata", "../shared/wire/asyncapi.yaml", corpusServer)
}

// corpusServer is the stack, with users whom nobody else has.
func corpusServer(t *testing.T) wiretest.Server {
	t.Helper()
	require.NoError(t, dependOnTheProduct())
	suffix := newUser("")
	return wiretest.Server{
		Name: "stack", Patience: patience, Record: *record,
		User: func(name string) string { return name + suffix },
		Dial: func(ctx context.Context, userID, deviceID string) (*websocket.Conn, error) {
			token, err := shared.Token(ctx, userID, nil)
			if err != nil {
				return nil, err
			}
			conn, _, err := raw.Handshake(ctx, shared.Socket, url.Values{"device": {deviceID}}, &websocket.DialOptions{HTTPHeader: raw.Bearer(token)})
			return conn, err
		},
	}
}
