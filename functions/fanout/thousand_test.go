package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/push"
)

// thousand is a world with the largest group there is, and messages of so many bytes.
func thousand(devices, messages, size int) *world {
	w := newWorld()
	for i := range chat.MaxGroupMembers {
		user := fmt.Sprint("user", i)
		w.member("group:a", user, 1)
		for d := range devices {
			w.online(user, fmt.Sprint(d))
		}
	}
	w.write("group:a", messages)
	for i := range w.ledgers["group:a"] {
		w.ledgers["group:a"][i].Text = strings.Repeat("x", size)
	}
	return w
}

// scale delivers to nobody, and notes how much memory is in use meanwhile.
type scale struct {
	*world

	frames int
	most   uint64 // bytes
}

func (s *scale) Deliver(_ context.Context, deliveries []push.Delivery) []push.Outcome {
	outcomes := make([]push.Outcome, len(deliveries))
	s.most = max(s.most, inUse())
	for i, d := range deliveries {
		for range d.Frames {
			s.frames++
		}
		if i%100 == 0 {
			s.most = max(s.most, inUse())
		}
	}
	runtime.KeepAlive(deliveries)
	return outcomes
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Where many members write, every device is to get something else: all but its own
// messages. What they get is not held for all of them at a time.
func TestG10_APushTakesTheMemoryOfItsMessagesOnce(t *testing.T) { //nolint:paralleltest // others would be weighed with it
	const messages, size = 5, 23_000 // more are told of only
	w := thousand(1, messages, size)
	for i := range w.ledgers["group:a"] {
		w.ledgers["group:a"][i].Via = fmt.Sprintf("user%d-0", i)
	}
	h, _ := w.handler()
	s := &scale{world: w}
	h.pusher = s
	before := inUse()
	h.follow(t.Context(), batchOf(changed("1", "group:a", 0, messages)))
	require.Equal(t, chat.MaxGroupMembers*messages-messages, s.frames)
	require.Less(t, s.most-before, uint64(8<<20), "bytes more than before, of 115 MB of frames")
}

// gateway is API Gateway, which takes so long for a post.
type gateway struct {
	latency time.Duration
	posted  func(connectionID string)
}

func (g gateway) Do(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	if g.latency > 0 {
		select {
		case <-time.After(g.latency):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if g.posted != nil {
		id, err := url.PathUnescape(path.Base(r.URL.Path))
		if err != nil {
			return nil, err
		}
		g.posted(id)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func (g gateway) pusher() *push.Pusher {
	return push.New(apigatewaymanagementapi.New(apigatewaymanagementapi.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("https://gateway.test/v1"), HTTPClient: g,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	}))
}

// A group whose news are more than the time allows to push takes no more than that time,
// and two who chat beside it hear of each other at once.
func TestG10_ALargeGroupsLargeMessagesKeepToTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := thousand(1, 5, 23_000)
		w.member("single:a", "alice", 1, "phone")
		w.member("single:a", "bob", 1, "phone")
		w.write("single:a", 1)
		h, log := w.handler()
		start := time.Now()
		var mu sync.Mutex
		var heard []time.Duration // by alice and bob
		posts := 0
		p := gateway{latency: 100 * time.Millisecond, posted: func(connectionID string) {
			mu.Lock()
			defer mu.Unlock()
			posts++
			if !strings.HasPrefix(connectionID, "user") {
				heard = append(heard, time.Since(start))
			}
		}}.pusher()
		h.pusher = p
		response := h.follow(t.Context(), batchOf(changed("1", "group:a", 0, 5), record("2", "single:a", 0, 1)))
		require.Empty(t, response.BatchItemFailures, "a push is a hint")
		require.Len(t, heard, 2)
		require.LessOrEqual(t, slices.Max(heard), 100*time.Millisecond)
		require.LessOrEqual(t, time.Since(start), pushBudget)
		require.Greater(t, posts, p.Parallel*40, "all the time was used")
		require.Less(t, posts, 5*chat.MaxGroupMembers)
		require.Contains(t, log.String(), `"PushFailures":`)
	})
}

// News that would take more posts than there is time for is told of by the head alone, so
// that all members are reached; up to there it comes whole.
func TestG5_NewsOfALargeGroupReachesAllItsMembers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		connected, messages int
		whole               bool
	}{
		{1000, 1, true},
		{1000, maxPosts / 1000, true},
		{1000, maxPosts/1000 + 1, false},
		{1000, 100, false},
		{maxPosts / 100, 100, true},
		{maxPosts/100 + 1, 100, false},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := thousand(1, tc.messages, 23_000)
				for i := range chat.MaxGroupMembers - tc.connected {
					delete(w.connections, fmt.Sprint("user", i))
				}
				h, log := w.handler()
				var mu sync.Mutex
				posts := map[string]int{}
				h.pusher = gateway{latency: 45 * time.Millisecond, posted: func(connectionID string) {
					mu.Lock()
					defer mu.Unlock()
					posts[connectionID]++
				}}.pusher()
				h.follow(t.Context(), batchOf(changed("1", "group:a", 0, int64(tc.messages))))
				require.Len(t, posts, tc.connected)
				for connectionID, n := range posts {
					require.Equal(t, map[bool]int{true: tc.messages, false: 1}[tc.whole], n, connectionID)
				}
				require.NotContains(t, log.String(), `"PushFailures":`)
			})
		})
	}
}

