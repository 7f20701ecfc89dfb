package dynamo_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
)

// makeSeed writes the seed anew, from what dynoxide makes itself and seed.sql:
// go test ./infra/local/dynamo -run TestSeed -make-seed.
var makeSeed = flag.Bool("make-seed", false, "write seed.sqlite.gz anew")

func openFile(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

// schema is what a data file has, by name.
func schema(t *testing.T, path string) map[string]string {
	t.Helper()
	rows, err := openFile(t, path).QueryContext(t.Context(), "SELECT name, coalesce(sql, '') FROM sqlite_schema")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	all := map[string]string{}
	for rows.Next() {
		var name, text string
		require.NoError(t, rows.Scan(&name, &text))
		all[name] = text
	}
	require.NoError(t, rows.Err())
	return all
}

// withoutSeed is an empty data file that dynoxide made all by itself.
func withoutSeed(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	dynamotest.StartEngine(t, dynamo.Config{DataFile: path}).Stop(t.Context())
	return path
}

// The seed is dynoxide's own empty data file, with what seed.sql adds and nothing else.
func TestSeedIsTheEnginesOwnFile(t *testing.T) {
	t.Parallel()
	addition, err := os.ReadFile("seed.sql")
	require.NoError(t, err)
	made := withoutSeed(t)
	_, err = openFile(t, made).ExecContext(t.Context(), string(addition))
	require.NoError(t, err)
	if *makeSeed {
		_, err = openFile(t, made).ExecContext(t.Context(), "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
		require.NoError(t, err)
		content, err := os.ReadFile(made)
		require.NoError(t, err)
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		require.NoError(t, err)
		_, err = w.Write(content)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile("seed.sqlite.gz", packed.Bytes(), 0o600))
		t.Skip("the seed is written: run the test without -make-seed")
	}
	planted := filepath.Join(t.TempDir(), "planted.db")
	dynamotest.StartEngine(t, dynamo.Config{DataFile: planted}).Stop(t.Context())
	require.Equal(t, schema(t, made), schema(t, planted))
}

// The queries that dynoxide makes of its stream, as its program has them.
var streamQueries = map[string]string{
	"the next number": "SELECT COALESCE(MAX(CAST(sequence_number AS INTEGER)), 0) + 1 FROM _stream_records WHERE table_name = ?1",
	"a poll": `FROM _stream_records
             WHERE table_name = ?1 AND shard_id = ?2 AND CAST(sequence_number AS INTEGER) > ?3
             ORDER BY CAST(sequence_number AS INTEGER) ASC
             LIMIT ?4`,
	"the range of a shard": "SELECT MIN(sequence_number), MAX(sequence_number) FROM _stream_records WHERE table_name = ?1 AND shard_id = ?2",
}

func TestTheStreamsQueriesUseTheIndex(t *testing.T) {
	t.Parallel()
	binary := find(t)
	program, err := os.ReadFile(binary)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "data.db")
	dynamotest.StartEngine(t, dynamo.Config{Binary: binary, DataFile: path}).Stop(t.Context())
	db := openFile(t, path)
	for name, query := range streamQueries {
		require.True(t, bytes.Contains(program, []byte(query)), "dynoxide asks otherwise for %s", name)
		if strings.HasPrefix(query, "FROM") {
			query = "SELECT event_name, keys_json, new_image, old_image, sequence_number, created_at, user_identity " + query
		}
		plan := planOf(t, db, query)
		require.Contains(t, plan, "INDEX inorder_stream (table_name=?", "%s: %s", name, plan)
		require.NotContains(t, plan, "TEMP B-TREE", name)
	}
}

func planOf(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, "T", "S", 1, 1)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		plan.WriteString(detail + "\n")
	}
	require.NoError(t, rows.Err())
	return plan.String()
}

// Records stay for 24 hours. What is older goes as new ones come, and numbers go on.
func TestStreamIsTrimmedAfterADay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data.db")
	e := dynamotest.StartEngine(t, dynamo.Config{DataFile: path})
	client, streams := dynamotest.Client(t, e.Endpoint()), dynamotest.Streams(t, e.Endpoint())
	arns := map[string]string{}
	for _, table := range []string{"Busy", "Quiet"} {
		arns[table] = createStreamed(t, client, table)
		for range 10 {
			putOne(t, client, table, 10)
		}
	}
	db := openFile(t, path)
	age := func(seconds int, where string) {
		_, err := db.ExecContext(t.Context(), "UPDATE _stream_records SET created_at = unixepoch() - ? WHERE "+where, seconds)
		require.NoError(t, err)
	}
	const day = 24 * 60 * 60
	age(day-60, "true")
	putOne(t, client, "Busy", 10)
	require.Equal(t, numbers(1, 11), sequences(t, streams, arns["Busy"]), "less than a day is no age")

	age(day+60, "true")
	putOne(t, client, "Busy", 10)
	require.Equal(t, numbers(3, 12), sequences(t, streams, arns["Busy"]), "two for each that comes")
	for range 8 {
		putOne(t, client, "Busy", 10)
	}
	require.Equal(t, numbers(12, 20), sequences(t, streams, arns["Busy"]))
	require.Equal(t, numbers(1, 10), sequences(t, streams, arns["Quiet"]), "nothing came there")

	// The last of a table stays, so that no number comes twice.
	for range 9 {
		putOne(t, client, "Quiet", 10)
		age(day+60, "table_name = 'Quiet'")
	}
	require.Equal(t, numbers(19, 19), sequences(t, streams, arns["Quiet"]))
	putOne(t, client, "Quiet", 10)
	require.Equal(t, numbers(20, 20), sequences(t, streams, arns["Quiet"]))
}

