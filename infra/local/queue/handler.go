package queue

import (
	"crypto/md5" //nolint:gosec // SQS answers with MD5 sums, and the SDK checks them
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxRequest bounds a request, in bytes: a batch whose every character is escaped.
const maxRequest = 2 << 20

// entry is what a request says of one message, or an entry of a batch.
type entry struct {
	ID                string `json:"Id"`
	MessageBody       string
	DelaySeconds      *int
	ReceiptHandle     string
	VisibilityTimeout *int // seconds
}

// request has the fields of all actions. Others are refused: none is ignored silently.
type request struct {
	entry
	QueueURL                    string `json:"QueueUrl"`
	QueueName                   string
	QueueOwner                  string `json:"QueueOwnerAWSAccountId"`
	MaxNumberOfMessages         *int
	WaitTimeSeconds             int
	AttributeNames              []string
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
	Entries                     []entry
}

// failure is an error that SQS has a name for.
type failure struct{ name, why string }

func (f *failure) Error() string { return f.name + ": " + f.why }

func refusal(name, format string, args ...any) error {
	return &failure{name, fmt.Sprintf(format, args...)}
}

// Handler serves the SQS API (its JSON protocol) for queues, by the last part of their
// URLs: the queue's name.
func Handler(queues ...*Queue) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		if service != "AmazonSQS" {
			http.Error(w, "this is where the APIs of SQS and DynamoDB are: a request needs the header X-Amz-Target", http.StatusBadRequest)
			return
		}
		var in request
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&in); err != nil {
			answer(w, nil, refusal("InvalidParameterValue", "the request is not JSON that the local cloud understands: %v", err))
			return
		}
		name := path.Base(in.QueueURL)
		if action == "GetQueueUrl" {
			name = in.QueueName
		}
		i := slices.IndexFunc(queues, func(q *Queue) bool { return q.Name == name })
		if i < 0 {
			answer(w, nil, refusal("QueueDoesNotExist", "there is no queue %s", name))
			return
		}
		out, err := queues[i].do(action, in)
		answer(w, out, err)
	})
}

// do does what a request asks of a queue.
func (q *Queue) do(action string, in request) (any, error) {
	switch action {
	case "GetQueueUrl":
		return map[string]string{"QueueUrl": q.URL}, nil
	case "GetQueueAttributes":
		return q.attributes(in.AttributeNames)
	case "ReceiveMessage":
		return q.receiveMessage(in)
	}
	name, isBatch := strings.CutSuffix(action, "Batch")
	one := map[string]func(entry) (result, error){
		"SendMessage":             q.sendMessage,
		"DeleteMessage":           q.deleteMessage,
		"ChangeMessageVisibility": q.changeVisibility,
	}[name]
	switch {
	case one == nil:
		return nil, refusal("UnsupportedOperation", "the local cloud sends, receives and deletes messages, hides them and tells of queues; it does not do %s", action)
	case isBatch:
		return batchOf(in.Entries, one)
	}
	return one(in.entry)
}

// result tells of one message, or of an entry of a batch.
type result struct {
	ID        string `json:"Id,omitempty"`
	MessageID string `json:"MessageId,omitempty"`
	MD5OfBody string `json:"MD5OfMessageBody,omitempty"`
}

func (q *Queue) sendMessage(e entry) (result, error) {
	delay := q.Delay
	if e.DelaySeconds != nil {
		if *e.DelaySeconds < 0 || *e.DelaySeconds > maxDelay {
			return result{}, refusal("InvalidParameterValue", "DelaySeconds is from 0 to %d", maxDelay)
		}
		delay = time.Duration(*e.DelaySeconds) * time.Second
	}
	m, err := q.send(e.MessageBody, delay)
	if err != nil {
		return result{}, err
	}
	return result{MessageID: m.id, MD5OfBody: sumOf(m.body)}, nil
}

var handleForm = regexp.MustCompile(`^[0-9a-f-]{36}#\d+$`)

func (q *Queue) deleteMessage(e entry) (result, error) {
	if !handleForm.MatchString(e.ReceiptHandle) {
		return result{}, refusal("ReceiptHandleIsInvalid", "%q is no receipt handle", e.ReceiptHandle)
	}
	return result{}, q.remove(e.ReceiptHandle)
}

func (q *Queue) changeVisibility(e entry) (result, error) {
	switch {
	case !handleForm.MatchString(e.ReceiptHandle):
		return result{}, refusal("ReceiptHandleIsInvalid", "%q is no receipt handle", e.ReceiptHandle)
	case e.VisibilityTimeout == nil:
		return result{}, refusal("MissingParameter", "VisibilityTimeout is missing")
	}
	hide, err := visibility(*e.VisibilityTimeout)
	if err != nil {
		return result{}, err
	}
	return result{}, q.hide(e.ReceiptHandle, hide)
}

func visibility(seconds int) (time.Duration, error) {
	if seconds < 0 || seconds > maxVisibility {
		return 0, refusal("InvalidParameterValue", "VisibilityTimeout is from 0 to %d", maxVisibility)
	}
	return time.Duration(seconds) * time.Second, nil
}

// failed is an entry of a batch that failed; the others of its batch did not.
type failed struct {
	ID          string `json:"Id"`
	SenderFault bool   `json:"SenderFault"`
	Code        string `json:"Code"`
	Message     string `json:"Message"`
}

