package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

// ordered is a round in the queue, and how long it waits there.
type ordered struct {
	round
	delay time.Duration
}

func (w *world) Crowd(_ context.Context, id chat.ConversationID) (chat.Conversation, bool, error) {
	head := w.heads[id]
	head.ConversationID, head.LastSeq = id, int64(len(w.ledgers[id]))
	return head, w.rosters[id] != nil, w.rosterErr[id]
}

func (w *world) MembersAmong(context.Context, chat.ConversationID, []string) (chat.Conversation, map[string]bool, error) {
	panic("the roster is as the stream told")
}

func (w *world) CrowdPage(_ context.Context, id chat.ConversationID, cursor string, limit int) ([]chat.Member, string, error) {
	if err := w.rosterErr[id+" after "+chat.ConversationID(cursor)]; err != nil {
		return nil, "", err
	}
	all := slices.SortedFunc(slices.Values(w.rosters[id]), func(a, b chat.Member) int { return cmp.Compare(a.UserID, b.UserID) })
	all = slices.DeleteFunc(all, func(m chat.Member) bool { return m.UserID <= cursor })
	if len(all) <= limit {
		return all, "", nil
	}
	return all[:limit], all[limit-1].UserID, nil
}

// orders is a queue of rounds.
type orders struct {
	list []ordered
	err  error
}

func (o *orders) Deliver(_ context.Context, body string, delay time.Duration) error {
	var r round
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return err
	}
	if o.err == nil {
		o.list = append(o.list, ordered{r, delay})
	}
	return o.err
}

// inCrowd makes a record one of a crowd whose pushAt changes so.
func inCrowd(r events.DynamoDBEventRecord, before, after int64) events.DynamoDBEventRecord {
	for image, at := range map[string]int64{"old": before, "new": after} {
		in := r.Change.NewImage
		if image == "old" {
			in = r.Change.OldImage
		}
		in["memberCount"] = events.NewNumberAttribute(fmt.Sprint(chat.MaxGroupMembers + 1))
		if at != 0 {
			in["pushAt"] = events.NewNumberAttribute(fmt.Sprint(at))
		}
	}
	return r
}

func (w *world) follow(t *testing.T, o *orders, event events.DynamoDBEvent) (failed []string) {
	t.Helper()
	w.tell(event)
	h, _ := w.handler()
	h.rounds = o
	for _, f := range h.follow(t.Context(), event).BatchItemFailures {
		failed = append(failed, f.ItemIdentifier)
	}
	return failed
}

// The stream's function reads nothing of a crowd: it orders the rounds that begin.
func TestACrowdsRoundsAreOrderedAsItsHeadSays(t *testing.T) {
	t.Parallel()
	w, o := newWorld(), &orders{}
	w.rosterErr["group:a"] = errors.New("the roster of a crowd was read")
	w.entriesErr["group:a"] = errors.New("the entries of a crowd were read")
	require.Empty(t, w.follow(t, o, batchOf(
		inCrowd(record("1", "group:a", 4, 5), 1, now-100),
		inCrowd(record("2", "group:a", 5, 6), now-100, now+29_001),
		inCrowd(record("3", "group:a", 6, 7), now+29_001, now+29_001),
		inCrowd(record("4", "group:b", 6, 7), 0, 0),
	)))
	require.ElementsMatch(t, []ordered{
		{round{Crowd: "group:a", FromSeq: 5}, 0},
		{round{Crowd: "group:a", FromSeq: 6}, 30 * time.Second},
		{round{Crowd: "group:b", FromSeq: 7}, 0},
	}, o.list)
	require.Empty(t, w.raised)
	require.Empty(t, w.looked)
}

// Those who are out hear of it at once, as do those who came before it was a crowd.
func TestACrowdsComingAndGoingIsTold(t *testing.T) {
	t.Parallel()
	w, o := newWorld(), &orders{}
	for _, user := range []string{"gone", "came", "both", "back", "alice"} {
		w.online(user, "phone")
	}
	w.write("group:a", 9)
	w.membersEvent("group:a", 6, []string{"came", "both"}, nil)
	w.membersEvent("group:a", 7, nil, []string{"gone", "both", "back"})
	w.membersEvent("group:a", 8, []string{"back"}, nil)
	change := inCrowd(record("1", "group:a", 4, 9), 1, now)
	change.Change.NewImage["membersVersion"] = events.NewNumberAttribute("4")
	require.Empty(t, w.follow(t, o, batchOf(change)))
	require.Len(t, o.list, 1)
	list := []chat.ConversationID{"group:a"}
	require.Equal(t, map[string][]chat.ConversationID{"gone": list, "both": list, "came": list, "back": list}, w.raised)
	require.Equal(t, map[listing]bool{
		{"gone", "group:a"}: false, {"both", "group:a"}: false, {"came", "group:a"}: true, {"back", "group:a"}: true,
	}, w.listed)
	require.Equal(t, []string{"push group:a 5,6,7<7"}, w.got(t, "gone-phone"))
	require.Equal(t, []string{"push group:a 6,7<7"}, w.got(t, "both-phone"))
	require.Equal(t, []string{"push group:a 6,7,8,9<9"}, w.got(t, "came-phone"))
	require.Equal(t, []string{"push group:a 8,9<9"}, w.got(t, "back-phone"))
	require.Empty(t, w.got(t, "alice-phone"), "the round tells the others")
}

