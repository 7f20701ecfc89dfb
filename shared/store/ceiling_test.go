package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/store/regiontest"
)

// ceiling is how fast a ledger can grow at all, whoever commits: group commits, one after
// the other without a pause, of a head and many entries, each in the partition that its
// seq belongs to.
type ceiling struct {
	region     *regiontest.Region
	bytes      int // of an entry
	together   int // entries in a transaction
	partitions int // that the entries are spread over in turn, a transaction's in one

}

// inRegion gives it a region of its own.
func (c ceiling) inRegion() *ceiling {
	c.region = regiontest.WithTables(regiontest.Usual())
	return &c
}

func (c *ceiling) partition(seq int64) string {
	if c.partitions == 1 {
		return "group:1"
	}
	return fmt.Sprintf("group:1#%d", (seq-1)/int64(c.together)%int64(c.partitions))
}

// commit writes the entries after last, as a group commit does: head, entries, records.
func (c *ceiling) commit(last int64) error {
	number := func(n int64) types.AttributeValue { return &types.AttributeValueMemberN{Value: fmt.Sprint(n)} }
	word := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	put := func(table string, item map[string]types.AttributeValue) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: item}}
	}
	items := []types.TransactWriteItem{put("Conversations", map[string]types.AttributeValue{
		"conversationId": word("group:1"), "lastSeq": number(last + int64(c.together)),
	})}
	for seq := last + 1; seq <= last+int64(c.together); seq++ {
		items = append(items,
			put("Messages", map[string]types.AttributeValue{
				"conversationId": word(c.partition(seq)), "seq": number(seq), "text": word(strings.Repeat("x", c.bytes)),
			}),
			put("Idempotency", map[string]types.AttributeValue{"dedupeKey": word(fmt.Sprint(seq))}))
	}
	_, err := c.region.Client().TransactWriteItems(context.Background(), &dynamodb.TransactWriteItemsInput{TransactItems: items})
	return err
}

// grow commits at a rate, or as fast as answers come if that is 0, and returns how many
// entries a second there were and how many commits the partitions put off.
func (c *ceiling) grow(t *testing.T, perSecond float64, span time.Duration) (rate float64, throttled int) {
	t.Helper()
	last := int64(0)
	start := time.Now()
	for time.Since(start) < span {
		if perSecond > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(float64(last) / perSecond * float64(time.Second)))))
		}
		err := c.commit(last)
		if canceled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
			require.True(t, slices.ContainsFunc(canceled.CancellationReasons, func(r types.CancellationReason) bool { return *r.Code == "ThrottlingError" }))
			throttled++
			time.Sleep(time.Second)
			continue
		}
		require.NoError(t, err)
		last += int64(c.together)
	}
	return float64(last) / time.Since(start).Seconds(), throttled
}

// How fast one conversation can be, as README.md has it: up to here its partition never
// throttles, a fifth above it does.
func TestALedgerGrowsAsFastAsItsPartition(t *testing.T) {
	t.Parallel()
	const span = 10 * time.Second
	for name, tc := range map[string]struct {
		ceiling
		perSecond float64
	}{
		"300 bytes":                            {ceiling{bytes: 650, together: 33, partitions: 1}, 500},
		"4,000 characters":                     {ceiling{bytes: 4350, together: 10, partitions: 1}, 100},
		"24 KB":                                {ceiling{bytes: 24000, together: 1, partitions: 1}, 20},
		"4,000 characters, in four partitions": {ceiling{bytes: 4350, together: 10, partitions: 4}, 400},
		"24 KB, in four partitions":            {ceiling{bytes: 24000, together: 3, partitions: 4}, 80},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, throttled := tc.inRegion().grow(t, tc.perSecond, span)
				require.Zero(t, throttled)
				_, throttled = tc.inRegion().grow(t, 1.2*tc.perSecond, span)
				require.Positive(t, throttled)
			})
		})
	}
}

// Where no partition is in the way, it is that commits come one after the other.
func TestALedgerGrowsAsFastAsCommitsFollowEachOther(t *testing.T) {
	t.Parallel()
	for together, perSecond := range map[int]float64{1: 91, 33: 1600} {
		synctest.Test(t, func(t *testing.T) {
			c := ceiling{bytes: 650, together: together, partitions: 4}
			rate, throttled := c.inRegion().grow(t, 0, 3*time.Second)
			require.Zero(t, throttled)
			require.InEpsilon(t, perSecond, rate, .05)
		})
	}
}
