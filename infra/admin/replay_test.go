package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"
)

// Letters are hidden for five minutes, and a run may take longer: it meets those again
// that it has dealt with, and goes on to those that it has not. In the end it gives back
// what it has met last.
func TestReplay_GoesOnPastLettersThatItMeetsAgain(t *testing.T) {
	t.Parallel()
	batches := [][]string{{"a"}, {"a"}, {"b"}, {}}
	received := 0
	var givenBack []string
	queue := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		answer := map[string]any{}
		switch operation {
		case "ReceiveMessage":
			var messages []map[string]string
			for _, id := range batches[received] {
				messages = append(messages, map[string]string{"MessageId": id, "ReceiptHandle": fmt.Sprint(id, received), "Body": "no letter"})
			}
			received++
			answer["Messages"] = messages
		case "ChangeMessageVisibility":
			var in struct{ ReceiptHandle string }
			_ = json.NewDecoder(r.Body).Decode(&in)
			givenBack = append(givenBack, in.ReceiptHandle)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer queue.Close()
	var out strings.Builder
	s := &session{out: &out, notes: io.Discard, target: &target{queues: sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &queue.URL, DisableMessageChecksumValidation: true, Credentials: aws.AnonymousCredentials{},
	})}}
	r := &replay{session: s, queue: queue.URL, retries: queue.URL}
	require.NoError(t, r.run(t.Context()))
	require.Regexp(t, `(?ms)^a +failed .*^b +failed `, out.String())
	require.Equal(t, []string{"a1", "b2"}, givenBack)
}
