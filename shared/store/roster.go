package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Roster reads the members of a conversation, strongly consistent, ordered by
// userId. A member whose item is damaged may read nothing.
func (s *Store) Roster(ctx context.Context, conversationID chat.ConversationID) ([]chat.Member, error) {
	var members []chat.Member
	for cursor := ""; ; {
		page, next, err := s.db.RosterPage(ctx, conversationID, cursor, chat.MaxGroupMembers)
		if err != nil {
			return nil, err
		}
		members = append(members, page...)
		if cursor = next; next == "" {
			return members, nil
		}
	}
}

// MemberPage is a page of a conversation's roster.
type MemberPage struct {
	Members        []chat.Member
	MembersVersion int64
	Next           string // the cursor of the next page, "" after the last
}

// MembersOf returns the roster, ordered by userId, at most limit members after the
// cursor. Only members of single conversations and groups may ask; a former one
// is told Forbidden, a stranger NotFound.
func (s *Store) MembersOf(ctx context.Context, userID string, conversationID chat.ConversationID, cursor string, limit int) (MemberPage, error) {
	v, err := s.view(ctx, userID, conversationID)
	if err != nil {
		return MemberPage{}, err
	}
	if v.Head.Kind == chat.KindSystem {
		return MemberPage{}, errReaders()
	}
	if v.LeftSeq != 0 {
		return MemberPage{}, errFormer()
	}
	members, next, err := s.db.RosterPage(ctx, conversationID, cursor, limit)
	if err != nil {
		return MemberPage{}, err
	}
	return MemberPage{Members: members, MembersVersion: v.Head.MembersVersion, Next: next}, nil
}

// MembersAmong reads a head and which of the users are members at it. Where they are more
// than one request takes, some of them may be so at a later head.
func (s *Store) MembersAmong(ctx context.Context, conversationID chat.ConversationID, userIDs []string) (head chat.Conversation, members map[string]bool, err error) {
	members = make(map[string]bool, len(userIDs))
	for chunk := range slices.Chunk(userIDs, table.MaxTransactGet-1) {
		gets := []types.TransactGetItem{{Get: &types.Get{TableName: &s.db.Conversations, Key: table.HeadKey(conversationID)}}}
		for _, id := range chunk {
			gets = append(gets, types.TransactGetItem{Get: &types.Get{TableName: &s.db.Members, Key: table.MemberKey(conversationID, id)}})
		}
		out, err := s.db.TransactGet(ctx, gets)
		if err != nil {
			return head, nil, fmt.Errorf("reading the head and %d members of %s: %w", len(chunk), conversationID, err)
		}
		if head.LastSeq == 0 {
			if err := table.Unmarshal(out.Responses[0].Item, &head); err != nil {
				return head, nil, err
			}
		}
		for i, id := range chunk {
			members[id] = out.Responses[i+1].Item != nil
		}
	}
	return head, members, nil
}

func errFormer() error {
	return chat.Errorf(chat.CodeForbidden, "you are no member of this conversation any more")
}

// errReaders refuses to tell the readers of a system conversation of each other.
func errReaders() error {
	return chat.Errorf(chat.CodeForbidden, "the readers of a system conversation are not told of each other")
}

// Rosters remembers rosters by conversation and version. A roster of a version
// never changes, so what it returns is at least as new as the version asked for.
type Rosters struct {
	store   *Store
	smaller bool // than crowds: no others
	mu      sync.Mutex
	known   map[chat.ConversationID]knownRoster
}

type knownRoster struct {
	version int64
	members []chat.Member
}

// maxKnownRosters bounds the memory: 256 rosters of 1,000 members are about 40 MB.
// When it is full it starts over, which costs one Query per conversation.
const maxKnownRosters = 256

// maxRosterReads is how often a roster is read that does not fit its head.
const maxRosterReads = 4

// ErrCrowd says that a conversation has become a crowd, whose roster is read in pages.
var ErrCrowd = errors.New("the conversation has become a crowd")

// NewRosters makes an empty memory of rosters.
func NewRosters(s *Store) *Rosters {
	return &Rosters{store: s, known: map[chat.ConversationID]knownRoster{}}
}

// NewSmallRosters makes one of rosters that are no crowds'. A crowd's is ErrCrowd.
func NewSmallRosters(s *Store) *Rosters {
	r := NewRosters(s)
	r.smaller = true
	return r
}

// At returns the roster of a conversation at this version or a later one. The
// caller must not change it.
//
// A Query can show a roster that is older than the head it was read after, while
// the transaction that changed both is being applied. So it is read until it is
// the one that the head says, and is not remembered otherwise.
func (r *Rosters) At(ctx context.Context, conversationID chat.ConversationID, version int64) ([]chat.Member, error) {
	r.mu.Lock()
	k, ok := r.known[conversationID]
	r.mu.Unlock()
	if ok && k.version >= version {
		return k.members, nil
	}
	for attempt := 1; ; attempt++ {
		head, _, err := r.store.head(ctx, conversationID)
		if err != nil {
			return nil, err
		}
		if head.IsCrowd() && r.smaller {
			return nil, ErrCrowd
		}
		members, err := r.store.Roster(ctx, conversationID)
		if err != nil {
			return nil, err
		}
		if head.IsRoster(members) && head.MembersVersion >= version {
			r.remember(conversationID, knownRoster{version: head.MembersVersion, members: members})
			return members, nil
		}
		if attempt == maxRosterReads {
			return members, nil // a head that is wrong must not stop the conversation
		}
		if err := r.store.db.Pace.WaitRead(ctx, attempt, false); err != nil {
			return nil, fmt.Errorf("waiting for the roster of %s: %w", conversationID, err)
		}
	}
}

func (r *Rosters) remember(conversationID chat.ConversationID, k knownRoster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxKnownRosters {
		clear(r.known)
	}
	if k.version >= r.known[conversationID].version {
		r.known[conversationID] = k
	}
}
