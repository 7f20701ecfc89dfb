package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/queue"
	"github.com/inorder-im/inorder/infra/local/template"
)

// configure returns a queue's configuration, with its file in the folder.
func configure(folder, name string) queue.Config {
	return queue.Config{
		Queue: template.Queue{
			Name: name, ARN: "arn:aws:sqs:us-east-1:000000000000:" + name, URL: urlOf(name),
			Visibility: 30 * time.Second, Retention: 4 * 24 * time.Hour,
		},
		Path: filepath.Join(folder, "queues", name+".jsonl"),
	}
}

// redriving opens a queue q, and the one to which it gives what is received too often.
func redriving(folder string, maxReceives int) (q, dead *queue.Queue) {
	cfg := configure(folder, "q")
	cfg.MaxReceives = maxReceives
	q, dead = queue.Open(cfg), queue.Open(configure(folder, "dead"))
	q.RedriveTo(dead)
	return q, dead
}

func urlOf(name string) string { return "http://127.0.0.1:3000/000000000000/" + name }

// client calls the API of queues by the AWS SDK. Its queue is called q.
type client struct {
	*sqs.Client
	t *testing.T
}

func serve(t *testing.T, queues ...*queue.Queue) client {
	t.Helper()
	server := httptest.NewServer(queue.Handler(queues...))
	t.Cleanup(server.Close)
	return client{sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient: server.Client(), Retryer: aws.NopRetryer{},
	}), t}
}

func (c client) send(body string) string {
	c.t.Helper()
	out, err := c.SendMessage(c.t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String(urlOf("q")), MessageBody: &body})
	require.NoError(c.t, err)
	return *out.MessageId
}

func (c client) receive(n, hide int32) []types.Message {
	c.t.Helper()
	return c.receiveFrom("q", n, hide)
}

func (c client) receiveFrom(name string, n, hide int32) []types.Message {
	c.t.Helper()
	out, err := c.ReceiveMessage(c.t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(urlOf(name)), MaxNumberOfMessages: n, VisibilityTimeout: hide,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	require.NoError(c.t, err)
	return out.Messages
}

func (c client) hide(m types.Message, seconds int32) error {
	_, err := c.ChangeMessageVisibility(c.t.Context(), &sqs.ChangeMessageVisibilityInput{
		QueueUrl: aws.String(urlOf("q")), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
	})
	return err
}

func (c client) delete(m types.Message) {
	c.t.Helper()
	_, err := c.DeleteMessage(c.t.Context(), &sqs.DeleteMessageInput{QueueUrl: aws.String(urlOf("q")), ReceiptHandle: m.ReceiptHandle})
	require.NoError(c.t, err)
}

// counts are the messages of a queue that are visible, hidden and delayed.
func (c client) counts(name string) string {
	c.t.Helper()
	out, err := c.GetQueueAttributes(c.t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(urlOf(name)), AttributeNames: []types.QueueAttributeName{
			"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
		},
	})
	require.NoError(c.t, err)
	require.Len(c.t, out.Attributes, 3)
	return strings.Join([]string{
		out.Attributes["ApproximateNumberOfMessages"], out.Attributes["ApproximateNumberOfMessagesNotVisible"],
		out.Attributes["ApproximateNumberOfMessagesDelayed"],
	}, " ")
}

func bodies(messages []types.Message) []string {
	all := []string{}
	for _, m := range messages {
		all = append(all, *m.Body)
	}
	return all
}

func codeOf(t *testing.T, err error) string {
	t.Helper()
	api, ok := errors.AsType[smithy.APIError](err)
	require.True(t, ok, "%v", err)
	return api.ErrorCode()
}