// A small conversation that became a crowd before it was told of is on the list of each
// who was there, whether the batch says so or the head by now.
func TestASmallConversationThatBecameACrowd(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]bool{"in the batch": true, "since": false} {
		w, o := newWorld(), &orders{}
		for i := range 700 {
			w.member("group:a", fmt.Sprintf("user%03d", i), 1)
			w.rosters["group:a"][i].JoinedSeq = 20 // quietly, since then
		}
		w.member("group:a", "early", 1)
		w.rosters["group:a"][700].JoinedSeq = 3
		w.member("group:a", "gone", 1) // which the roster does not show yet
		w.rosters["group:a"][701].JoinedSeq = 3
		w.write("group:a", 9)
		w.membersEvent("group:a", 6, []string{"came"}, nil)
		w.membersEvent("group:a", 7, nil, []string{"gone"})
		change := record("1", "group:a", 4, 9)
		if told {
			change = inCrowd(change, 0, now)
		} else {
			w.rosterErr["group:a"] = store.ErrCrowd
		}
		change.Change.OldImage["memberCount"] = events.NewNumberAttribute("20")
		change.Change.NewImage["membersVersion"] = events.NewNumberAttribute("4")
		require.Empty(t, w.follow(t, o, batchOf(change)), name)
		require.Equal(t, []ordered{{round{Crowd: "group:a", FromSeq: 5}, 0}}, o.list, name)
		require.Equal(t, map[listing]bool{{"early", "group:a"}: true, {"came", "group:a"}: true, {"gone", "group:a"}: false}, w.listed, name)
		require.Len(t, w.raised, 3, name)
	}
}

// A round that cannot be ordered fails its conversation, which is set aside, and orders
// one at once when it comes back.
func TestARoundThatCannotBeOrdered(t *testing.T) {
	t.Parallel()
	w, o := newWorld(), &orders{err: errors.New("no queue")}
	require.Empty(t, w.follow(t, o, batchOf(inCrowd(record("1", "group:a", 4, 5), now-1, now+20_000))))
	require.Len(t, w.aside, 1)
	body, err := json.Marshal(w.aside[0])
	require.NoError(t, err)
	o.err = nil
	h, _ := w.handler()
	h.rounds = o
	require.NoError(t, h.retryOne(t.Context(), string(body)))
	require.Equal(t, []ordered{{round{Crowd: "group:a", FromSeq: 5}, 0}}, o.list)
}

// One who is out and could not be looked up is tried again without the round.
func TestG10_ARoundIsNotOrderedAgainForOneWhoIsOut(t *testing.T) {
	t.Parallel()
	for name, members := range map[string]int64{"a crowd": chat.MaxGroupMembers + 1, "a crowd since then": chat.MaxGroupMembers} {
		synctest.Test(t, func(t *testing.T) {
			w, o := newWorld(), &orders{}
			w.online("gone", "phone")
			w.write("group:a", 9)
			w.membersEvent("group:a", 7, nil, []string{"gone"})
			change := inCrowd(record("1", "group:a", 4, 9), 1, now)
			change.Change.NewImage["membersVersion"] = events.NewNumberAttribute("4")
			change.Change.NewImage["memberCount"] = events.NewNumberAttribute(fmt.Sprint(members))
			w.rosterErr["group:a after "] = nil
			w.rosterErr["group:a"] = store.ErrCrowd
			w.hidden = "gone"
			h, _ := w.handler()
			h.rounds, h.store = o, settled{w}
			h.follow(t.Context(), batchOf(change))
			require.Len(t, w.aside, 1, name)
			require.Len(t, o.list, 1, name)
			w.hidden = ""
			clear(w.asked)
			clear(w.raised)
			require.NoError(t, h.again(t.Context(), w.aside[0]))
			require.Len(t, w.aside, 1, name)
			require.Len(t, o.list, 1, name)
			require.Equal(t, []string{"push group:a 5,6,7<7"}, w.got(t, "gone-phone"), name)
		})
	}
}

