package queue_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"inorder/infra/local/queue"
	"inorder/infra/local/stream"
)

const url = "https://sqs.us-east-1.amazonaws.com/000000000000/inorder-DeadLetters"

// open gives a queue and a client of it, the AWS SDK's.
func open(t *testing.T) (*queue.Queue, *sqs.Client) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dead-letters", "q.jsonl")
	q := queue.Open(path, stream.FileDeadLetter(path))
	server := httptest.NewServer(queue.Handler(map[string]*queue.Queue{url: q}))
	t.Cleanup(server.Close)
	return q, sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient: server.Client(), Retryer: aws.NopRetryer{},
	})
}

func receive(t *testing.T, client *sqs.Client, n, hide int32) []types.Message {
	t.Helper()
	out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(url), MaxNumberOfMessages: n, VisibilityTimeout: hide})
	require.NoError(t, err)
	return out.Messages
}

func bodies(messages []types.Message) []string {
	all := []string{}
	for _, m := range messages {
		all = append(all, *m.Body)
	}
	return all
}

func TestQueue(t *testing.T) {
	t.Parallel()
	q, client := open(t)
	require.Empty(t, receive(t, client, 10, 60), "there is no file yet")
	_, err := client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: aws.String(url), ReceiptHandle: aws.String("none")})
	require.NoError(t, err, "what is not there is deleted")
	for i := range 12 {
		require.NoError(t, q.Send(t.Context(), fmt.Appendf(nil, `{"n":%d}`, i)))
	}
	for _, m := range receive(t, client, 3, 60) {
		_, err := client.ChangeMessageVisibility(t.Context(), &sqs.ChangeMessageVisibilityInput{
			QueueUrl: aws.String(url), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0,
		})
		require.NoError(t, err)
	}
	first := receive(t, client, 10, 60)
	require.Equal(t, []string{`{"n":0}`, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`, `{"n":5}`, `{"n":6}`, `{"n":7}`, `{"n":8}`, `{"n":9}`}, bodies(first),
		"those given back are visible again")
	require.Equal(t, []string{`{"n":10}`, `{"n":11}`}, bodies(receive(t, client, 10, 60)), "the others are hidden")
	for _, m := range first {
		for range 2 { // twice is as good as once
			_, err := client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: aws.String(url), ReceiptHandle: m.ReceiptHandle})
			require.NoError(t, err)
		}
	}
	content, err := os.ReadFile(q.Path())
	require.NoError(t, err)
	require.Equal(t, "{\"n\":10}\n{\"n\":11}\n", string(content))
	require.Empty(t, receive(t, client, 10, 60))
	require.NoError(t, q.Send(context.Background(), []byte(`{"n":12}`)))
	require.Equal(t, []string{`{"n":12}`}, bodies(receive(t, client, 10, 60)))
}

func TestHandler_Refuses(t *testing.T) {
	t.Parallel()
	_, client := open(t)
	_, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(url + "x")})
	require.ErrorContains(t, err, "QueueDoesNotExist")
	_, err = client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(url), MaxNumberOfMessages: 11})
	require.ErrorContains(t, err, "InvalidParameterValue")
	for _, hide := range []int32{-1, 43201, math.MaxInt32} {
		_, err = client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(url), VisibilityTimeout: hide})
		require.ErrorContains(t, err, "InvalidParameterValue")
		_, err = client.ChangeMessageVisibility(t.Context(), &sqs.ChangeMessageVisibilityInput{
			QueueUrl: aws.String(url), ReceiptHandle: aws.String("x"), VisibilityTimeout: hide,
		})
		require.ErrorContains(t, err, "InvalidParameterValue")
	}
	_, err = client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String(url), MessageBody: aws.String("x")})
	require.ErrorContains(t, err, "ChangeMessageVisibility and DeleteMessage, not SendMessage")

	for target, body := range map[string]string{"": "{}", "AmazonSQS.ReceiveMessage": "no"} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("X-Amz-Target", target)
		w := httptest.NewRecorder()
		queue.Handler(nil).ServeHTTP(w, r)
		require.Equal(t, http.StatusBadRequest, w.Code)
	}
}
