package letter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"inorder/shared/letter"
)

const body = `{"requestContext":{"condition":"RetryAttemptsExhausted"},"DDBStreamBatchInfo":{"shardId":"s",
	"startSequenceNumber":"100000000000000000000010","endSequenceNumber":"100000000000000000000012","batchSize":2,"streamArn":"arn"}}`

// shard gives its pages one after the other, each as the last digits of sequence
// numbers.
type shard struct {
	pages [][]string
	find  error
	read  error
}

func (s *shard) GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error) {
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: new(string)}, s.find
}

func (s *shard) GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	out := &dynamodbstreams.GetRecordsOutput{NextShardIterator: new(string)}
	if len(s.pages) > 0 {
		for _, number := range s.pages[0] {
			number = "1000000000000000000000" + number
			out.Records = append(out.Records, types.Record{Dynamodb: &types.StreamRecord{SequenceNumber: &number}})
		}
		s.pages = s.pages[1:]
	}
	return out, s.read
}

func TestRecords(t *testing.T) {
	t.Parallel()
	broken := errors.New("throttled")
	for name, tc := range map[string]struct {
		shard shard
		want  int
		err   error // or any, for one of ours
		fails bool
	}{
		"whole":                   {shard: shard{pages: [][]string{{"10", "11", "12", "13"}}}, want: 3},
		"in pages, some empty":    {shard: shard{pages: [][]string{{}, {"10"}, {}, {}, {"12"}}}, want: 2},
		"its end was of others":   {shard: shard{pages: [][]string{{"10", "11"}, {"13"}}}, want: 2},
		"trimmed at the start":    {shard: shard{find: &types.TrimmedDataAccessException{}}, err: letter.ErrTooOld, fails: true},
		"trimmed while it reads":  {shard: shard{read: &types.TrimmedDataAccessException{}}, err: letter.ErrTooOld, fails: true},
		"of a stream that is not": {shard: shard{find: &types.ResourceNotFoundException{}}, err: letter.ErrTooOld, fails: true},
		"nothing there":           {err: letter.ErrTooOld, fails: true},
		"not up to its end":       {shard: shard{pages: [][]string{{"10", "11"}}}, fails: true},
		"not found":               {shard: shard{find: broken}, err: broken, fails: true},
		"not read":                {shard: shard{read: broken}, err: broken, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := letter.Parse(body)
			require.NoError(t, err)
			records, err := l.Records(t.Context(), &tc.shard)
			require.Equal(t, tc.fails, err != nil, err)
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
			}
			require.Len(t, records, tc.want)
		})
	}
}

func TestWhatIsNoLetter(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "x", "[]", "{}", `{"DDBStreamBatchInfo":{}}`} {
		_, err := letter.Parse(body)
		require.Error(t, err, body)
	}
}