// settled is a world whose rosters are as the stream told.
type settled struct{ *world }

func (settled) Crowd(context.Context, chat.ConversationID) (chat.Conversation, bool, error) {
	return chat.Conversation{}, false, nil
}

func (w *world) deliver(t *testing.T, o *orders, r round) error {
	t.Helper()
	h, _ := w.handler()
	h.rounds = o
	body, err := json.Marshal(r)
	require.NoError(t, err)
	return h.retryOne(t.Context(), string(body))
}

// crowd is a world with a crowd of n members of whom every tenth is connected.
func crowd(n int) *world {
	w := newWorld()
	for i := range n {
		user := fmt.Sprintf("user%05d", i)
		w.member("group:a", user, 1)
		if i%10 == 0 {
			w.online(user, "phone")
		}
	}
	return w
}

func TestARoundReachesAllWhoAreConnected(t *testing.T) {
	t.Parallel()
	w, o := crowd(2100), &orders{}
	w.member("group:a", "aaron", 9, "phone")
	w.member("group:a", "zoe", 12, "phone") // reads from what is yet to come
	w.write("group:a", 11)
	require.NoError(t, w.deliver(t, o, round{Crowd: "group:a", FromSeq: 8}))
	for i := 0; i < 2100; i += 10 {
		require.Equal(t, []string{"push group:a 8,9,10,11<11"}, w.got(t, fmt.Sprintf("user%05d-phone", i)))
	}
	require.Equal(t, []string{"push group:a 9,10,11<11"}, w.got(t, "aaron-phone"))
	require.Empty(t, w.got(t, "zoe-phone"))
	require.Empty(t, o.list)
	require.Empty(t, w.raised)
}

// One whose connections cannot be read misses a round; the others do not hear of it again
// and again, and those after it are not kept from it.
func TestG10_ARoundPassesOverWhomItCannotLookUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, o := crowd(1100), &orders{}
		w.write("group:a", 2)
		w.hidden = "user00010"
		require.NoError(t, w.deliver(t, o, round{Crowd: "group:a", FromSeq: 2}))
		for i := 0; i < 1100; i += 10 {
			require.Equal(t, i != 10, len(w.got(t, fmt.Sprintf("user%05d-phone", i))) == 1, i)
		}
		require.Empty(t, o.list)
		w.connErr = errors.New("no table")
		w.hidden = ""
		require.NoError(t, w.deliver(t, o, round{Crowd: "group:a", FromSeq: 2}))
		require.Len(t, o.list, 1, "where nobody can be looked up it is tried again")
	})
}

// The sample is a round as the queue hands it over.
func TestTheSampleOfARound(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../events/deliver.json")
	require.NoError(t, err)
	const id = "group:01K5A0Q3V7R2M9X4C8B6N1T0WZ"
	w := newWorld()
	w.member(id, "alice", 1, "phone")
	w.write(id, 42)
	h, log := w.handler()
	h.rounds = &orders{}
	_, err = h.handle(t.Context(), raw)
	require.NoError(t, err)
	require.Equal(t, []string{"push " + id + " 41,42<42"}, w.got(t, "alice-phone"))
	require.Contains(t, log.String(), `"msg":"round"`)
}

// What is more than a frame is told by the head alone.
func TestARoundOfTooMuchIsNoMoreThanANotify(t *testing.T) {
	t.Parallel()
	for name, big := range map[string]bool{"many": false, "large": true} {
		w := crowd(20)
		w.write("group:a", 101)
		from := int64(1)
		if big {
			from = 98
			for i := range w.ledgers["group:a"] {
				w.ledgers["group:a"][i].Data = make([]byte, 10_000)
			}
		}
		require.NoError(t, w.deliver(t, &orders{}, round{Crowd: "group:a", FromSeq: from}), name)
		require.Equal(t, []string{"notify group:a <101"}, w.got(t, "user00010-phone"), name)
	}
}

// A roster that is read while a removal is being applied still has who is out.
func TestG9_ARoundTellsNothingToWhoWasRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.member("group:a", "gone", 1, "phone")
	w.member("group:a", "back", 1, "phone")
	w.rosters["group:a"][1].JoinedSeq = 6
	w.write("group:a", 7)
	w.membersEvent("group:a", 5, nil, []string{"gone", "back"})
	require.NoError(t, w.deliver(t, &orders{}, round{Crowd: "group:a", FromSeq: 4}))
	require.Empty(t, w.got(t, "gone-phone"))
	require.NotEmpty(t, w.got(t, "back-phone"))
}

