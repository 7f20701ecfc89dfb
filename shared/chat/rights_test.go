package chat_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
)

// TestRights is the table of the package documentation. For what is done to
// another member, each cell lists the roles it may be done to.
func TestRights(t *testing.T) {
	t.Parallel()
	type cells struct{ owner, admin, plain string }
	const everyone = "owner admin member"
	for action, want := range map[chat.Action]cells{
		chat.ActSend:     {everyone, everyone, everyone},
		chat.ActLeave:    {everyone, everyone, everyone},
		chat.ActRecall:   {"admin member", "member", ""},
		chat.ActAdd:      {everyone, everyone, ""},
		chat.ActRemove:   {"admin member", "member", ""},
		chat.ActSetTitle: {everyone, everyone, ""},
		chat.ActSetRole:  {everyone, "", ""},
		chat.ActDissolve: {everyone, "", ""},
		"juggle":         {},
	} {
		for actor, cell := range map[chat.Role]string{chat.RoleOwner: want.owner, chat.RoleAdmin: want.admin, chat.RolePlain: want.plain} {
			for _, target := range []chat.Role{chat.RoleOwner, chat.RoleAdmin, chat.RolePlain} {
				allowed := strings.Contains(" "+cell+" ", " "+string(target)+" ")
				require.Equal(t, allowed, actor.May(action, target), "%s: %s, to %s", actor, action, target)
			}
		}
	}
}

// The documentation's table says what the code does: a yes or no for each role.
func TestTheDocumentedRightsAreTheRights(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	actions := map[string]chat.Action{
		"send, reply": chat.ActSend, "recall another's": chat.ActRecall, "add members": chat.ActAdd,
		"remove members": chat.ActRemove, "change the title": chat.ActSetTitle, "change a role": chat.ActSetRole,
		"dissolve": chat.ActDissolve, "leave": chat.ActLeave,
	}
	for line := range strings.Lines(string(doc)) {
		for label, action := range actions {
			rest, ok := strings.CutPrefix(line, "//\t"+label+" ")
			if !ok {
				continue
			}
			delete(actions, label)
			columns := strings.Fields(rest)
			require.GreaterOrEqual(t, len(columns), 3, line)
			for i, role := range []chat.Role{chat.RoleOwner, chat.RoleAdmin, chat.RolePlain} {
				says := strings.TrimSuffix(columns[i], "*")
				require.Contains(t, []string{"yes", "no"}, says, line)
				require.Equal(t, says == "yes", role.May(action, chat.RolePlain), "%s: %s", label, role)
			}
		}
	}
	require.Empty(t, actions, "not in the table")
}

func TestSuccessor(t *testing.T) {
	t.Parallel()
	member := func(id string, role chat.Role, joined int64) chat.Member {
		return chat.Member{UserID: id, Role: role, JoinedAt: joined}
	}
	owner := member("owner", chat.RoleOwner, 1)
	for name, tc := range map[string]struct {
		members []chat.Member
		next    string // "" is no one
	}{
		"nobody else":                       {[]chat.Member{owner}, ""},
		"nobody at all":                     {nil, ""},
		"the first member":                  {[]chat.Member{member("b", chat.RolePlain, 3), owner, member("c", chat.RolePlain, 2)}, "c"},
		"an admin before earlier members":   {[]chat.Member{member("a", chat.RolePlain, 1), member("z", chat.RoleAdmin, 9), owner}, "z"},
		"the first admin":                   {[]chat.Member{owner, member("a", chat.RoleAdmin, 5), member("b", chat.RoleAdmin, 4), member("c", chat.RolePlain, 1)}, "b"},
		"members who joined together":       {[]chat.Member{member("c", chat.RolePlain, 1), member("b", chat.RolePlain, 1), owner}, "b"},
		"admins who joined together":        {[]chat.Member{member("c", chat.RoleAdmin, 2), member("b", chat.RoleAdmin, 2), member("a", chat.RolePlain, 1), owner}, "b"},
		"the owner joined first and is out": {[]chat.Member{owner, member("z", chat.RolePlain, 1000)}, "z"},
	} {
		next, ok := chat.Successor(tc.members, "owner")
		require.Equal(t, tc.next != "", ok, name)
		require.Equal(t, tc.next, next.UserID, name)
	}
}

func TestValidateTitle(t *testing.T) {
	t.Parallel()
	for title, code := range map[string]chat.Code{
		"a":                      "",
		" padded ":               "",
		strings.Repeat("字", 100): "",
		strings.Repeat("😀", 100): "",
		strings.Repeat("字", 101): chat.CodeTooLarge,
		"":                       chat.CodeBadRequest,
		" \t\u2003":              chat.CodeBadRequest,
		"two\nlines":             chat.CodeBadRequest,
		"a bell\a":               chat.CodeBadRequest,
		"a next line\u0085":      chat.CodeBadRequest,
		"not UTF-8 \xff":         chat.CodeBadRequest,
	} {
		requireRefusal(t, code, "title", chat.ValidateTitle("title", title), title)
	}
}

func TestValidateMembers(t *testing.T) {
	t.Parallel()
	many := func(n int) []string {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprint("user", i)
		}
		return ids
	}
	for name, tc := range map[string]struct {
		ids  []string
		code chat.Code
	}{
		"one":                     {[]string{"bob"}, ""},
		"any characters":          {[]string{"bob", "Bob", "bob ", "字", `"`, "a:b|c"}, ""},
		"as many as allowed":      {many(chat.MaxRosterChange), ""},
		"one more":                {many(chat.MaxRosterChange + 1), chat.CodeLimit},
		"101":                     {many(101), chat.CodeLimit},
		"nobody":                  {nil, chat.CodeBadRequest},
		"an empty list":           {[]string{}, chat.CodeBadRequest},
		"one twice":               {[]string{"bob", "cy", "bob"}, chat.CodeBadRequest},
		"an empty id":             {[]string{"bob", ""}, chat.CodeBadRequest},
		"128 bytes":               {[]string{strings.Repeat("u", 128)}, ""},
		"129 bytes":               {[]string{strings.Repeat("u", 129)}, chat.CodeBadRequest},
		"a control character":     {[]string{"b\x00b"}, chat.CodeBadRequest},
		"an id that is not UTF-8": {[]string{"b\xffb"}, chat.CodeBadRequest},
	} {
		err := chat.ValidateMembers("members", tc.ids)
		requireRefusal(t, tc.code, "members", err, name)
		if tc.code == chat.CodeLimit {
			var refusal *chat.Error
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, chat.MaxRosterChange, refusal.Details["max"], name)
		}
	}
}

// requireRefusal checks the code and the field of an error, or that there is
// none if the code is "".
func requireRefusal(t *testing.T, code chat.Code, field string, err error, about string) {
	t.Helper()
	if code == "" {
		require.NoError(t, err, "%q", about)
		return
	}
	var refusal *chat.Error
	require.ErrorAs(t, err, &refusal, "%q", about)
	require.Equal(t, code, refusal.Code, "%q", about)
	require.Equal(t, field, refusal.Field, "%q", about)
}

// A change of as many members as are allowed, and what comes with it, fits one
// transaction: 100 items (Amazon DynamoDB API Reference, TransactWriteItems).
func TestChangesFitATransaction(t *testing.T) {
	t.Parallel()
	const headMessageRecord, target = 3, 1
	require.LessOrEqual(t, headMessageRecord+2*chat.MaxRosterChange, 100)
	require.LessOrEqual(t, headMessageRecord+target+chat.MaxEdits, 100)
}
