package store

import (
	"context"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"inorder/shared/chat"
)

// Roster reads the members of a conversation, strongly consistent, ordered by
// userId.
func (s *Store) Roster(ctx context.Context, conversationID string) ([]chat.Member, error) {
	var members []chat.Member
	pages := dynamodb.NewQueryPaginator(s.db, &dynamodb.QueryInput{
		TableName:                 &s.tables.Members,
		KeyConditionExpression:    aws.String("conversationId = :c"),
		ExpressionAttributeValues: item{":c": str(conversationID)},
		ConsistentRead:            aws.Bool(true),
	})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the roster of %s: %w", conversationID, err)
		}
		for _, in := range out.Items {
			var m chat.Member
			if err := unmarshal(in, &m); err != nil {
				return nil, err
			}
			members = append(members, m)
		}
	}
	return members, nil
}

// Rosters remembers rosters by conversation and version. A roster of a version
// never changes, so what it gives is at least as new as the version asked for.
type Rosters struct {
	store *Store
	mu    sync.Mutex
	known map[string]knownRoster
}

type knownRoster struct {
	version int64
	members []chat.Member
}

// maxKnownRosters bounds the memory: 256 rosters of 200 members are about 8 MB.
// When it is full it starts over, which costs one Query per conversation.
const maxKnownRosters = 256

// NewRosters makes an empty memory of rosters.
func NewRosters(s *Store) *Rosters {
	return &Rosters{store: s, known: map[string]knownRoster{}}
}

// At gives the roster of a conversation at this version or a later one. The
// caller must not change it.
func (r *Rosters) At(ctx context.Context, conversationID string, version int64) ([]chat.Member, error) {
	r.mu.Lock()
	k, ok := r.known[conversationID]
	r.mu.Unlock()
	if ok && k.version >= version {
		return k.members, nil
	}
	members, err := r.store.Roster(ctx, conversationID)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxKnownRosters {
		clear(r.known)
	}
	if version >= r.known[conversationID].version {
		r.known[conversationID] = knownRoster{version: version, members: members}
	}
	return members, nil
}
