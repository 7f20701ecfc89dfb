package store_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
)

// cannedGroups has groups of so many members each, who are called 0, 1, and so on.
func cannedGroups(members int) *canned {
	member := func(id, user string) string {
		return `{"conversationId":{"S":"` + id + `"},"userId":{"S":"` + user + `"},"role":{"S":"member"},"joinSeq":{"N":"1"},"joinedSeq":{"N":"1"}}`
	}
	roster := make([]chat.Member, members)
	for i := range roster {
		roster[i] = chat.Member{UserID: fmt.Sprint(i), JoinedSeq: 1}
	}
	hash := chat.RosterHash(roster)
	group, user := regexp.MustCompile(`group:\d+`), regexp.MustCompile(`"userId":{"S":"(\d+)"}`)
	return &canned{answer: func(op, request string) (int, string) {
		id := group.FindString(request)
		head := fmt.Sprintf(`{"Item":{"conversationId":{"S":%q},"kind":{"S":"group"},"lastSeq":{"N":"1"},"membersVersion":{"N":"1"},"hashedVersion":{"N":"1"},`+
			`"rosterHash":{"N":"%d"},"memberCount":{"N":"%d"},"state":{"S":"active"}}}`, id, hash, members)
		switch op {
		case "GetItem":
			return http.StatusOK, head
		case "TransactGetItems":
			return http.StatusOK, `{"Responses":[` + head + `,{"Item":` + member(id, user.FindStringSubmatch(request)[1]) + `}]}`
		case "Query":
			items := make([]string, members)
			for i := range items {
				items[i] = member(id, fmt.Sprint(i))
			}
			return http.StatusOK, `{"Items":[` + strings.Join(items, ",") + `]}`
		default:
			return http.StatusOK, `{}`
		}
	}}
}

// The roster is read when it costs no more than what was spent on single senders.
func TestARosterIsReadWhereItPays(t *testing.T) {
	t.Parallel()
	for members, alone := range map[int]int{2: 2, 188: 2, 189: 3, 1000: 10} {
		synctest.Test(t, func(t *testing.T) {
			d := cannedGroups(members)
			s := d.store()
			for sender := range min(members, 20) {
				n := len(d.calls)
				sendIn(t, s, fmt.Sprint(sender), "group:1", "1")
				got := d.reads(n)
				switch {
				case sender < alone:
					require.Equal(t, []string{"TransactGetItems"}, got, "sender %d of %d", sender, members)
				case sender == alone:
					require.Equal(t, []string{"GetItem", "Query"}, got, "sender %d of %d", sender, members)
				default:
					require.Subset(t, []string{"GetItem"}, got, "sender %d of %d", sender, members)
				}
			}
		})
	}
}

// What is known of members is bounded: beyond 16,384 of them all of it is forgotten,
// and learned again.
func TestKnownMembersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const members, most = 1000, 16_384
		d := cannedGroups(members)
		s := d.store()
		learn := func(group int) {
			for sender := range 11 { // the last of them reads the roster
				sendIn(t, s, fmt.Sprint(sender), chat.ConversationID(fmt.Sprint("group:", group)), "1")
			}
		}
		known := func(group int, key string) bool {
			n := len(d.calls)
			sendIn(t, s, "999", chat.ConversationID(fmt.Sprint("group:", group)), key)
			return !strings.Contains(strings.Join(d.reads(n), " "), "TransactGetItems")
		}
		for group := 1; group <= most/members; group++ {
			learn(group)
		}
		for group := 1; group <= most/members; group++ {
			require.True(t, known(group, "2"), "group %d", group)
		}
		learn(most/members + 1)
		require.False(t, known(1, "3"))
		learn(1)
		require.True(t, known(1, "4"))
	})
}
