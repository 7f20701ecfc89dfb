package operate

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// AuditSample checks conversations picked at random until about so many messages
// were read, and some inbox lines. Of a large ledger it reads a random stretch.
func (o *Operator) AuditSample(ctx context.Context, messages int) (AuditReport, error) {
	a := o.newAudit()
	each := max(int64(messages)/5, auditPage)
	done := map[chat.ConversationID]bool{} // at most one for each message
	heads := sampler{db: o.db, table: o.db.Conversations, segments: firstSegments}
	for idle := 0; idle < idlePicks && len(done) < messages && a.report.Messages < int64(messages) && !timeIsUp(ctx); idle++ {
		items, err := heads.pick(ctx)
		if err != nil {
			return a.report, err
		}
		for _, id := range idsOf(items) {
			left := int64(messages) - a.report.Messages
			if done[id] || left <= 0 {
				continue
			}
			idle, done[id] = 0, true
			if _, err := a.conversation(ctx, id, min(each, left)); err != nil {
				return a.report, err
			}
		}
	}
	lines := sampler{db: o.db, table: o.db.Inboxes, segments: firstSegments}
	for range min(messages/auditPage, maxLinePicks) {
		items, err := lines.pick(ctx)
		if err == nil {
			err = a.lines(ctx, items)
		}
		if err != nil {
			return a.report, err
		}
	}
	return a.report, nil
}

// sampler picks items of a table at random: the first of a random segment of a Scan
// in many segments. DynamoDB divides by the hash of the partition key, so a
// segment's items have nothing else in common. The number of segments varies: with
// a fixed one, what is not among the first of its segment would never be picked.
type sampler struct {
	db       *table.DB
	table    string
	segments int32 // the most into which the table is divided: as many as leave few items in each
}

const (
	// firstSegments is where a sampler begins; Scan takes at most 1,000,000.
	firstSegments = 1 << 16
	// perPick bounds the items of one pick, so that a pick comes from one place only
	// in part.
	perPick = 10
	// idlePicks is after how many picks without anything new a sample ends: the
	// table is small and all of it was seen.
	idlePicks = 24
	// maxLinePicks bounds the inbox lines of one sample.
	maxLinePicks = 50
)

// pick returns some items, fewer than asked for or none if the table is empty. It
// halves the number of segments until one has something, and remembers that.
func (p *sampler) pick(ctx context.Context) ([]table.Item, error) {
	for {
		total := p.segments - rand.Int32N(max(1, p.segments/2)) //nolint:gosec // a sample is no secret
		out, err := p.db.Scan(ctx, &dynamodb.ScanInput{
			TableName:     &p.table,
			Limit:         aws.Int32(perPick),
			Segment:       aws.Int32(rand.Int32N(total)), //nolint:gosec // a sample is no secret
			TotalSegments: &total,
		})
		if err != nil {
			return nil, fmt.Errorf("sampling %s: %w", p.table, err)
		}
		if len(out.Items) > 0 || p.segments == 1 {
			rand.Shuffle(len(out.Items), func(i, j int) { //nolint:gosec // a sample is no secret
				out.Items[i], out.Items[j] = out.Items[j], out.Items[i]
			})
			return out.Items, nil
		}
		p.segments /= 2
	}
}
