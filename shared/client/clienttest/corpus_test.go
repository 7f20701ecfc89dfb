package clienttest_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire/wiretest"
)

// The fake server answers and pushes as the corpus says, which the real one does, too.
func TestCorpus(t *testing.T) {
	t.Parallel()
	wiretest.Play(t, "../../wire/testdata", "../../wire/asyncapi.yaml", func(t *testing.T) wiretest.Server {
		t.Helper()
		s := clienttest.New()
		t.Cleanup(s.Close)
		return wiretest.Server{
			Name: "go", Patience: 5 * time.Second,
			User: func(name string) string { return name },
			Dial: func(ctx context.Context, userID, deviceID string) (*websocket.Conn, error) {
				token, err := clienttest.Token(userID)(ctx)
				require.NoError(t, err)
				conn, _, err := websocket.Dial(ctx, s.URL()+"?"+url.Values{"device": {deviceID}}.Encode(), &websocket.DialOptions{
					HTTPClient: s.HTTPClient(), HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
				})
				return conn, err
			},
		}
	})
}
