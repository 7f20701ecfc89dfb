package stream_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/filter"
)

func filters(t *testing.T, patterns ...string) []filter.Pattern {
	t.Helper()
	var f []filter.Pattern
	for _, text := range patterns {
		p, err := filter.Parse(text)
		require.NoError(t, err)
		f = append(f, p)
	}
	return f
}

func TestOneFilterIsEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.Filters = filters(t, `{"dynamodb": {"Keys": {"id": {"S": ["a"]}}}}`, `{"dynamodb": {"Keys": {"id": {"S": ["c"]}}}}`)
		s.streams.put("shard", time.Now(), "a", "b", "c")
		s.run(t, 5*time.Second)
		require.Equal(t, []string{"1 3"}, s.function.batches())
	})
}

func TestTimeToLiveDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.Filters = filters(t, `{"userIdentity": {"type": ["Service"], "principalId": ["dynamodb.amazonaws.com"]}}`)
		s.streams.put("shard", time.Now(), "a", "b")
		s.streams.shards[0].records[1].EventName = types.OperationTypeRemove
		s.streams.shards[0].records[1].UserIdentity = &types.Identity{Type: aws.String("Service"), PrincipalId: aws.String("dynamodb.amazonaws.com")}
		s.run(t, 5*time.Second)
		require.Equal(t, []string{"2"}, s.function.batches())
		require.Contains(t, string(s.function.calls[0].payload),
			`"userIdentity":{"type":"Service","principalId":"dynamodb.amazonaws.com"}`)
	})
}
