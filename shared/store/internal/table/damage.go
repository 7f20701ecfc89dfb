package table

import (
	"context"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/metric"
)

// Damaged tells of an item that cannot be read. Whoever reads many items leaves it
// out and goes on, for one item that an operator or a restore has damaged must not
// stop all of its user's others (G10).
func (db *DB) Damaged(ctx context.Context, table string, in Item, err error) {
	attrs := []slog.Attr{slog.String("table", table)}
	for _, name := range []string{"conversationId", "userId", "seq"} { // of any table's key
		switch v := in[name].(type) {
		case *types.AttributeValueMemberS:
			attrs = append(attrs, slog.String(name, v.Value))
		case *types.AttributeValueMemberN:
			attrs = append(attrs, slog.String(name, v.Value))
		}
	}
	db.Log.LogAttrs(ctx, slog.LevelError, "an item is damaged",
		append(attrs, slog.Any("err", err), metric.Count(metric.InvariantItem, 1))...)
}
