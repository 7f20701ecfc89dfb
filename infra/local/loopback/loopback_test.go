package loopback_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"inorder/infra/local/loopback"
)

func TestOnly(t *testing.T) {
	t.Parallel()
	handler := loopback.Only(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, tc := range map[string]struct {
		from, host, origin string
		status             int
	}{
		"this machine":        {"127.0.0.1:5000", "127.0.0.1:3000", "", 200},
		"by name":             {"127.0.0.1:5000", "localhost:3000", "", 200},
		"IPv6":                {"[::1]:5000", "[::1]:3000", "", 200},
		"a page from here":    {"127.0.0.1:5000", "127.0.0.1:3000", "http://127.0.0.1:3000", 200},
		"another machine":     {"10.0.0.7:5000", "127.0.0.1:3000", "", 403},
		"a name of its own":   {"127.0.0.1:5000", "evil.example.com", "", 403},
		"another address":     {"127.0.0.1:5000", "10.0.0.1:3000", "", 403},
		"a page from outside": {"127.0.0.1:5000", "127.0.0.1:3000", "https://evil.example.com", 403},
		"a page from nowhere": {"127.0.0.1:5000", "127.0.0.1:3000", "null", 403},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.RemoteAddr, r.Host = tc.from, tc.host
		if tc.origin != "" {
			r.Header.Set("Origin", tc.origin)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Equal(t, tc.status, w.Code, name)
	}
}
