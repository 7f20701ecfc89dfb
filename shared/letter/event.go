package letter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

// What stands around the changes in an event, and between two of them.
const (
	opening   = `{"Records":[`
	separator = `,`
	closing   = `]}`
)

// Size is how many bytes an event of these changes has.
func Size(changes ...json.RawMessage) int {
	size := len(opening) + len(closing) + max(0, len(changes)-1)*len(separator)
	for _, c := range changes {
		size += len(c)
	}
	return size
}

// Event returns what Lambda gives a function for changes, which [Change] makes.
func Event(changes ...json.RawMessage) []byte {
	var event bytes.Buffer
	event.Grow(Size(changes...))
	event.WriteString(opening)
	for i, c := range changes {
		if i > 0 {
			event.WriteString(separator)
		}
		event.Write(c)
	}
	event.WriteString(closing)
	return event.Bytes()
}

// change is an element of Records in an event ("Using Lambda with DynamoDB" in the
// Lambda developer guide).
type change struct {
	EventID      string    `json:"eventID"`
	EventName    string    `json:"eventName"`
	EventVersion string    `json:"eventVersion"`
	EventSource  string    `json:"eventSource"`
	Region       string    `json:"awsRegion"`
	Dynamodb     images    `json:"dynamodb"`
	StreamARN    string    `json:"eventSourceARN"`
	By           *identity `json:"userIdentity,omitempty"` // of a deletion by time to live
}

type images struct {
	SequenceNumber string          `json:"SequenceNumber"`
	SizeBytes      int64           `json:"SizeBytes"`
	View           string          `json:"StreamViewType"`
	Created        json.Number     `json:"ApproximateCreationDateTime,omitempty"` // in seconds
	Keys           json.RawMessage `json:"Keys,omitempty"`
	New            json.RawMessage `json:"NewImage,omitempty"`
	Old            json.RawMessage `json:"OldImage,omitempty"`
}

type identity struct {
	Type        string `json:"type"`
	PrincipalID string `json:"principalId"`
}

// Change is a record of a stream as an event has it. It errs for a record that has no
// change, or a value of a kind that is not known.
func Change(streamARN string, r types.Record) (json.RawMessage, error) {
	data, err := encode(streamARN, r)
	if err != nil {
		return nil, fmt.Errorf("stream record %s: %w", aws.ToString(r.EventID), err)
	}
	return data, nil
}

func encode(streamARN string, r types.Record) (_ json.RawMessage, err error) {
	in := r.Dynamodb
	if in == nil {
		return nil, errors.New("it has no change")
	}
	out := change{
		EventID:      aws.ToString(r.EventID),
		EventName:    string(r.EventName),
		EventVersion: aws.ToString(r.EventVersion),
		EventSource:  aws.ToString(r.EventSource),
		Region:       aws.ToString(r.AwsRegion),
		StreamARN:    streamARN,
		Dynamodb: images{
			SequenceNumber: aws.ToString(in.SequenceNumber),
			SizeBytes:      aws.ToInt64(in.SizeBytes),
			View:           string(in.StreamViewType),
		},
	}
	if t := in.ApproximateCreationDateTime; t != nil {
		out.Dynamodb.Created = json.Number(strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64))
	}
	if id := r.UserIdentity; id != nil {
		out.By = &identity{aws.ToString(id.Type), aws.ToString(id.PrincipalId)}
	}
	for _, part := range []struct {
		to   *json.RawMessage
		item map[string]types.AttributeValue
	}{{&out.Dynamodb.Keys, in.Keys}, {&out.Dynamodb.New, in.NewImage}, {&out.Dynamodb.Old, in.OldImage}} {
		if *part.to, err = image(part.item); err != nil {
			return nil, err
		}
	}
	return json.Marshal(out)
}

// image is nil for none.
func image(item map[string]types.AttributeValue) (json.RawMessage, error) {
	if item == nil {
		return nil, nil
	}
	attributes, err := attributevalue.FromDynamoDBStreamsMap(item)
	if err != nil {
		return nil, err
	}
	return attributevalue.MarshalMapJSON(attributes)
}