func TestQueue(t *testing.T) {
	t.Parallel()
	q := queue.Open(configure(t.TempDir(), "q"))
	c := serve(t, q)
	require.Empty(t, c.receive(10, 60), "there is no file yet")
	for i := range 12 {
		require.NoError(t, q.Send(t.Context(), fmt.Appendf(nil, `{"n":%d}`, i)))
	}
	for _, m := range c.receive(3, 60) {
		require.NoError(t, c.hide(m, 0))
	}
	first := c.receive(10, 60)
	require.Equal(t, []string{`{"n":0}`, `{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`, `{"n":5}`, `{"n":6}`, `{"n":7}`, `{"n":8}`, `{"n":9}`}, bodies(first),
		"those given back are visible again")
	require.Equal(t, "2", first[0].Attributes["ApproximateReceiveCount"])
	require.Equal(t, "1", first[9].Attributes["ApproximateReceiveCount"])
	require.Equal(t, "2 10 0", c.counts("q"))
	require.Equal(t, []string{`{"n":10}`, `{"n":11}`}, bodies(c.receive(10, 60)), "the others are hidden")
	for _, m := range first {
		c.delete(m)
		c.delete(m) // twice is as good as once
	}
	require.Equal(t, "0 2 0", c.counts("q"))
	content, err := os.ReadFile(q.Path)
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(content, []byte("\n")))
	require.Contains(t, string(content), `"received":1,"body":{"n":10}}`, "a person can read it")
	require.Empty(t, c.receive(10, 60))
	require.NoError(t, q.Send(t.Context(), []byte(`{"n":12}`)))
	require.Equal(t, []string{`{"n":12}`}, bodies(c.receive(10, 60)))
}

// Whatever is sent comes back as it was, also after a restart, which forgets what is
// hidden and no receive.
func TestBodiesAndReceivesSurvive(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	c := serve(t, queue.Open(configure(folder, "q")))
	sent := []string{
		`{"a":1}`, `{ "a": 1 }`, `{"a":"<&>\u2028"}`, "{\"a\":\"\u2028<\"}", `{"a":1,"a":2}`, `{"a":1} {"b":2}`, `{`, `"text"`, `text`,
		"two\nlines\r\n\tand more", `[1]`, `17`, `null`, ` `, `äöü €`, "\U0001F600", strings.Repeat("x", 256<<10),
	}
	ids := map[string]string{}
	for _, body := range sent {
		ids[body] = c.send(body)
	}
	c.receive(10, 60)
	again := serve(t, queue.Open(configure(folder, "q")))
	all := append(again.receive(10, 60), again.receive(10, 60)...)
	require.Equal(t, sent, bodies(all))
	for i, m := range all {
		require.Equal(t, ids[*m.Body], *m.MessageId)
		want := "1"
		if i < 10 {
			want = "2"
		}
		require.Equal(t, want, m.Attributes["ApproximateReceiveCount"])
	}
}

func TestAHandleIsGoodUntilTheNext(t *testing.T) {
	t.Parallel()
	c := serve(t, queue.Open(configure(t.TempDir(), "q")))
	c.send("x")
	late := c.receive(1, 60)[0]
	require.NoError(t, c.hide(late, 0))
	_, visible := errors.AsType[*types.MessageNotInflight](c.hide(late, 0))
	require.True(t, visible)
	current := c.receive(1, 60)[0]
	c.delete(late)
	require.Equal(t, "0 1 0", c.counts("q"), "whoever has it now is to delete it")
	require.Equal(t, "InvalidParameterValue", codeOf(t, c.hide(late, 0)))
	c.delete(current)
	require.Equal(t, "0 0 0", c.counts("q"))
	require.Equal(t, "InvalidParameterValue", codeOf(t, c.hide(current, 0)))
}

func TestDelay(t *testing.T) {
	t.Parallel()
	cfg := configure(t.TempDir(), "q")
	cfg.Delay = time.Hour
	c := serve(t, queue.Open(cfg))
	c.send("by the queue")
	out, err := c.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: aws.String(urlOf("q")), Entries: []types.SendMessageBatchRequestEntry{
		{Id: aws.String("a"), MessageBody: aws.String("longer"), DelaySeconds: 900},
		{Id: aws.String("b"), MessageBody: aws.String("too long"), DelaySeconds: 901},
	}})
	require.NoError(t, err)
	require.Len(t, out.Successful, 1)
	require.Equal(t, "a", *out.Successful[0].Id)
	require.Len(t, out.Failed, 1)
	require.Equal(t, []any{"b", "InvalidParameterValue", true}, []any{*out.Failed[0].Id, *out.Failed[0].Code, out.Failed[0].SenderFault})
	require.Empty(t, c.receive(10, 0))
	require.Equal(t, "0 0 2", c.counts("q"))
}

