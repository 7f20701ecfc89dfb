package stream

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/inorder-im/inorder/shared/letter"
)

// Why a batch was given up.
const (
	retriesExhausted  = "RetryAttemptsExhausted"
	recordAgeExceeded = "RecordAgeExceeded"
)

// deadLetterRecord describes a batch that is given up.
func (p *Poller) deadLetterRecord(shard, condition string, j *job) ([]byte, error) {
	first, last := j.records[0], j.records[len(j.records)-1]
	l := letter.Letter{
		RequestContext: letter.RequestContext{
			// The invoker does not tell the ids of its requests.
			RequestID:              uuid.NewString(),
			FunctionARN:            p.m.FunctionARN,
			Condition:              condition,
			ApproximateInvokeCount: j.invocations,
		},
		Version:   "1.0",
		Timestamp: time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
		Batch: letter.Batch{
			ShardID:   shard,
			Start:     first.sequence,
			End:       last.sequence,
			First:     first.created.UTC().Truncate(time.Second),
			Last:      last.created.UTC().Truncate(time.Second),
			Size:      len(j.records),
			StreamARN: p.arn,
		},
	}
	if j.invocations > 0 {
		l.ResponseContext = &letter.ResponseContext{StatusCode: 200, ExecutedVersion: "$LATEST", FunctionError: j.functionError}
	}
	data, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encoding a dead-letter record: %w", err)
	}
	return data, nil
}
