package lambda_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/lambda"
)

// A web page can find the port of a runtime; it must not take the runtime's work, nor
// answer for it.
func TestTheRuntimeAPIIsForItsRuntimeOnly(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	api := runtimeAPIOf(t, f)
	port := api[strings.LastIndex(api, ":"):]
	client := &http.Client{Timeout: deadline, Transport: &http.Transport{DisableKeepAlives: true}}
	for name, tc := range map[string]struct {
		host   string
		header http.Header
		let    bool
	}{
		"a program":                         {"", nil, true},
		"by name":                           {"localhost" + port, nil, true},
		"a name of the internet":            {"evil.example" + port, nil, false},
		"a page":                            {"", http.Header{"Origin": {"https://evil.example"}}, false},
		"a page that one develops":          {"", http.Header{"Origin": {"http://localhost:5173"}}, false},
		"a page that was made to look here": {"evil.example" + port, http.Header{"Origin": {"http://evil.example" + port}}, false},
		"an image in a page":                {"", http.Header{"Sec-Fetch-Site": {"cross-site"}}, false},
	} {
		for path, method := range map[string]string{
			"invocation/next": http.MethodGet, "invocation/1/response": http.MethodPost,
			"invocation/1/error": http.MethodPost, "init/error": http.MethodPost, "nothing": http.MethodGet,
		} {
			if tc.let && path == "invocation/next" {
				continue // it would wait for work
			}
			request, err := http.NewRequestWithContext(t.Context(), method, "http://"+api+"/2018-06-01/runtime/"+path, strings.NewReader("{}"))
			require.NoError(t, err)
			request.Host, request.Header = tc.host, tc.header
			if request.Header == nil {
				request.Header = http.Header{}
			}
			response, err := client.Do(request)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			// What the API itself says is in its own form.
			refused := response.StatusCode == http.StatusForbidden && response.Header.Get("Content-Type") != "application/json"
			require.Equal(t, !tc.let, refused, "%s %s: %s", name, path, response.Status)
		}
	}
	require.Equal(t, "still at work", f.succeed(t, command{Do: "echo", Value: "still at work"}).Value)
}

func runtimeAPIOf(t *testing.T, f *fixture) string {
	t.Helper()
	for _, entry := range f.succeed(t, command{Do: "context"}).Env {
		if api, found := strings.CutPrefix(entry, "AWS_LAMBDA_RUNTIME_API="); found {
			return api
		}
	}
	require.Fail(t, "the function knows no runtime API")
	return ""
}