func TestRedrive(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	open := func() client {
		q, dead := redriving(folder, 2)
		return serve(t, q, dead)
	}
	c := open()
	id := c.send(`{"bad":true}`)
	first := c.receive(10, 0)
	require.Equal(t, "1", first[0].Attributes["ApproximateReceiveCount"])
	c = open() // counts survive
	second := c.receive(10, 60)
	require.Equal(t, "2", second[0].Attributes["ApproximateReceiveCount"])
	require.Empty(t, c.receive(10, 0))
	require.Equal(t, []string{"0 1 0", "0 0 0"}, []string{c.counts("q"), c.counts("dead")}, "not while somebody works on it")
	require.NoError(t, c.hide(second[0], 0))
	c.send("good")
	require.Equal(t, []string{"good"}, bodies(c.receive(10, 60)))
	require.Equal(t, []string{"0 1 0", "1 0 0"}, []string{c.counts("q"), c.counts("dead")})
	dead := c.receiveFrom("dead", 10, 60)
	require.Equal(t, []string{`{"bad":true}`}, bodies(dead))
	require.Equal(t, id, *dead[0].MessageId)
	require.Equal(t, "1", dead[0].Attributes["ApproximateReceiveCount"])
	require.Equal(t, first[0].Attributes["SentTimestamp"], dead[0].Attributes["SentTimestamp"])
}

// A dead-letter queue that takes no more holds nothing up, and loses nothing.
func TestRedriveToAQueueThatIsFull(t *testing.T) {
	t.Parallel()
	q, dead := redriving(t.TempDir(), 1)
	c := serve(t, q, dead)
	c.send("bad")
	require.NoError(t, c.hide(c.receive(1, 60)[0], 0))
	fill(t, dead.Path, 20_000)
	c.send("good")
	require.Equal(t, []string{"good"}, bodies(c.receive(10, 60)))
	require.Equal(t, "1 1 0", c.counts("q"))
	_, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(urlOf("q"))})
	require.ErrorContains(t, err, "OverLimit: the queue dead has 20000 messages")
	fill(t, dead.Path, 19_999)
	require.Empty(t, c.receive(10, 60))
	require.Equal(t, "20000 0 0", c.counts("dead"))
}

// fill writes a file of so many messages, as by hand.
func fill(t *testing.T, path string, n int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("{}\n"), n), 0o600))
}

func TestABoundOfMessages(t *testing.T) {
	t.Parallel()
	q := queue.Open(configure(t.TempDir(), "q"))
	fill(t, q.Path, 19_999)
	c := serve(t, q)
	c.send("the last")
	_, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String(urlOf("q")), MessageBody: aws.String("x")})
	require.Equal(t, "OverLimit", codeOf(t, err))
	require.ErrorContains(t, q.Send(t.Context(), []byte("x")), "OverLimit")
	c.delete(c.receive(1, 60)[0])
	c.send("the last")
}

// The file of a queue does not grow with what was in it.
func TestTheFileIsTidied(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	q := queue.Open(configure(folder, "q"))
	c := serve(t, q)
	const kept = 300
	for i := range kept {
		c.send(fmt.Sprint("kept ", i))
	}
	for range kept / 10 {
		c.receive(10, 600)
	}
	for range 200 {
		c.send("passing")
		c.delete(c.receive(1, 60)[0])
		content, err := os.ReadFile(q.Path)
		require.NoError(t, err)
		require.LessOrEqual(t, bytes.Count(content, []byte("\n")), 2*kept+10)
	}
	again := serve(t, queue.Open(configure(folder, "q")))
	require.Equal(t, "300 0 0", again.counts("q"))
	m := again.receive(1, 60)[0]
	require.Equal(t, []string{"kept 0", "2"}, []string{*m.Body, m.Attributes["ApproximateReceiveCount"]})
}

