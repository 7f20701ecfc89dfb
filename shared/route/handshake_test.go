package route_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/route"
)

func TestSubprotocols(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		headers map[string]string
		multi   map[string][]string
		want    []string
	}{
		"none":                  {},
		"one line":              {headers: map[string]string{"Sec-WebSocket-Protocol": "inorder.v1, bearer.x.y.z"}, want: []string{"inorder.v1", "bearer.x.y.z"}},
		"a name in any case":    {headers: map[string]string{"sec-websocket-protocol": "inorder.v1"}, want: []string{"inorder.v1"}},
		"several lines":         {multi: map[string][]string{"Sec-Websocket-Protocol": {"inorder.v1", "bearer.x"}}, want: []string{"inorder.v1", "bearer.x"}},
		"the multi-value first": {headers: map[string]string{"Sec-WebSocket-Protocol": "b"}, multi: map[string][]string{"Sec-WebSocket-Protocol": {"a", "b"}}, want: []string{"a", "b"}},
		"empty names":           {headers: map[string]string{"Sec-WebSocket-Protocol": " , a ,,"}, want: []string{"a"}},
		"other headers":         {headers: map[string]string{"Sec-WebSocket-Version": "13"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, route.Subprotocols(tc.headers, tc.multi))
		})
	}
}
