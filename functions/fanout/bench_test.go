package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/push"
)

// gateway takes each post, at once.
type gateway struct{}

func (gateway) Do(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(nil)), Request: r}, nil
}

// What the fan-out itself takes for one message in the largest group there is: all but
// the time of DynamoDB and of API Gateway.
func BenchmarkAMessageToAThousand(b *testing.B) {
	for _, bytes := range []int{100, 23_000} {
		for _, devices := range []int{1, 16} {
			b.Run(fmt.Sprintf("%d bytes, %d devices each", bytes, devices), func(b *testing.B) {
				w := newWorld()
				for i := range chat.MaxGroupMembers {
					user := fmt.Sprint("user", i)
					w.member("group:a", user, 1)
					for d := range devices {
						w.online(user, fmt.Sprint(d))
					}
				}
				w.write("group:a", 1)
				w.ledgers["group:a"][0].Text = strings.Repeat("x", bytes)
				h, _ := w.handler()
				h.pusher = push.New(apigatewaymanagementapi.New(apigatewaymanagementapi.Options{
					Region: "us-east-1", BaseEndpoint: aws.String("https://gateway.test/v1"), HTTPClient: gateway{},
					Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
				}))
				b.ReportAllocs()
				for b.Loop() {
					clear(w.asked)
					_, _, t := h.serve(b.Context(), []*conversation{{id: "group:a", news: chat.Range{From: 1, To: 1}, membersVersion: 1, membersBefore: 1000}}, hasty)
					require.Equal(b, 1000*devices, t.pushes)
				}
			})
		}
	}
}
