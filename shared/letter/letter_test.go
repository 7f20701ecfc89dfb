package letter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/letter"
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

func TestEvent(t *testing.T) {
	t.Parallel()
	item := map[string]types.AttributeValue{
		"s":    &types.AttributeValueMemberS{Value: "<é>"},
		"n":    &types.AttributeValueMemberN{Value: "9007199254740993"},
		"b":    &types.AttributeValueMemberB{Value: []byte{0xff}},
		"bool": &types.AttributeValueMemberBOOL{Value: true},
		"null": &types.AttributeValueMemberNULL{Value: true},
		"ss":   &types.AttributeValueMemberSS{Value: []string{"x"}},
		"ns":   &types.AttributeValueMemberNS{Value: []string{"1"}},
		"bs":   &types.AttributeValueMemberBS{Value: [][]byte{{1}}},
		"l":    &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberL{Value: []types.AttributeValue{}}}},
		"m":    &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{}},
	}
	put, err := letter.Change("arn", types.Record{
		EventID: aws.String("1"), EventName: types.OperationTypeModify, EventVersion: aws.String("1.1"), EventSource: aws.String("aws:dynamodb"), AwsRegion: aws.String("eu-north-1"),
		Dynamodb: &types.StreamRecord{
			ApproximateCreationDateTime: aws.Time(time.UnixMilli(1500)), SequenceNumber: aws.String("100"), SizeBytes: aws.Int64(26),
			StreamViewType: types.StreamViewTypeNewAndOldImages, NewImage: item, OldImage: map[string]types.AttributeValue{},
		},
	})
	require.NoError(t, err)
	expired, err := letter.Change("arn", types.Record{
		UserIdentity: &types.Identity{Type: aws.String("Service"), PrincipalId: aws.String("dynamodb.amazonaws.com")}, Dynamodb: &types.StreamRecord{},
	})
	require.NoError(t, err)
	event := letter.Event(put, expired)
	require.Len(t, event, letter.Size(put, expired))
	require.Len(t, letter.Event(), letter.Size())
	require.JSONEq(t, `{"Records": []}`, string(letter.Event()))
	require.JSONEq(t, `{"Records": [
		{"eventID": "1", "eventName": "MODIFY", "eventVersion": "1.1", "eventSource": "aws:dynamodb", "awsRegion": "eu-north-1", "eventSourceARN": "arn",
			"dynamodb": {"ApproximateCreationDateTime": 1.5, "SequenceNumber": "100", "SizeBytes": 26, "StreamViewType": "NEW_AND_OLD_IMAGES", "OldImage": {},
				"NewImage": {"s": {"S": "<é>"}, "n": {"N": "9007199254740993"}, "b": {"B": "/w=="}, "bool": {"BOOL": true}, "null": {"NULL": true},
					"ss": {"SS": ["x"]}, "ns": {"NS": ["1"]}, "bs": {"BS": ["AQ=="]}, "l": {"L": [{"L": []}]}, "m": {"M": {}}}}},
		{"eventID": "", "eventName": "", "eventVersion": "", "eventSource": "", "awsRegion": "", "eventSourceARN": "arn",
			"userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"},
			"dynamodb": {"SequenceNumber": "", "SizeBytes": 0, "StreamViewType": ""}}]}`, string(event))
	require.Contains(t, string(put), `"n":{"N":"9007199254740993"}`, "numbers are not rounded")
}

func TestWhatIsNoChange(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]types.Record{
		"no change":       {EventID: aws.String("e1")},
		"an unknown kind": {EventID: aws.String("e1"), Dynamodb: &types.StreamRecord{Keys: map[string]types.AttributeValue{"k": &types.UnknownUnionMember{Tag: "X"}}}},
	} {
		_, err := letter.Change("arn", r)
		require.ErrorContains(t, err, "stream record e1", name)
	}
}