// A person may change the file, and add to it, also while the queue is in use.
func TestAFileChangedByHand(t *testing.T) {
	t.Parallel()
	q := queue.Open(configure(t.TempDir(), "q"))
	c := serve(t, q)
	hidden := c.send(`{"n":1}`)
	c.receive(1, 600)
	c.send(`{"n":2}`)
	content, err := os.ReadFile(q.Path)
	require.NoError(t, err)
	changed := strings.ReplaceAll(string(content), `{"n":2}`, `{"n":22}`) + "\n" + `{"requestContext":{"condition":"RetryAttemptsExhausted"}}` + "\n" + "no newline"
	require.NoError(t, os.WriteFile(q.Path, []byte(changed), 0o600))
	c.send("after")
	messages := c.receive(10, 60)
	require.Equal(t, []string{`{"n":22}`, `{"requestContext":{"condition":"RetryAttemptsExhausted"}}`, "no newline", "after"}, bodies(messages))
	for _, m := range messages {
		require.NotEqual(t, hidden, *m.MessageId, "what is hidden stays hidden")
		c.delete(m)
	}
	require.NoError(t, os.WriteFile(q.Path, []byte("same\nsame\n"), 0o600))
	same := c.receive(10, 60)
	require.Equal(t, []string{"same", "same"}, bodies(same))
	c.delete(same[0])
	require.Equal(t, "0 1 0", c.counts("q"))
	require.NoError(t, os.Remove(q.Path))
	require.Equal(t, "0 0 0", c.counts("q"))
}

func TestRetention(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cfg := configure(folder, "q")
	serve(t, queue.Open(cfg)).send("old")
	cfg.Retention = time.Nanosecond
	c := serve(t, queue.Open(cfg))
	require.Equal(t, "0 0 0", c.counts("q"))
	require.Empty(t, c.receive(1, 0))
	content, err := os.ReadFile(cfg.Path)
	require.NoError(t, err)
	require.Empty(t, content)
}

