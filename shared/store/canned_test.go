package store_test

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
)

// cannedLatency is how long a canned DynamoDB takes for each request.
const cannedLatency = 10 * time.Millisecond

// canned is a DynamoDB that answers what the test says, for times that are too
// long, and waits that are to be too exact, to be those of a real one. It needs no
// network, so its time can be that of a synctest bubble.
type canned struct {
	answer func(op, request string) (status int, answer string)
	calls  []cannedCall
}

type cannedCall struct {
	op         string
	begun, end time.Time
}

func (d *canned) RoundTrip(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	call := cannedCall{op: op, begun: time.Now()}
	time.Sleep(cannedLatency)
	call.end = time.Now()
	d.calls = append(d.calls, call)
	status, answer := d.answer(op, string(request))
	return storetest.Refusing(r, status, answer), nil
}

func (d *canned) store() *store.Store {
	return store.New(dynamodb.New(dynamodb.Options{
		Region: "local", BaseEndpoint: aws.String("http://canned"), HTTPClient: &http.Client{Transport: d},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""), Retryer: aws.NopRetryer{},
	}), store.Tables{
		Conversations: "conversations", Messages: "messages", Idempotency: "idempotency",
		Members: "members", Inboxes: "inboxes", Connections: "connections", Lane: "lane",
	})
}

// waits returns how long it was between the answers to one operation and the next
// request, since the n-th call.
func (d *canned) waits(n int, op string) []time.Duration {
	var waits []time.Duration
	for i := n + 1; i < len(d.calls); i++ {
		if d.calls[i-1].op == op {
			waits = append(waits, d.calls[i].begun.Sub(d.calls[i-1].end))
		}
	}
	return waits
}

const (
	cannedHead = `{"Item":{"conversationId":{"S":"group:1"},"kind":{"S":"group"},"lastSeq":{"N":"9"},"membersVersion":{"N":"1"},` +
		`"memberCount":{"N":"2"},"state":{"S":"active"}}}`
	cannedMember  = `{"conversationId":{"S":"group:1"},"userId":{"S":"ann"},"role":{"S":"member"},"joinSeq":{"N":"1"},"joinedSeq":{"N":"1"}}`
	cannedMessage = `{"conversationId":{"S":"group:1"},"seq":{"N":"1"},"messageId":{"S":"m"},"messageType":{"S":"text"},"text":{"S":"hi"}}`
	cannedLine    = `{"userId":{"S":"ann"},"conversationId":{"S":"group:1"},"joinSeq":{"N":"1"},"readSeq":{"N":"0"},"deliveredSeq":{"N":"0"}}`
)

// refuse answers an operation so many times with a refusal, and then as the rest.
func (d *canned) refuse(op string, times int, refusal string) {
	rest := d.answer
	d.answer = func(o, request string) (int, string) {
		if o == op && times > 0 {
			times--
			return http.StatusBadRequest, refusal
		}
		return rest(o, request)
	}
}

// reads returns the operations since the n-th call but the writes.
func (d *canned) reads(n int) []string {
	reads := []string{}
	for _, call := range d.calls[n:] {
		if call.op != "TransactWriteItems" {
			reads = append(reads, call.op)
		}
	}
	return reads
}
