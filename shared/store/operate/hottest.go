package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

const (
	// lately is how long before the first look a conversation was written to that may be
	// hot.
	lately = time.Minute

	// maxCandidates bounds how many heads are looked at again, those written to last.
	maxCandidates = 10_000

	readsAtOnce = 16
)

// Hot is a conversation that grew between two looks.
type Hot struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Kind           chat.Kind           `json:"kind"`
	Title          string              `json:"title,omitempty"`
	MemberCount    int                 `json:"memberCount"`
	LastSeq        int64               `json:"lastSeq"`
	Grown          int64               `json:"grown"` // entries since the first look
	PerSecond      float64             `json:"perSecond"`
	FullInMs       int64               `json:"fullInMs"` // until its bucket is full again; see store.WithConversationRate
}

// Hottest returns at most limit conversations that grew between two looks, the fastest
// first. It reads all heads, calls wait, and reads those again that were written to in
// the last minute before, at most 10,000 of them.
func (o *Operator) Hottest(ctx context.Context, limit int, wait func(context.Context) error) ([]Hot, error) {
	first := o.db.Now()
	before := map[chat.ConversationID]chat.Conversation{}
	err := o.ChangedBetween(ctx, first.Add(-lately).UnixMilli(), chat.MaxSeq, func(head chat.Conversation) error {
		before[head.ConversationID] = head
		if len(before) > 2*maxCandidates {
			forgetOldest(before)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	forgetOldest(before)
	first = o.db.Now()
	if err := wait(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the second look: %w", err)
	}
	var mu sync.Mutex
	var hot []Hot
	g, reads := errgroup.WithContext(ctx)
	g.SetLimit(readsAtOnce)
	for id, was := range before {
		g.Go(func() error {
			var head chat.Conversation
			found, err := o.db.Get(reads, o.db.Conversations, table.HeadKey(id), &head)
			if errors.Is(err, table.ErrDamaged) {
				o.db.Damaged(ctx, o.db.Conversations, table.HeadKey(id), err)
				return nil
			}
			if now := o.db.Now(); found && head.LastSeq > was.LastSeq {
				mu.Lock()
				defer mu.Unlock()
				hot = append(hot, hotOf(head, head.LastSeq-was.LastSeq, now.Sub(first), now))
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(hot, func(a, b Hot) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(a.ConversationID, b.ConversationID))
	})
	return hot[:min(len(hot), limit)], nil
}

func hotOf(head chat.Conversation, grown int64, span time.Duration, now time.Time) Hot {
	return Hot{
		ConversationID: head.ConversationID, Kind: head.Kind, Title: head.Title, MemberCount: head.MemberCount,
		LastSeq: head.LastSeq, Grown: grown, PerSecond: float64(grown) / max(span, time.Millisecond).Seconds(),
		FullInMs: max(0, time.UnixMicro(head.FullAt).Sub(now)).Milliseconds(),
	}
}

// forgetOldest keeps the heads that were written to last.
func forgetOldest(heads map[chat.ConversationID]chat.Conversation) {
	if len(heads) <= maxCandidates {
		return
	}
	var times []int64
	for _, head := range heads {
		times = append(times, head.UpdatedAt)
	}
	slices.Sort(times)
	oldest := times[len(times)-maxCandidates]
	for id, head := range heads {
		if head.UpdatedAt < oldest {
			delete(heads, id)
		}
	}
}