func TestBatches(t *testing.T) {
	t.Parallel()
	c := serve(t, queue.Open(configure(t.TempDir(), "q")))
	url := aws.String(urlOf("q"))
	var entries []types.SendMessageBatchRequestEntry
	for i := range 10 {
		entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint("e", i)), MessageBody: aws.String(fmt.Sprint(i))})
	}
	send := func(entries []types.SendMessageBatchRequestEntry) error {
		_, err := c.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})
		return err
	}
	require.NoError(t, send(entries))
	eleven := slices.Concat(entries, []types.SendMessageBatchRequestEntry{{Id: aws.String("more"), MessageBody: aws.String("x")}})
	require.Equal(t, "TooManyEntriesInBatchRequest", codeOf(t, send(eleven)))
	require.Equal(t, "EmptyBatchRequest", codeOf(t, send([]types.SendMessageBatchRequestEntry{})))
	require.Equal(t, "BatchEntryIdsNotDistinct", codeOf(t, send(append(entries[:1:1], entries[0]))))
	half := strings.Repeat("x", 128<<10)
	two := []types.SendMessageBatchRequestEntry{{Id: aws.String("a"), MessageBody: &half}, {Id: aws.String("b"), MessageBody: aws.String(half + "x")}}
	require.Equal(t, "BatchRequestTooLong", codeOf(t, send(two)))
	two[1].MessageBody = &half
	require.NoError(t, send(two))
	two[1].Id = aws.String("no/id")
	require.Equal(t, "InvalidBatchEntryId", codeOf(t, send(two)))
	require.Equal(t, "12 0 0", c.counts("q"))

	messages := c.receive(10, 60)
	visible, err := c.ChangeMessageVisibilityBatch(t.Context(), &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
		{Id: aws.String("a"), ReceiptHandle: messages[0].ReceiptHandle, VisibilityTimeout: 0},
		{Id: aws.String("b"), ReceiptHandle: messages[1].ReceiptHandle, VisibilityTimeout: 43200},
		{Id: aws.String("c"), ReceiptHandle: aws.String("none")},
	}})
	require.NoError(t, err)
	require.Len(t, visible.Successful, 2)
	require.Equal(t, "ReceiptHandleIsInvalid", *visible.Failed[0].Code)
	require.Equal(t, "3 9 0", c.counts("q"))
	gone, err := c.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: []types.DeleteMessageBatchRequestEntry{
		{Id: aws.String("a"), ReceiptHandle: messages[1].ReceiptHandle}, {Id: aws.String("b"), ReceiptHandle: messages[2].ReceiptHandle},
	}})
	require.NoError(t, err)
	require.Len(t, gone.Successful, 2)
	require.Equal(t, "3 7 0", c.counts("q"))
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	q, _ := redriving(t.TempDir(), 5)
	c := serve(t, q)
	url, err := c.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("q")})
	require.NoError(t, err)
	require.Equal(t, urlOf("q"), *url.QueueUrl)
	attributes := func(names ...types.QueueAttributeName) (map[string]string, error) {
		out, err := c.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: url.QueueUrl, AttributeNames: names})
		if err != nil {
			return nil, err
		}
		return out.Attributes, nil
	}
	all, err := attributes("All")
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0", "ApproximateNumberOfMessagesDelayed": "0",
		"DelaySeconds": "0", "MaximumMessageSize": "262144", "MessageRetentionPeriod": "345600", "VisibilityTimeout": "30",
		"QueueArn":      "arn:aws:sqs:us-east-1:000000000000:q",
		"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":5}`,
	}, all)
	_, err = attributes("CreatedTimestamp")
	require.Equal(t, "InvalidAttributeName", codeOf(t, err))
}

func TestHandler_Refuses(t *testing.T) {
	t.Parallel()
	c := serve(t, queue.Open(configure(t.TempDir(), "q")))
	url := aws.String(urlOf("q"))
	_, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(urlOf("x"))})
	_, unknown := errors.AsType[*types.QueueDoesNotExist](err)
	require.True(t, unknown)
	_, err = c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 11})
	require.Equal(t, "InvalidParameterValue", codeOf(t, err))
	c.send("x")
	m := c.receive(1, 60)[0]
	for _, hide := range []int32{-1, 43201, math.MaxInt32} {
		_, err = c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: url, VisibilityTimeout: hide})
		require.Equal(t, "InvalidParameterValue", codeOf(t, err))
		require.Equal(t, "InvalidParameterValue", codeOf(t, c.hide(m, hide)))
	}
	_, err = c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: aws.String("none")})
	require.Equal(t, "ReceiptHandleIsInvalid", codeOf(t, err))
	for body, code := range map[string]string{
		"": "MissingParameter", strings.Repeat("x", 256<<10+1): "InvalidParameterValue", "a\x00b": "InvalidMessageContents", "\uFFFE": "InvalidMessageContents",
	} {
		_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: &body})
		require.Equal(t, code, codeOf(t, err))
	}
	_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("x"), MessageAttributes: map[string]types.MessageAttributeValue{
		"a": {DataType: aws.String("String"), StringValue: aws.String("b")},
	}})
	require.ErrorContains(t, err, `unknown field "MessageAttributes"`)
	_, err = c.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: url})
	require.ErrorContains(t, err, "it does not do PurgeQueue")

	for target, body := range map[string]string{"": "{}", "AmazonSQS.ReceiveMessage": "no"} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("X-Amz-Target", target)
		w := httptest.NewRecorder()
		queue.Handler().ServeHTTP(w, r)
		require.Equal(t, http.StatusBadRequest, w.Code)
	}
}

// A file that cannot be written loses nothing and says so.
func TestAFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	cfg := configure(t.TempDir(), "q")
	require.NoError(t, os.WriteFile(filepath.Dir(cfg.Path), nil, 0o600)) // where its folder should be
	q := queue.Open(cfg)
	require.Error(t, q.Send(context.Background(), []byte("x")))
	require.NoError(t, os.Remove(filepath.Dir(cfg.Path)))
	require.NoError(t, q.Send(context.Background(), []byte("y")))
	require.Equal(t, []string{"y"}, bodies(serve(t, q).receive(10, 60)))
}
