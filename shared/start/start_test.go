package start

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/wire"
)

// Who asks for more than there is time for is told so while there is time.
func TestBusyIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := inTime{lambda.NewHandler(route.Serve(slog.New(slog.DiscardHandler), nil, nil, map[string]route.Action{
			"wait": func(ctx context.Context, _ route.Caller, _ map[string]json.RawMessage) (any, error) {
				<-ctx.Done()
				return nil, fmt.Errorf("reading: %w", ctx.Err())
			},
		}))}
		event, err := json.Marshal(events.APIGatewayWebsocketProxyRequest{
			Body: `{"action":"wait","id":"1"}`,
			RequestContext: events.APIGatewayWebsocketProxyRequestContext{
				ConnectionID: "c", Authorizer: map[string]any{"principalId": "ann", "deviceId": "phone"},
			},
		})
		require.NoError(t, err)
		begun := time.Now()
		ctx, cancel := context.WithDeadline(t.Context(), begun.Add(10*time.Second))
		defer cancel()
		result, err := handler.Invoke(ctx, event)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second-answerReserve, time.Since(begun))
		var answer events.APIGatewayProxyResponse
		require.NoError(t, json.Unmarshal(result, &answer))
		var frame wire.ErrorReply
		require.NoError(t, json.Unmarshal([]byte(answer.Body), &frame))
		require.Equal(t, chat.CodeBusy, frame.Error.Code, answer.Body)
	})
}

func TestNoDeadlineIsMadeUp(t *testing.T) {
	t.Parallel()
	handler := inTime{lambda.NewHandler(func(ctx context.Context) error {
		_, ok := ctx.Deadline()
		require.False(t, ok)
		return nil
	})}
	_, err := handler.Invoke(t.Context(), []byte(`{}`))
	require.NoError(t, err)
}