// What fails goes on from where it came to, and is given up in the end.
func TestARoundThatFailsGoesOn(t *testing.T) {
	t.Parallel()
	w, o := crowd(1200), &orders{}
	w.write("group:a", 3)
	w.rosterErr["group:a after user00999"] = errors.New("throttled")
	require.NoError(t, w.deliver(t, o, round{Crowd: "group:a", FromSeq: 2}))
	rest := round{Crowd: "group:a", FromSeq: 2, ToSeq: 3, Cursor: "user00999", Attempts: 1}
	require.Equal(t, []ordered{{rest, time.Second}}, o.list)
	clear(w.asked)
	require.NoError(t, w.deliver(t, o, rest))
	require.Equal(t, 2*time.Second, o.list[1].delay)
	rest.Attempts = maxRoundAttempts
	clear(w.asked)
	require.Error(t, w.deliver(t, o, rest))
	require.Len(t, o.list, 2)
	delete(w.rosterErr, "group:a after user00999")
	w.write("group:a", 1) // of another round
	clear(w.asked)
	require.NoError(t, w.deliver(t, o, rest))
	for i := 0; i < 1200; i += 10 {
		require.Equal(t, []string{"push group:a 2,3<3"}, w.got(t, fmt.Sprintf("user%05d-phone", i)))
	}

	for _, r := range []round{{Crowd: "group:none", FromSeq: 1}, {Crowd: "group:a", FromSeq: 9}} {
		require.NoError(t, w.deliver(t, o, r), "nothing to tell")
	}
}

// Where rounds take longer than the gap between them they wait in the queue. The first
// tells all there is; what waited with it has nothing to add, and holds up no other crowd.
func TestG10_RoundsThatWaitedDoNotPileUp(t *testing.T) {
	t.Parallel()
	w, o := crowd(20), &orders{}
	h, _ := w.handler()
	h.rounds = o
	deliver := func(r round) {
		t.Helper()
		clear(w.asked)
		require.NoError(t, h.deliver(t.Context(), r))
	}
	got := func() []string {
		t.Helper()
		defer clear(w.frames)
		return w.got(t, "user00010-phone")
	}
	w.write("group:a", 5)
	for from := range int64(5) {
		deliver(round{Crowd: "group:a", FromSeq: from + 1})
	}
	require.Equal(t, []string{"push group:a 1,2,3,4,5<5"}, got())
	w.write("group:a", 2)
	deliver(round{Crowd: "group:a", FromSeq: 5})
	require.Equal(t, []string{"push group:a 6,7<7"}, got())
	deliver(round{Crowd: "group:a", FromSeq: 2, ToSeq: 4, Cursor: "user00001"})
	require.Equal(t, []string{"push group:a 2,3,4<4"}, got(), "one that is on its way goes on")

	t.Run("but what comes out of order is told", func(t *testing.T) {
		h.told = &told{}
		deliver(round{Crowd: "group:a", FromSeq: 6})
		deliver(round{Crowd: "group:a", FromSeq: 4})
		require.Equal(t, []string{"push group:a 6,7<7", "push group:a 4,5,6,7<7"}, got())
	})
	t.Run("and what failed", func(t *testing.T) {
		w.write("group:a", 1)
		w.rosterErr["group:a after "] = errors.New("throttled")
		deliver(round{Crowd: "group:a", FromSeq: 8})
		delete(w.rosterErr, "group:a after ")
		require.Empty(t, got())
		deliver(round{Crowd: "group:a", FromSeq: 8})
		require.Equal(t, []string{"push group:a 8<8"}, got())
	})
}

// A round keeps to its budget of posts, and to its time: the rest is another one.
func TestARoundKeepsToItsBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, o := crowd(6000), &orders{}
		w.write("group:a", 1)
		h, _ := w.handler()
		h.rounds, h.postsPerSecond = o, 10
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		start := time.Now()
		require.NoError(t, h.deliver(ctx, round{Crowd: "group:a", FromSeq: 1}))
		require.GreaterOrEqual(t, time.Since(start), 45*time.Second)
		require.Less(t, time.Since(start), 55*time.Second)
		require.Equal(t, []ordered{{round{Crowd: "group:a", FromSeq: 1, ToSeq: 1, Cursor: "user04999"}, 0}}, o.list)
	})
}
