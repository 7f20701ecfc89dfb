package stream

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Why a batch was given up.
const (
	retriesExhausted  = "RetryAttemptsExhausted"
	recordAgeExceeded = "RecordAgeExceeded"
)

// deadLetter is what Lambda sends to the on-failure destination of a DynamoDB
// mapping. It has the place of the records in the stream, not the records.
type deadLetter struct {
	RequestContext  requestContext   `json:"requestContext"`
	ResponseContext *responseContext `json:"responseContext,omitempty"` // nil: never invoked
	Version         string           `json:"version"`
	Timestamp       string           `json:"timestamp"`
	Batch           batchInfo        `json:"DDBStreamBatchInfo"`
}

type requestContext struct {
	RequestID              string `json:"requestId"`
	FunctionARN            string `json:"functionArn"`
	Condition              string `json:"condition"`
	ApproximateInvokeCount int    `json:"approximateInvokeCount"`
}

type responseContext struct {
	StatusCode      int    `json:"statusCode"`
	ExecutedVersion string `json:"executedVersion"`
	FunctionError   string `json:"functionError,omitempty"`
}

type batchInfo struct {
	ShardID             string `json:"shardId"`
	StartSequenceNumber string `json:"startSequenceNumber"`
	EndSequenceNumber   string `json:"endSequenceNumber"`
	FirstArrival        string `json:"approximateArrivalOfFirstRecord"`
	LastArrival         string `json:"approximateArrivalOfLastRecord"`
	BatchSize           int    `json:"batchSize"`
	StreamARN           string `json:"streamArn"`
}

// deadLetterRecord describes a batch that is given up.
func (p *Poller) deadLetterRecord(shard, condition string, j *job) ([]byte, error) {
	first, last := j.records[0], j.records[len(j.records)-1]
	d := deadLetter{
		RequestContext: requestContext{
			// The invoker does not tell the ids of its requests.
			RequestID:              uuid.NewString(),
			FunctionARN:            p.m.FunctionARN,
			Condition:              condition,
			ApproximateInvokeCount: j.invocations,
		},
		Version:   "1.0",
		Timestamp: time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
		Batch: batchInfo{
			ShardID:             shard,
			StartSequenceNumber: first.sequence,
			EndSequenceNumber:   last.sequence,
			FirstArrival:        first.created.UTC().Format(time.RFC3339),
			LastArrival:         last.created.UTC().Format(time.RFC3339),
			BatchSize:           len(j.records),
			StreamARN:           p.arn,
		},
	}
	if j.invocations > 0 {
		d.ResponseContext = &responseContext{StatusCode: 200, ExecutedVersion: "$LATEST", FunctionError: j.functionError}
	}
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encoding a dead-letter record: %w", err)
	}
	return data, nil
}
