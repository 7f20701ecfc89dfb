package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/regiontest"
)

// mortal is the connection of an environment that may die at any request, before or
// after it is done, more often at a transaction. From then on it does nothing.
type mortal struct {
	*hot
	perThousand int // at a transaction; a fifth of that at others
	dead        atomic.Bool
}

var errDead = errors.New("the environment is dead")

func (m *mortal) Do(req *http.Request) (*http.Response, error) {
	if m.dead.Load() {
		time.Sleep(time.Second)
		return nil, errDead
	}
	rate := m.perThousand
	if !strings.HasSuffix(req.Header.Get("X-Amz-Target"), "TransactWriteItems") {
		rate = (rate + 4) / 5
	}
	dies, before := rand.IntN(1000) < rate, rand.IntN(2) == 0
	if dies && before {
		m.dead.Store(true)
		return nil, errDead
	}
	resp, err := m.region.Do(req)
	if dies {
		m.dead.Store(true)
		return nil, errDead
	}
	return resp, err
}

func (m *mortal) store() *store.Store {
	return store.New(dynamodb.New(dynamodb.Options{
		Region: "us-east-1", HTTPClient: m, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	}), regiontest.Tables())
}

// plight is a crowd in a conversation.
type plight struct {
	senders, each, perThousand int
	gap                        time.Duration // between two sends of one sender, at most
	removed                    bool          // somebody is removed in the middle
}

// suffer lets the crowd send, each again with the same clientMsgId until it is acked,
// and returns what is wrong in the end.
func (p plight) suffer(t *testing.T) (problem string) {
	h := newHot(t, p.senders+1)
	var mu sync.Mutex
	acked := map[string]store.Committed{}
	var all sync.WaitGroup
	for i := range p.senders {
		all.Go(func() {
			last := int64(0)
			for n := range p.each {
				time.Sleep(rand.N(p.gap))
				id := fmt.Sprintf("%d-%d", i, n)
				r, err := p.send(h, who(i), id)
				mu.Lock()
				switch {
				case err != nil:
					problem = err.Error()
				case r.Seq <= last:
					problem = fmt.Sprintf("%s is seq %d, and its sender's former message %d", id, r.Seq, last)
				}
				last = r.Seq
				acked[id] = r
				mu.Unlock()
			}
		})
	}
	events := 1
	if p.removed {
		events++
		time.Sleep(p.gap)
		for _, err := h.store().RemoveMembers(t.Context(), by(who(0), "remove"), h.group, []string{who(p.senders)}); err != nil; {
			if !isBusy(err) {
				return err.Error()
			}
			_, err = h.store().RemoveMembers(t.Context(), by(who(0), "remove"), h.group, []string{who(p.senders)})
		}
	}
	all.Wait()
	if problem != "" {
		return problem
	}
	if _, err := p.send(h, who(0), "last"); err != nil { // what is left in the lane comes along
		return err.Error()
	}
	return p.judge(ledger(t, h.store(), who(0), h.group), events, acked)
}

// send is one client's, to an environment that is still alive each time.
func (p plight) send(h *hot, sender, id string) (store.Committed, error) {
	for range 100 {
		m := &mortal{hot: h, perThousand: p.perThousand}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		r, err := m.store().Append(ctx, chatIn(text(sender, id, "text of "+id), h.group), "")
		cancel()
		switch {
		case m.dead.Load(): // nobody heard the answer
		case err == nil:
			return r, nil
		case !isBusy(err):
			return r, fmt.Errorf("%s of %s: %w", id, sender, err)
		}
		time.Sleep(rand.N(500 * time.Millisecond))
	}
	return store.Committed{}, fmt.Errorf("%s of %s was never acked", id, sender)
}

func (p plight) judge(all []chat.Message, events int, acked map[string]store.Committed) string {
	seen := map[string]int64{}
	for i, m := range all {
		switch {
		case m.Seq != int64(i+1):
			return fmt.Sprintf("seq %d is at place %d", m.Seq, i+1)
		case m.Event != nil:
			continue
		case seen[m.ClientMsgID] != 0:
			return fmt.Sprintf("%s is seq %d and %d", m.ClientMsgID, seen[m.ClientMsgID], m.Seq)
		}
		seen[m.ClientMsgID] = m.Seq
		if r, ok := acked[m.ClientMsgID]; ok && (r.Seq != m.Seq || r.MessageID != m.MessageID) {
			return fmt.Sprintf("%s was acked as %v and is %s at %d", m.ClientMsgID, r, m.MessageID, m.Seq)
		}
	}
	if len(all) != events+p.senders*p.each+1 {
		return fmt.Sprintf("%d messages and events for %d", len(all), events+p.senders*p.each+1)
	}
	return ""
}

// However many come, and whoever dies at whatever step: nothing is lost, nothing comes
// twice, no seq is left out, and each sender's own come in its order.
func TestG1G2G3G4_TheLaneWithThoseWhoDie(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		p := plight{
			senders:     rapid.IntRange(2, 6).Draw(r, "senders"),
			each:        rapid.IntRange(1, 3).Draw(r, "each"),
			perThousand: rapid.SampledFrom([]int{0, 20, 100, 300}).Draw(r, "dying of 1,000"),
			gap:         time.Duration(rapid.IntRange(1, 60).Draw(r, "gap")) * time.Millisecond,
			removed:     rapid.Bool().Draw(r, "removed"),
		}
		problem := ""
		synctest.Test(t, func(t *testing.T) { problem = p.suffer(t) })
		require.Empty(r, problem)
	})
}

// Two of a hundred who combine die, and all others are served in time.
func TestG10_TheDeadDoNotHoldUpTheLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := plight{senders: 40, each: 10, perThousand: 20, gap: 400 * time.Millisecond}
		require.Empty(t, p.suffer(t))
	})
}

// In a conversation where everyone writes, somebody can still be removed, and the others
// go on.
func TestG9G10_ARemovalGetsThroughAHotLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHot(t, 40)
		var all sync.WaitGroup
		all.Go(func() { h.open(200, 39, 3*time.Second) })
		time.Sleep(time.Second)
		start := time.Now()
		must(t)(h.store().RemoveMembers(t.Context(), by(who(0), "remove"), h.group, []string{who(39)}))
		require.Less(t, time.Since(start), 2*time.Second)
		all.Wait()
		require.Less(t, at(h.all(), .99), 300*time.Millisecond)
		messages := ledger(t, h.store(), who(0), h.group)
		requireDense(t, messages, len(h.all())+2)
	})
}