// Who was removed meanwhile is told as far as it may read.
func TestG9_ANotifyOfMuchNewsEndsWhereAMembershipDoes(t *testing.T) {
	t.Parallel()
	w := thousand(1, 6, 23_000)
	w.online("dave", "phone")
	w.membersEvent("group:a", 3, nil, []string{"dave"})
	removal := changed("1", "group:a", 0, 6)
	removal.Change.NewImage = head("group:a", 6, 2)
	failed, _ := w.handle(t, batchOf(removal))
	require.Empty(t, failed)
	require.Equal(t, []string{"notify group:a <3"}, w.got(t, "dave-phone"))
	require.Equal(t, []string{"notify group:a <6"}, w.got(t, "user500-0"))
}

// Of the groups in a batch those give way whose news spares most.
func TestG10_MuchNewsOfOneGroupLeavesThatOfOthersWhole(t *testing.T) {
	t.Parallel()
	w := thousand(1, 5, 23_000)
	for size, messages := range map[int]int{chat.InboxGroupMax: 300, chat.InboxGroupMax + 1: 2} {
		id := chat.ConversationID(fmt.Sprint("group:", size))
		for i := range size {
			w.member(id, fmt.Sprint(size, " ", i), 1, "phone")
		}
		w.write(id, messages)
		for i := range w.ledgers[id] {
			w.ledgers[id][i].Text = strings.Repeat("x", 23_000)
		}
	}
	failed, _ := w.handle(t, batchOf(changed("1", "group:a", 0, 5), changed("2", "group:20", 0, 300), changed("3", "group:21", 0, 2)))
	require.Empty(t, failed)
	require.Len(t, w.got(t, "20 7-phone"), 300, "a small one's is not counted")
	require.Equal(t, []string{"push group:21 1<2", "push group:21 2<2"}, w.got(t, "21 7-phone"))
	require.Equal(t, []string{"notify group:a <5"}, w.got(t, "user7-0"))
}

// What the fan-out itself takes for a message in the largest group there is: all but the
// time of DynamoDB and of API Gateway.
func BenchmarkAMessageToAThousand(b *testing.B) {
	for _, size := range []int{100, 23_000} {
		for _, devices := range []int{1, 16} {
			b.Run(fmt.Sprintf("%d bytes, %d devices each", size, devices), func(b *testing.B) {
				w := thousand(devices, 1, size)
				h, _ := w.handler()
				h.pusher = gateway{}.pusher()
				b.ReportAllocs()
				for b.Loop() {
					clear(w.asked)
					_, _, t := h.serve(b.Context(), []*conversation{{
						id: "group:a", news: chat.Range{From: 1, To: 1}, membersVersion: 1, membersBefore: chat.MaxGroupMembers,
					}}, hasty)
					require.Equal(b, chat.MaxGroupMembers*devices, t.pushes+t.unpushed)
				}
			})
		}
	}
}
