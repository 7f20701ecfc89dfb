// Package table is what the store and its operators' part both know of DynamoDB: the
// tables, the keys and the items as they are stored, reads that ask for no one's right,
// and how long to wait before the same is tried again.
package table

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/chat"
)

// DB is a client of DynamoDB with the names of the tables, safe for concurrent use. Its
// fields are set before it is used.
type DB struct {
	*dynamodb.Client
	Names

	Now       func() time.Time
	Retention time.Duration // 0: messages are kept
	Pace      *Pace
	Log       *slog.Logger // of damaged items
}

// Names are the names of the tables.
type Names struct {
	Conversations string
	Messages      string
	Idempotency   string
	Members       string
	Inboxes       string
	Connections   string
	Lane          string
}

// Get reads one item, strongly consistent.
func (db *DB) Get(ctx context.Context, table string, key Item, into any) (found bool, err error) {
	out, err := db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		return false, fmt.Errorf("reading an item of %s: %w", table, err)
	}
	if out.Item == nil {
		return false, nil
	}
	return true, Unmarshal(out.Item, into)
}

// maxBatchGet is DynamoDB's limit of keys in one BatchGetItem.
const maxBatchGet = 100

// batchGetsAtOnce is how many requests of one BatchGet are under way at a time.
const batchGetsAtOnce = 8

// BatchGet reads items by key in as few requests as DynamoDB takes, side by side,
// and asks again for keys it left unprocessed. The items come in no order; with
// attributes, they have no others.
func (db *DB) BatchGet(ctx context.Context, table string, keys []Item, consistent bool, attributes ...string) ([]Item, error) {
	found, _, err := db.BatchGetPart(ctx, table, keys, consistent, attributes...)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// BatchGetPart is BatchGet which returns what it read, and the keys of what it could not
// read, beside an error, too.
func (db *DB) BatchGetPart(ctx context.Context, table string, keys []Item, consistent bool, attributes ...string) (found, unread []Item, err error) {
	chunks := slices.Collect(slices.Chunk(keys, maxBatchGet))
	parts, left := make([][]Item, len(chunks)), make([][]Item, len(chunks))
	var g errgroup.Group
	g.SetLimit(batchGetsAtOnce)
	for i, chunk := range chunks {
		g.Go(func() (err error) {
			parts[i], left[i], err = db.batchGetChunk(ctx, table, chunk, consistent, attributes)
			return err
		})
	}
	err = g.Wait()
	return slices.Concat(parts...), slices.Concat(left...), err
}

func (db *DB) batchGetChunk(ctx context.Context, table string, keys []Item, consistent bool, attributes []string) (found, unread []Item, err error) {
	projection, names := project(attributes)
	for attempt := 1; len(keys) > 0; attempt++ {
		out, err := db.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{
				table: {
					Keys: keys, ConsistentRead: aws.Bool(consistent),
					ProjectionExpression: projection, ExpressionAttributeNames: names,
				},
			},
		})
		if err != nil {
			return found, keys, err
		}
		found = append(found, out.Responses[table]...)
		keys = out.UnprocessedKeys[table].Keys
		if len(keys) > 0 && db.Pace.WaitRead(ctx, attempt, true) != nil {
			return found, keys, errUnfinished
		}
	}
	return found, nil, nil
}

// project returns a projection on attributes, none for all. Their names stand apart,
// since many are words of DynamoDB's own.
func project(attributes []string) (expression *string, names map[string]string) {
	if len(attributes) == 0 {
		return nil, nil
	}
	names = make(map[string]string, len(attributes))
	for _, a := range attributes {
		names["#"+a] = a
	}
	return aws.String("#" + strings.Join(attributes, ", #")), names
}

// errUnfinished is what BatchGetItem's callers report when keys stayed
// unprocessed: DynamoDB was throttling.
var errUnfinished = errors.New("DynamoDB did not process all keys of a batch in time")

// Transact runs a transaction of writes once. Where it was cancelled, that comes beside the
// error and says why; after another error it may yet be committed, see MayRetry.
func (db *DB) Transact(ctx context.Context, items []types.TransactWriteItem) (*types.TransactionCanceledException, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	start := time.Now()
	_, err := db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
	canceled, answered := errors.AsType[*types.TransactionCanceledException](err)
	if err == nil || answered {
		db.Pace.Observe(time.Since(start))
	}
	return canceled, err
}

// MaxTransactGet is DynamoDB's limit of items in one TransactGetItems.
const MaxTransactGet = 100

// TransactGet reads serialisably. A conflict means that one of the items is
// being written at this moment, so it waits for that to end.
func (db *DB) TransactGet(ctx context.Context, gets []types.TransactGetItem) (*dynamodb.TransactGetItemsOutput, error) {
	ctx, cancel := WithBudget(ctx)
	defer cancel()
	for attempt := 1; ; attempt++ {
		start := time.Now()
		out, err := db.TransactGetItems(ctx, &dynamodb.TransactGetItemsInput{TransactItems: gets})
		if err == nil {
			db.Pace.Observe(time.Since(start))
			return out, nil
		}
		throttled := false
		if canceled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
			if throttled, ok = MayPass(canceled.CancellationReasons); !ok {
				return nil, err
			}
		} else if !IsConflict(err) {
			return nil, err
		}
		if db.Pace.WaitRead(ctx, attempt, throttled) != nil {
			return nil, fmt.Errorf("%w: %w", chat.Errorf(chat.CodeBusy, "messages are being written right now; ask again"), err)
		}
	}
}