var entryID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// batchOf does to each entry what is done to one.
func batchOf(entries []entry, one func(entry) (result, error)) (any, error) {
	var size int
	seen := map[string]bool{}
	for _, e := range entries {
		if !entryID.MatchString(e.ID) {
			return nil, refusal("InvalidBatchEntryId", "an Id has up to 80 letters, digits, - and _, not %q", e.ID)
		}
		size += len(e.MessageBody)
		seen[e.ID] = true
	}
	switch {
	case len(entries) == 0:
		return nil, refusal("EmptyBatchRequest", "a batch has entries")
	case len(entries) > maxBatch:
		return nil, refusal("TooManyEntriesInBatchRequest", "a batch has up to %d entries, not %d", maxBatch, len(entries))
	case len(seen) < len(entries):
		return nil, refusal("BatchEntryIdsNotDistinct", "the entries of a batch have different Ids")
	case size > maxBody:
		return nil, refusal("BatchRequestTooLong", "the messages of a batch have up to %d bytes together, not %d", maxBody, size)
	}
	done, notDone := []result{}, []failed{}
	for _, e := range entries {
		r, err := one(e)
		if err == nil {
			r.ID = e.ID
			done = append(done, r)
			continue
		}
		f := failed{ID: e.ID, Code: "InternalError", Message: err.Error()}
		if known, ok := errors.AsType[*failure](err); ok {
			f.SenderFault, f.Code, f.Message = true, known.name, known.why
		}
		notDone = append(notDone, f)
	}
	return map[string]any{"Successful": done, "Failed": notDone}, nil
}

// received is a message as ReceiveMessage returns it.
type received struct {
	MessageID     string            `json:"MessageId"`
	ReceiptHandle string            `json:"ReceiptHandle"`
	MD5OfBody     string            `json:"MD5OfBody"`
	Body          string            `json:"Body"`
	Attributes    map[string]string `json:"Attributes,omitempty"`
}

func (q *Queue) receiveMessage(in request) (any, error) {
	n, hide := 1, q.Visibility
	if in.MaxNumberOfMessages != nil {
		n = *in.MaxNumberOfMessages
	}
	if n < 1 || n > maxBatch {
		return nil, refusal("InvalidParameterValue", "MaxNumberOfMessages is from 1 to %d", maxBatch)
	}
	if in.VisibilityTimeout != nil {
		var err error
		if hide, err = visibility(*in.VisibilityTimeout); err != nil {
			return nil, err
		}
	}
	messages, err := q.receive(n, hide)
	if err != nil && len(messages) == 0 {
		return nil, err
	}
	list := []received{}
	for _, m := range messages {
		list = append(list, received{
			MessageID: m.id, ReceiptHandle: m.handle(), MD5OfBody: sumOf(m.body), Body: m.body,
			Attributes: chosen(m.attributes(), slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames)),
		})
	}
	return map[string]any{"Messages": list}, nil
}

// attributes are what SQS says of a message.
func (m message) attributes() map[string]string {
	return map[string]string{
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.first.UnixMilli(), 10),
		"ApproximateReceiveCount":          strconv.Itoa(m.received),
		"SenderId":                         "local",
		"SentTimestamp":                    strconv.FormatInt(m.sent.UnixMilli(), 10),
	}
}

func (q *Queue) attributes(names []string) (any, error) {
	visible, hidden, delayed, err := q.counts()
	if err != nil {
		return nil, err
	}
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	all := map[string]string{
		"ApproximateNumberOfMessages":           strconv.Itoa(visible),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(hidden),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(delayed),
		"DelaySeconds":                          seconds(q.Delay),
		"MaximumMessageSize":                    strconv.Itoa(maxBody),
		"MessageRetentionPeriod":                seconds(q.Retention),
		"QueueArn":                              q.ARN,
		"VisibilityTimeout":                     seconds(q.Visibility),
	}
	if q.dead != nil {
		all["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, q.dead.ARN, q.MaxReceives)
	}
	for _, name := range names {
		if _, known := all[name]; !known && name != "All" && name != "RedrivePolicy" {
			return nil, refusal("InvalidAttributeName", "the local cloud does not know the attribute %s", name)
		}
	}
	return map[string]any{"Attributes": chosen(all, names)}, nil
}

// chosen are those of the attributes that were asked for.
func chosen(all map[string]string, names []string) map[string]string {
	if slices.Contains(names, "All") {
		return all
	}
	some := map[string]string{}
	for _, name := range names {
		if value, ok := all[name]; ok {
			some[name] = value
		}
	}
	return some
}

func sumOf(body string) string {
	sum := md5.Sum([]byte(body)) //nolint:gosec // as SQS does
	return hex.EncodeToString(sum[:])
}

func answer(w http.ResponseWriter, out any, err error) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if err != nil {
		status, f := http.StatusInternalServerError, &failure{"InternalError", err.Error()}
		if known, ok := errors.AsType[*failure](err); ok {
			status, f = http.StatusBadRequest, known
		}
		w.WriteHeader(status)
		out = map[string]string{"__type": "com.amazonaws.sqs#" + f.name, "message": f.why}
	}
	_ = json.NewEncoder(w).Encode(out) // the caller went away
}
