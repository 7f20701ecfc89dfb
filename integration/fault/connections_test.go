package fault_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi"
	"github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/integration/fault"
)

// connectionID has what has to be escaped.
const connectionID = "TWegAc4E/wCHnA="

// gateway answers 410 to posts to connections that were deleted.
func gateway(t *testing.T) *backend {
	deleted := make(chan struct{}, 100)
	return startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			deleted <- struct{}{}
			w.WriteHeader(http.StatusNoContent)
		case len(deleted) > 0:
			w.Header().Set("X-Amzn-ErrorType", "GoneException")
			w.WriteHeader(http.StatusGone)
		}
	})
}

// pusher returns a client, without retries, of the API behind a proxy.
func pusher(t *testing.T, plan *fault.Plan, target string) *apigatewaymanagementapi.Client {
	t.Helper()
	proxy, err := fault.NewConnections(plan)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	require.NoError(t, proxy.SetTarget(target+"/a/path/that/is/not/used"))
	return apigatewaymanagementapi.New(apigatewaymanagementapi.Options{
		Region: dynamotest.Region, BaseEndpoint: aws.String(proxy.URL() + "/v1"), Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""), HTTPClient: httpClient(t),
	})
}

func post(t *testing.T, c *apigatewaymanagementapi.Client, frame string) error {
	t.Helper()
	_, err := c.PostToConnection(t.Context(), &apigatewaymanagementapi.PostToConnectionInput{
		ConnectionId: aws.String(connectionID), Data: []byte(frame),
	})
	return err
}

const posted = "POST /v1/@connections/TWegAc4E%2FwCHnA%3D "

func TestPushes(t *testing.T) {
	t.Parallel()
	for kind, tt := range map[fault.Kind]struct {
		codes []string // of the errors that there can be
		sent  []string
	}{
		"none":           {sent: []string{"a"}},
		fault.PushDrop:   {},
		fault.PushRepeat: {sent: []string{"a", "a"}},
		fault.PushLate:   {sent: []string{"a"}},
		fault.PushLimit:  {codes: []string{"LimitExceededException"}},
		fault.PushError:  {codes: []string{"InternalServerException"}},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := gateway(t)
			err := post(t, pusher(t, always(t, kind), b.url), "a")
			if tt.codes == nil {
				require.NoError(t, err)
			} else {
				var refused smithy.APIError
				require.ErrorAs(t, err, &refused)
				require.Contains(t, tt.codes, refused.ErrorCode())
			}
			require.Eventually(t, func() bool { return len(b.got()) == len(tt.sent) }, patience, time.Millisecond)
			for i, frame := range b.got() {
				require.Equal(t, posted+tt.sent[i], frame)
			}
		})
	}
}

func TestPushGone(t *testing.T) {
	t.Parallel()
	b := gateway(t)
	err := post(t, pusher(t, always(t, fault.PushGone), b.url), "a")
	var gone *types.GoneException
	require.ErrorAs(t, err, &gone)
	require.Equal(t, []string{strings.Replace(posted, "POST", "DELETE", 1), posted + "a"}, b.got())
}

func TestPushCut(t *testing.T) {
	t.Parallel()
	b := gateway(t)
	c := pusher(t, always(t, fault.PushCut), b.url)
	for range 40 {
		err := post(t, c, "a")
		var refused smithy.APIError
		require.Error(t, err)
		require.False(t, errorsAs(err, &refused), "there was no answer: %v", err)
	}
	require.InDelta(t, 20, len(b.got()), 12, "half of them were carried out")
}

func TestPushLateIsOvertaken(t *testing.T) {
	t.Parallel()
	const n = 30
	b := gateway(t)
	c := pusher(t, newPlan(t, fault.Faults{fault.PushLate: {Rate: 0.5, UpTo: 30 * time.Millisecond}}), b.url)
	var frames []string
	for i := range n {
		frame := string(rune('A' + i))
		frames = append(frames, posted+frame)
		require.NoError(t, post(t, c, frame))
	}
	require.Eventually(t, func() bool { return len(b.got()) == n }, patience, time.Millisecond)
	require.ElementsMatch(t, frames, b.got())
	require.NotEqual(t, frames, b.got())
}

func TestConnectionsWithoutATargetYet(t *testing.T) {
	t.Parallel()
	proxy, err := fault.NewConnections(newPlan(t, nil))
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	resp, err := httpClient(t).Post(proxy.URL()+"/v1/@connections/x", "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusBadGateway, resp.StatusCode)
}
