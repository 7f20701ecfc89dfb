package dynamo_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/infra/local/template"
)

// messages is a table with everything that a table can have.
func messages() *template.Table {
	return &template.Table{
		LogicalID: "Messages", Name: "stack-Messages", Line: 42,
		Attributes: []template.Attribute{{Name: "conversationId", Type: "S"}, {Name: "seq", Type: "N"}, {Name: "messageId", Type: "S"}},
		Key:        []template.KeyElement{{Name: "conversationId", Role: "HASH"}, {Name: "seq", Role: "RANGE"}},
		Indexes: []template.Index{
			{Name: "byMessageId", Key: []template.KeyElement{{Name: "messageId", Role: "HASH"}}, Projection: "KEYS_ONLY"},
			{Name: "byId", Key: []template.KeyElement{{Name: "conversationId", Role: "HASH"}, {Name: "messageId", Role: "RANGE"}},
				Projection: "INCLUDE", NonKey: []string{"text", "status"}},
		},
		StreamView: "NEW_AND_OLD_IMAGES", TTLAttribute: "expiresAt",
	}
}

func TestCreateTables(t *testing.T) {
	t.Parallel()
	client, _ := dynamotest.Start(t)
	plain := &template.Table{LogicalID: "Plain", Name: "stack-Plain",
		Attributes: []template.Attribute{{Name: "id", Type: "B"}}, Key: []template.KeyElement{{Name: "id", Role: "HASH"}}}
	tables := []*template.Table{messages(), plain}
	require.NoError(t, dynamo.CreateTables(t.Context(), client, tables))

	out, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String("stack-Messages")})
	require.NoError(t, err)
	require.Equal(t, types.TableStatusActive, out.Table.TableStatus)
	require.Equal(t, types.BillingModePayPerRequest, out.Table.BillingModeSummary.BillingMode)
	require.Equal(t, types.StreamViewTypeNewAndOldImages, out.Table.StreamSpecification.StreamViewType)
	projections := map[string]*types.Projection{}
	for _, index := range out.Table.GlobalSecondaryIndexes {
		projections[*index.IndexName] = index.Projection
	}
	require.Len(t, projections, 2)
	require.Equal(t, types.ProjectionTypeKeysOnly, projections["byMessageId"].ProjectionType)
	require.ElementsMatch(t, []string{"text", "status"}, projections["byId"].NonKeyAttributes)
	require.Len(t, out.Table.KeySchema, 2)

	ttl, err := client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: aws.String("stack-Messages")})
	require.NoError(t, err)
	require.Equal(t, "expiresAt", *ttl.TimeToLiveDescription.AttributeName)
	require.Equal(t, types.TimeToLiveStatusEnabled, ttl.TimeToLiveDescription.TimeToLiveStatus)

	// Again, with data: everything is left as it is.
	_, err = client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("stack-Plain"),
		Item: map[string]types.AttributeValue{"id": &types.AttributeValueMemberB{Value: []byte("x")}}})
	require.NoError(t, err)
	require.NoError(t, dynamo.CreateTables(t.Context(), client, tables))
	items, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("stack-Plain")})
	require.NoError(t, err)
	require.Len(t, items.Items, 1)
}

func TestCreateTablesRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	client, _ := dynamotest.Start(t)
	require.NoError(t, dynamo.CreateTables(t.Context(), client, []*template.Table{messages()}))

	tests := map[string]struct {
		change func(*template.Table)
		want   string
	}{
		"another key": {
			func(m *template.Table) {
				m.Key[0].Name, m.Attributes, m.Indexes = "messageId", m.Attributes[1:], nil
			},
			"key: the table has HASH conversationId (S) and RANGE seq (N), the template HASH messageId (S) and RANGE seq (N)"},
		"another type": {
			func(m *template.Table) { m.Attributes[1].Type = "S" },
			"RANGE seq (N), the template HASH conversationId (S) and RANGE seq (S)"},
		"no stream": {
			func(m *template.Table) { m.StreamView = "" },
			"stream: the table has NEW_AND_OLD_IMAGES, the template none"},
		"a new index": {
			func(m *template.Table) {
				m.Indexes = append(m.Indexes, template.Index{Name: "new", Key: m.Indexes[0].Key, Projection: "ALL"})
			},
			"index new: the table has none, the template HASH messageId (S), ALL"},
		"another projection": {
			func(m *template.Table) { m.Indexes[1].NonKey = []string{"text"} },
			"index byId: the table has HASH conversationId (S) and RANGE messageId (S), INCLUDE status text, the template"},
		"time to live elsewhere": {
			func(m *template.Table) { m.TTLAttribute = "until" },
			`its time to live on attribute "expiresAt", the template on "until"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			changed := messages()
			test.change(changed)
			err := dynamo.CreateTables(t.Context(), client, []*template.Table{changed})
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "table stack-Messages (line 42 of the template)")
			require.ErrorContains(t, err, "data directory")
		})
	}
}

func TestCreateTablesBearsAnEngineWithoutTimeToLive(t *testing.T) {
	t.Parallel()
	_, endpoint := dynamotest.Start(t)
	target, err := url.Parse(endpoint)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	refused := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "DescribeTimeToLive") {
			refused++
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"__type":"com.amazon.coral.service#UnknownOperationException"}`))
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer server.Close()
	require.NoError(t, dynamo.CreateTables(t.Context(), dynamotest.Client(t, server.URL), []*template.Table{messages()}))
	require.Equal(t, 1, refused)
}

func TestCreateTablesReportsErrors(t *testing.T) {
	t.Parallel()
	client, _ := dynamotest.Start(t)
	broken := messages()
	broken.Name = "x" // too short
	require.ErrorContains(t, dynamo.CreateTables(t.Context(), client, []*template.Table{broken}), "creating table x")
}
