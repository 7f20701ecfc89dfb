package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Requests are the kinds of them that are limited apart.
type Requests string

// The kinds of requests.
const (
	RequestReads      Requests = "r"
	RequestWrites     Requests = "w"
	RequestHandshakes Requests = "c"
)

// Refused are the requests of a kind that were refused.
func (r Requests) Refused() Requests { return r + "x" }

const (
	// limitKey begins the sort keys of a user's buckets, one for each kind of
	// requests, among the user's inbox lines. A user has an item only after having
	// come near the limit once.
	limitKey = "#limit:"

	// chargeTimeout bounds a charge, which a request waits for.
	chargeTimeout = time.Second

	// maxCharges is how often a charge is tried that others come before.
	maxCharges = 4
)

// Charge returns the bucket that a user's requests of one kind share in all
// environments. A charge is one write of one unit, or two if the bucket was full
// and when others come in between. A user who is refused is told to ask again when
// half a burst is back, so that many environments do not ask for each token.
//
// The item has one number: when the bucket will be full again, in µs. Charging n
// tokens puts that off by the time in which n come in, and is possible as long as
// it does not become longer than a burst takes.
func (s *Store) Charge(kind Requests) limit.Charge {
	return func(ctx context.Context, userID string, rate limit.Rate, n int, now time.Time) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, chargeTimeout)
		defer cancel()
		burst := micros(rate, rate.Burst)
		c := charge{key: table.LineKey(userID, chat.ConversationID(limitKey+string(kind))), now: now.UnixMicro(), cost: micros(rate, n)}
		c.latest, c.never = c.now+burst-c.cost, c.now+2*burst
		full := false // as long as nothing else is known
		for range maxCharges {
			fullAt, err := s.charge(ctx, c, full)
			switch {
			case err != nil:
				return 0, fmt.Errorf("charging the bucket %s of %s: %w", kind, userID, err)
			case fullAt == 0:
				return 0, nil
			case fullAt > c.latest && fullAt <= c.never:
				return time.Duration(fullAt-min(burst/2, burst-c.cost)-c.now) * time.Microsecond, nil
			}
			full = fullAt < c.now || fullAt > c.never
		}
		return 0, errors.New("others charged the bucket each time")
	}
}

// micros is the time in which n tokens come in, rounded up.
func micros(rate limit.Rate, n int) int64 {
	return int64(math.Ceil(float64(n) / rate.PerSecond * 1e6))
}

// charge is what one attempt to charge a bucket needs. Times are in µs.
type charge struct {
	key               table.Item
	now, cost, latest int64
	never             int64 // that late only a clock that is wrong fills a bucket: it would shut the user out until then
}

// charge charges a bucket that is full, or one that is not, and returns 0. Where the
// bucket is otherwise, or has too little, it returns when it will be full; 1 is long
// ago.
func (s *Store) charge(ctx context.Context, c charge, full bool) (fullAt int64, err error) {
	in := &dynamodb.UpdateItemInput{
		TableName:                           &s.db.Inboxes,
		Key:                                 c.key,
		UpdateExpression:                    aws.String("SET fullAt = fullAt + :cost"),
		ConditionExpression:                 aws.String("fullAt BETWEEN :now AND :latest"),
		ExpressionAttributeValues:           table.Item{":cost": table.Num(c.cost), ":now": table.Num(c.now), ":latest": table.Num(c.latest)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if full {
		in.UpdateExpression = aws.String("SET fullAt = :then")
		in.ConditionExpression = aws.String("attribute_not_exists(fullAt) OR fullAt < :now OR fullAt > :never")
		in.ExpressionAttributeValues = table.Item{":then": table.Num(c.now + c.cost), ":now": table.Num(c.now), ":never": table.Num(c.never)}
	}
	_, err = s.db.UpdateItem(ctx, in)
	failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return 0, err
	}
	var old struct {
		FullAt int64 `json:"fullAt"`
	}
	err = table.Unmarshal(failed.Item, &old)
	if err != nil {
		return 0, err
	}
	return max(old.FullAt, 1), nil
}
