// Package letter has the forms that Lambda gives to a stream's changes: the event of a
// function, and the letter to the on-failure destination, which says where the changes
// are that were given up, and not the changes (Lambda developer guide, "Using Lambda
// with DynamoDB", "Retaining discarded batches").
package letter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

// Letter says which changes were given up.
type Letter struct {
	RequestContext  RequestContext   `json:"requestContext"`
	ResponseContext *ResponseContext `json:"responseContext,omitempty"` // nil: never invoked
	Version         string           `json:"version"`
	Timestamp       string           `json:"timestamp"`
	Batch           Batch            `json:"DDBStreamBatchInfo"`
}

// RequestContext says why they were.
type RequestContext struct {
	RequestID              string `json:"requestId"`
	FunctionARN            string `json:"functionArn"`
	Condition              string `json:"condition"`
	ApproximateInvokeCount int    `json:"approximateInvokeCount"`
}

// ResponseContext is what the function answered last.
type ResponseContext struct {
	StatusCode      int    `json:"statusCode"`
	ExecutedVersion string `json:"executedVersion"`
	FunctionError   string `json:"functionError,omitempty"`
}

// Batch is where they are in the stream.
type Batch struct {
	ShardID   string    `json:"shardId"`
	Start     string    `json:"startSequenceNumber"`
	End       string    `json:"endSequenceNumber"`
	First     time.Time `json:"approximateArrivalOfFirstRecord"`
	Last      time.Time `json:"approximateArrivalOfLastRecord"`
	Size      int       `json:"batchSize"`
	StreamARN string    `json:"streamArn"`
}

// Parse reads a letter. It errs for what is none.
func Parse(body string) (Letter, error) {
	var l Letter
	if err := json.Unmarshal([]byte(body), &l); err != nil {
		return Letter{}, fmt.Errorf("reading a letter: %w", err)
	}
	if l.Batch.StreamARN == "" {
		return Letter{}, errors.New("it is no letter of a stream's mapping")
	}
	return l, nil
}

// ErrTooOld says that the stream does not have the changes any more.
var ErrTooOld = errors.New("the stream keeps changes for 24 hours")

// emptyPages is after how many pages without records in a row the end of a batch
// is taken for gone: GetRecords may return some.
const emptyPages = 20

// Streams reads a stream; a *dynamodbstreams.Client does.
type Streams interface {
	GetShardIterator(ctx context.Context, in *dynamodbstreams.GetShardIteratorInput, options ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error)
	GetRecords(ctx context.Context, in *dynamodbstreams.GetRecordsInput, options ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error)
}

// Records reads the changes of a letter from the stream. Others that lie between
// them come with them: a batch is of some conversations, a range of all. It errs
// with ErrTooOld, and where the stream does not reach the end of the batch.
func (l Letter) Records(ctx context.Context, streams Streams) ([]types.Record, error) {
	it, err := streams.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &l.Batch.StreamARN, ShardId: &l.Batch.ShardID,
		ShardIteratorType: types.ShardIteratorTypeAtSequenceNumber, SequenceNumber: &l.Batch.Start,
	})
	if gone(err) {
		return nil, ErrTooOld
	}
	if err != nil {
		return nil, fmt.Errorf("finding the changes in the stream: %w", err)
	}
	var records []types.Record
	for next, empty := it.ShardIterator, 0; next != nil && empty < emptyPages; empty++ {
		page, err := streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: next})
		if gone(err) {
			return nil, ErrTooOld
		}
		if err != nil {
			return nil, fmt.Errorf("reading the changes from the stream: %w", err)
		}
		for _, record := range page.Records {
			empty = 0
			switch order := compare(aws.ToString(record.Dynamodb.SequenceNumber), l.Batch.End); {
			case order < 0:
				records = append(records, record)
			case order == 0:
				return append(records, record), nil
			default:
				return records, nil
			}
		}
		next = page.NextShardIterator
	}
	if len(records) == 0 {
		return nil, ErrTooOld
	}
	return nil, fmt.Errorf("the stream has changes after %s, and not those up to %s", l.Batch.Start, l.Batch.End)
}

func gone(err error) bool {
	_, trimmed := errors.AsType[*types.TrimmedDataAccessException](err)
	_, absent := errors.AsType[*types.ResourceNotFoundException](err)
	return trimmed || absent
}

// compare orders two sequence numbers, which have up to 40 digits.
func compare(a, b string) int {
	x, _ := new(big.Int).SetString(a, 10)
	y, _ := new(big.Int).SetString(b, 10)
	if x == nil || y == nil {
		return strings.Compare(a, b) // no numbers
	}
	return x.Cmp(y)
}
