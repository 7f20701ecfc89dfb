package issuer_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/issuer"
)

func newServer(t *testing.T) *httptest.Server {
	t.Helper()
	i, err := issuer.New("http://local/", "inorder")
	require.NoError(t, err)
	server := httptest.NewServer(i.Handler())
	t.Cleanup(server.Close)
	return server
}

func get(t *testing.T, url string) (*http.Response, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	var body map[string]any
	if resp.StatusCode == http.StatusOK {
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
	}
	return resp, body
}

func TestATokenIsSignedByThePublishedKey(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	_, body := get(t, server.URL+issuer.TokenPath+"?user=alice")
	keys, err := keyfunc.NewDefaultCtx(t.Context(), []string{server.URL + issuer.KeysPath})
	require.NoError(t, err)
	token, err := jwt.Parse(body["token"].(string), keys.Keyfunc,
		jwt.WithIssuer("http://local/"), jwt.WithAudience("inorder"), jwt.WithExpirationRequired())
	require.NoError(t, err)
	subject, err := token.Claims.GetSubject()
	require.NoError(t, err)
	require.Equal(t, "alice", subject)
	require.Greater(t, body["expiresAt"], float64(time.Now().UnixMilli()))
}

func TestATokenCanBeBadOnRequest(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	keys, err := keyfunc.NewDefaultCtx(t.Context(), []string{server.URL + issuer.KeysPath})
	require.NoError(t, err)
	for query, want := range map[string]error{
		"&ttl=-1m":  jwt.ErrTokenExpired,
		"&aud=else": jwt.ErrTokenInvalidAudience,
		"&iss=else": jwt.ErrTokenInvalidIssuer,
	} {
		_, body := get(t, server.URL+issuer.TokenPath+"?user=alice"+query)
		_, err := jwt.Parse(body["token"].(string), keys.Keyfunc, jwt.WithIssuer("http://local/"), jwt.WithAudience("inorder"))
		require.ErrorIs(t, err, want, query)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	for name, tc := range map[string]struct {
		query  string
		status int
	}{
		"nobody":  {"", http.StatusBadRequest},
		"odd ttl": {"?user=a&ttl=soon", http.StatusBadRequest},
	} {
		resp, _ := get(t, server.URL+issuer.TokenPath+tc.query)
		require.Equal(t, tc.status, resp.StatusCode, name)
	}
}

func open(t *testing.T, file string) *httptest.Server {
	t.Helper()
	i, err := issuer.Open("http://local/", "inorder", file)
	require.NoError(t, err)
	server := httptest.NewServer(i.Handler())
	t.Cleanup(server.Close)
	return server
}

func TestAKeyInAFileOutlivesItsIssuer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token-key.pem")
	_, body := get(t, open(t, file).URL+issuer.TokenPath+"?user=alice")
	requireMode := func() {
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
	requireMode()
	require.NoError(t, os.Chmod(file, 0o644))
	next := open(t, file)
	requireMode()
	for _, test := range []struct {
		name, url string
		good      bool
	}{{"the same file", next.URL, true}, {"another key", newServer(t).URL, false}} {
		keys, err := keyfunc.NewDefaultCtx(t.Context(), []string{test.url + issuer.KeysPath})
		require.NoError(t, err)
		_, err = jwt.Parse(body["token"].(string), keys.Keyfunc)
		require.Equal(t, test.good, err == nil, "%s: %v", test.name, err)
	}
}

func TestAFileWithoutAKeyIsNamed(t *testing.T) {
	t.Parallel()
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(other)
	require.NoError(t, err)
	for name, content := range map[string]string{
		"empty":         "",
		"damaged":       "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		"another curve": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})),
		"a certificate": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: encoded})),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "token-key.pem")
			require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
			_, err := issuer.Open("http://local/", "inorder", file)
			require.ErrorContains(t, err, "the token key in "+file+" cannot be used: ")
			require.ErrorContains(t, err, "remove the file")
			kept, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, content, string(kept), "it is the user's to remove")
		})
	}
}
