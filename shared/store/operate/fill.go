package operate

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// batchWriteMax is DynamoDB's limit of items in one BatchWriteItem.
const batchWriteMax = 25

// Filled is how many items Fill has copied so far, by table.
type Filled struct {
	Members       int64 `json:"members"`
	Inboxes       int64 `json:"inboxes"`
	Idempotency   int64 `json:"idempotency"`
	Conversations int64 `json:"conversations"`
	Messages      int64 `json:"messages"`

	Damaged int64 `json:"damaged"` // sync heads that cannot be read, and are left out: devices then read their whole list once
}

// syncHeadJump is by how much Fill raises sync heads: by more than a user can have
// heard of between the time of the restored tables and now.
const syncHeadJump = 1 << 32

// FillOptions are how Fill goes about it.
type FillOptions struct {
	Act   bool // without it Fill only counts
	Again bool // overwrites what is there, after a run that broke off
}

// Fill copies all items of other tables, such as restored ones, into the tables of
// this store, which nobody may use meanwhile; connections are left out, as devices
// connect anew. Tables that are not empty are refused, unless it is done again: then
// what has the same key is overwritten.
//
// Sync heads jump, so that every device is told everything once. The number that a
// device has heard of is above that of its restored sync head, and would not
// always be when the device comes: what was told under the numbers between would
// pass it by.
//
// It takes a read of each item, half a unit per 4 KB, and a write, a unit per KB.
// The fan-out, which hears of every head, passes over heads that appear with more
// than a first message.
func (o *Operator) Fill(ctx context.Context, from store.Tables, how FillOptions, progress func(Filled)) (Filled, error) {
	var done Filled
	steps := []struct {
		from, to string
		count    *int64
	}{
		{from.Members, o.db.Members, &done.Members},
		{from.Inboxes, o.db.Inboxes, &done.Inboxes},
		{from.Idempotency, o.db.Idempotency, &done.Idempotency},
		{from.Conversations, o.db.Conversations, &done.Conversations},
		{from.Messages, o.db.Messages, &done.Messages},
	}
	for _, step := range steps {
		if step.from == step.to {
			return done, fmt.Errorf("table %s is to be filled from itself", step.to)
		}
		if err := o.fillable(ctx, step.from, step.to, how.Again); err != nil {
			return done, err
		}
	}
	for _, step := range steps {
		err := o.copyTable(ctx, step.from, step.to, how.Act, func(n, damaged int) {
			*step.count += int64(n)
			done.Damaged += int64(damaged)
			progress(done)
		})
		if err != nil {
			return done, fmt.Errorf("copying table %s to %s: %w", step.from, step.to, err)
		}
	}
	return done, nil
}

// fillable refuses a table that is not empty, and one that is filled from another kind of
// table: rosters and inboxes, say, are made of the same attributes.
func (o *Operator) fillable(ctx context.Context, from, to string, again bool) error {
	var keys [2]string
	for i, name := range []string{from, to} {
		out, err := o.db.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
		if err != nil {
			return fmt.Errorf("looking at table %s: %w", name, err)
		}
		for _, k := range out.Table.KeySchema {
			keys[i] += " " + aws.ToString(k.AttributeName)
		}
	}
	if keys[0] != keys[1] {
		return fmt.Errorf("table %s is not of the same kind as %s: its key is%s, not%s", from, to, keys[0], keys[1])
	}
	out, err := o.db.Scan(ctx, &dynamodb.ScanInput{TableName: &to, Limit: aws.Int32(1)})
	if err != nil {
		return fmt.Errorf("looking into table %s: %w", to, err)
	}
	if len(out.Items) > 0 && !again {
		return fmt.Errorf("table %s is not empty", to)
	}
	return nil
}

func (o *Operator) copyTable(ctx context.Context, from, to string, act bool, copied func(n, damaged int)) error {
	pages := dynamodb.NewScanPaginator(o.db, &dynamodb.ScanInput{TableName: &from})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(page.Items, batchWriteMax) {
			items := slices.DeleteFunc(chunk, func(in table.Item) bool {
				err := jump(in)
				if err != nil {
					o.db.Damaged(ctx, from, in, err)
				}
				return err != nil
			})
			if act {
				if err := o.putAll(ctx, to, items); err != nil {
					return err
				}
			}
			copied(len(items), len(chunk)-len(items))
		}
	}
	return nil
}

// jump raises an item that is a sync head, so that each device reads the whole list.
func jump(in table.Item) error {
	id, _ := in["conversationId"].(*types.AttributeValueMemberS)
	if id == nil || id.Value != table.SyncHeadKey || in["v"] == nil { // without v it has told of nothing yet
		return nil
	}
	var head table.SyncHead
	if err := table.Unmarshal(in, &head); err != nil {
		return err
	}
	jumped, none := table.Num(head.V+syncHeadJump), &types.AttributeValueMemberM{Value: table.Item{}}
	in["v"], in["floor"], in["base"] = jumped, jumped, jumped
	in[table.AtField], in[table.LongField] = none, none
	return nil
}

// putAll writes at most batchWriteMax items, and goes on until DynamoDB has taken
// all of them.
func (o *Operator) putAll(ctx context.Context, into string, items []table.Item) error {
	requests := make([]types.WriteRequest, len(items))
	for i, in := range items {
		requests[i] = types.WriteRequest{PutRequest: &types.PutRequest{Item: in}}
	}
	for attempt := 1; len(requests) > 0; attempt++ {
		out, err := o.db.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{into: requests},
		})
		if err != nil && !table.IsThrottle(err) {
			return err
		}
		if err == nil {
			requests = out.UnprocessedItems[into]
		}
		if len(requests) > 0 {
			if err := o.db.Pace.WaitRead(ctx, attempt, true); err != nil {
				return err
			}
		}
	}
	return nil
}
