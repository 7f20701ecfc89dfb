package stream

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

const (
	// maxPayload is the most that an invocation takes (Lambda quotas).
	maxPayload    = 6 << 20
	eventOpening  = `{"Records":[`
	eventClosing  = `]}`
	eventOverhead = len(eventOpening) + len(eventClosing)
)

// record is a stream record on its way to the function.
type record struct {
	sequence string
	before   string // the sequence number of the record before it
	created  time.Time
	lane     int             // which of the shard's lanes it belongs to
	body     json.RawMessage // as an element of Records in the event; nil if it is not delivered
}

// event returns the invocation payload of a batch.
func event(batch []*record) []byte {
	payload := make([]byte, 0, payloadSize(batch))
	payload = append(payload, eventOpening...)
	for i, r := range batch {
		if i > 0 {
			payload = append(payload, ',')
		}
		payload = append(payload, r.body...)
	}
	return append(payload, eventClosing...)
}

func payloadSize(batch []*record) int {
	size := eventOverhead + max(len(batch)-1, 0)
	for _, r := range batch {
		size += len(r.body)
	}
	return size
}

// Event is the event that Lambda gives a function for these records of a stream.
func Event(streamARN string, records []types.Record) ([]byte, error) {
	batch := make([]*record, len(records))
	for i, r := range records {
		doc, err := document(r, streamARN)
		if err != nil {
			return nil, err
		}
		body, err := json.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("encoding stream record %s: %w", aws.ToString(r.EventID), err)
		}
		batch[i] = &record{body: body}
	}
	return event(batch), nil
}

// document makes the JSON document of a record, as Lambda delivers it, from the
// SDK's types: for the filters and for encoding.
func document(r types.Record, streamARN string) (map[string]any, error) {
	change := r.Dynamodb
	if change == nil {
		return nil, fmt.Errorf("stream record %s has no change", aws.ToString(r.EventID))
	}
	body := map[string]any{
		"SequenceNumber": aws.ToString(change.SequenceNumber),
		"SizeBytes":      json.Number(strconv.FormatInt(aws.ToInt64(change.SizeBytes), 10)),
		"StreamViewType": string(change.StreamViewType),
	}
	if t := change.ApproximateCreationDateTime; t != nil {
		body["ApproximateCreationDateTime"] = json.Number(strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64))
	}
	for name, item := range map[string]map[string]types.AttributeValue{
		"Keys": change.Keys, "NewImage": change.NewImage, "OldImage": change.OldImage,
	} {
		if item == nil {
			continue
		}
		image, err := attributes(item)
		if err != nil {
			return nil, fmt.Errorf("stream record %s: %w", aws.ToString(r.EventID), err)
		}
		body[name] = image
	}
	doc := map[string]any{
		"eventID":        aws.ToString(r.EventID),
		"eventName":      string(r.EventName),
		"eventVersion":   aws.ToString(r.EventVersion),
		"eventSource":    aws.ToString(r.EventSource),
		"awsRegion":      aws.ToString(r.AwsRegion),
		"dynamodb":       body,
		"eventSourceARN": streamARN,
	}
	if id := r.UserIdentity; id != nil { // a deletion by time to live
		doc["userIdentity"] = map[string]any{"type": aws.ToString(id.Type), "principalId": aws.ToString(id.PrincipalId)}
	}
	return doc, nil
}

func attributes(item map[string]types.AttributeValue) (map[string]any, error) {
	m := make(map[string]any, len(item))
	for name, v := range item {
		a, err := attribute(v)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		m[name] = a
	}
	return m, nil
}

func attribute(av types.AttributeValue) (map[string]any, error) {
	switch v := av.(type) {
	case *types.AttributeValueMemberS:
		return map[string]any{"S": v.Value}, nil
	case *types.AttributeValueMemberN:
		return map[string]any{"N": v.Value}, nil
	case *types.AttributeValueMemberB:
		return map[string]any{"B": base64.StdEncoding.EncodeToString(v.Value)}, nil
	case *types.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": v.Value}, nil
	case *types.AttributeValueMemberNULL:
		return map[string]any{"NULL": v.Value}, nil
	case *types.AttributeValueMemberSS:
		return map[string]any{"SS": list(v.Value)}, nil
	case *types.AttributeValueMemberNS:
		return map[string]any{"NS": list(v.Value)}, nil
	case *types.AttributeValueMemberBS:
		set := make([]any, len(v.Value))
		for i, b := range v.Value {
			set[i] = base64.StdEncoding.EncodeToString(b)
		}
		return map[string]any{"BS": set}, nil
	case *types.AttributeValueMemberL:
		elements := make([]any, len(v.Value))
		for i, e := range v.Value {
			a, err := attribute(e)
			if err != nil {
				return nil, err
			}
			elements[i] = a
		}
		return map[string]any{"L": elements}, nil
	case *types.AttributeValueMemberM:
		m, err := attributes(v.Value)
		if err != nil {
			return nil, err
		}
		return map[string]any{"M": m}, nil
	default:
		return nil, fmt.Errorf("unknown kind of value %T", av)
	}
}

func list(values []string) []any {
	l := make([]any, len(values))
	for i, v := range values {
		l[i] = v
	}
	return l
}