// Without a data file dynoxide works on one that has no name any more: also when it
// is larger than what SQLite's log holds (1,000 pages) and than its cache (2 MB).
func TestScratchFileHoldsMoreThanTheLog(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	arn := createStreamed(t, client, "Scratch")
	for range 200 {
		putOne(t, client, "Scratch", 100_000)
	}
	require.Len(t, sequences(t, dynamotest.Streams(t, endpoint), arn), 200)
}

func createStreamed(tb testing.TB, client *dynamodb.Client, table string) (streamARN string) {
	tb.Helper()
	out, err := client.CreateTable(tb.Context(), &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		StreamSpecification:  &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages},
	})
	require.NoError(tb, err)
	return *out.TableDescription.LatestStreamArn
}

func putOne(tb testing.TB, client *dynamodb.Client, table string, size int) {
	tb.Helper()
	_, err := client.PutItem(tb.Context(), &dynamodb.PutItemInput{TableName: &table, Item: map[string]types.AttributeValue{
		"id": &types.AttributeValueMemberS{Value: rand.Text()}, "x": &types.AttributeValueMemberS{Value: strings.Repeat("x", size)},
	}})
	require.NoError(tb, err)
}

// sequences are the sequence numbers that a stream of one shard has.
func sequences(t *testing.T, streams *dynamodbstreams.Client, arn string) []string {
	t.Helper()
	d, err := streams.DescribeStream(t.Context(), &dynamodbstreams.DescribeStreamInput{StreamArn: &arn})
	require.NoError(t, err)
	require.Len(t, d.StreamDescription.Shards, 1)
	it, err := streams.GetShardIterator(t.Context(), &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &arn, ShardId: d.StreamDescription.Shards[0].ShardId, ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon,
	})
	require.NoError(t, err)
	out, err := streams.GetRecords(t.Context(), &dynamodbstreams.GetRecordsInput{ShardIterator: it.ShardIterator})
	require.NoError(t, err)
	all := []string{}
	for _, r := range out.Records {
		all = append(all, *r.Dynamodb.SequenceNumber)
	}
	return all
}

func numbers(from, to int) []string {
	var all []string
	for ; from <= to; from++ {
		all = append(all, strconv.Itoa(from))
	}
	return all
}

// BenchmarkPut is one write to a table with a stream, by the number of records that
// are there already: with what seed.sql adds, and without, as the engine is by itself.
// The processor time is the engine's own, on Linux. UPSTREAM.md has the figures.
func BenchmarkPut(b *testing.B) {
	for _, records := range []int{1_000, 40_000} {
		for _, indexed := range []bool{true, false} {
			name := fmt.Sprintf("%d/without", records)
			if indexed {
				name = fmt.Sprintf("%d/indexed", records)
			}
			b.Run(name, func(b *testing.B) {
				client, path := withRecords(b, records, indexed)
				var all []time.Duration
				before := processorTime(path)
				for b.Loop() {
					began := time.Now()
					putOne(b, client, "Put", 300)
					all = append(all, time.Since(began))
				}
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64((processorTime(path)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// withRecords is an engine with so many records in its stream, and its data file.
func withRecords(b *testing.B, records int, indexed bool) (client *dynamodb.Client, path string) {
	b.Helper()
	path = filepath.Join(b.TempDir(), "data.db")
	e := dynamotest.StartEngine(b, dynamo.Config{DataFile: path})
	client = dynamotest.Client(b, e.Endpoint())
	createStreamed(b, client, "Put")
	const atOnce = 25
	for range records / atOnce {
		var batch []types.WriteRequest
		for range atOnce {
			batch = append(batch, types.WriteRequest{PutRequest: &types.PutRequest{Item: map[string]types.AttributeValue{
				"id": &types.AttributeValueMemberS{Value: rand.Text()}, "x": &types.AttributeValueMemberS{Value: strings.Repeat("x", 300)},
			}}})
		}
		_, err := client.BatchWriteItem(b.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"Put": batch}})
		require.NoError(b, err)
	}
	if indexed {
		return client, path
	}
	e.Stop(b.Context())
	_, err := openFile(b, path).ExecContext(b.Context(), "DROP TRIGGER inorder_trim; DROP INDEX inorder_stream")
	require.NoError(b, err)
	return dynamotest.Client(b, dynamotest.StartEngine(b, dynamo.Config{DataFile: path}).Endpoint()), path
}

// processorTime is what the engine with this data file has used, 0 where there is no /proc.
func processorTime(path string) time.Duration {
	const tick = 10 * time.Millisecond // of all Linux systems that Go runs on
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		command, _ := os.ReadFile(line)
		if !bytes.Contains(command, []byte(path)) || bytes.Contains(command, []byte("/bin/sh")) {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(line), "stat"))
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		return time.Duration(user+system) * tick
	}
	return 0
}
