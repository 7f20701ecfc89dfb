package store_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/inorder-im/inorder/infra/local/template"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// A kindOfItem is what README.md has a table of attributes for. Its heading, or the
// bold text before the table, begins so.
type kindOfItem struct{ begins, table, sortKey string }

func kindsOfItems(tables store.Tables) []kindOfItem {
	return []kindOfItem{
		{"## A head", tables.Conversations, ""},
		{"## An entry", tables.Messages, ""},
		{"## An idempotency record", tables.Idempotency, ""},
		{"## A roster item", tables.Members, ""},
		{"## A line", tables.Inboxes, "$"},
		{"**`#`, the sync head**", tables.Inboxes, "#"},
		{"**`#second`, the second page**", tables.Inboxes, "#second"},
		{"**`#large`**", tables.Inboxes, "#large"},
		{"**`#limit:r`, `#limit:w`, `#limit:c`**", tables.Inboxes, "#limit:"},
		{"**`#quota:groups:", tables.Inboxes, "#quota:groups:"},
		{"## Connections of a user", tables.Connections, ""},
		{"## The lane", tables.Lane, ""},
	}
}

// is reports whether the item is of this kind.
func (k kindOfItem) is(in map[string]types.AttributeValue) bool {
	id, _ := in["conversationId"].(*types.AttributeValueMemberS)
	switch {
	case k.sortKey == "":
		return true
	case k.sortKey == "$": // of a conversation
		_, ok := chat.ConversationID(id.Value).Kind()
		return ok
	case strings.HasSuffix(k.sortKey, ":"):
		return strings.HasPrefix(id.Value, k.sortKey)
	}
	return id.Value == k.sortKey
}

func dataModel(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(raw)
}

// rowsAfter are the rows of the first table after a text, by their first cell
// without code marks.
func rowsAfter(t *testing.T, document, begins string) map[string][]string {
	t.Helper()
	_, rest, found := strings.Cut(document, "\n"+begins)
	require.True(t, found, "README.md has nothing that begins with %s", begins)
	rows := map[string][]string{}
	inside := false
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if inside {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if name := strings.Trim(cells[0], "`"); inside && !strings.HasPrefix(name, "---") {
			require.NotContains(t, rows, name, "twice after %s", begins)
			rows[name] = cells
		}
		inside = true
	}
	require.NotEmpty(t, rows)
	return rows
}

// What is in the tables after everything was done that writes to them is what the
// data model says, attribute by attribute.
func TestDataModelHasEveryAttribute(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	writeEverything(t, c)
	document := dataModel(t)
	for _, table := range []string{
		c.Tables.Conversations, c.Tables.Messages, c.Tables.Idempotency, c.Tables.Members, c.Tables.Inboxes, c.Tables.Connections, c.Tables.Lane,
	} {
		out, err := c.DB.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table})
		require.NoError(t, err)
		require.Empty(t, out.LastEvaluatedKey)
		for _, k := range kindsOfItems(c.Tables) {
			if k.table != table {
				continue
			}
			rows, written := rowsAfter(t, document, k.begins), map[string]bool{}
			for _, in := range out.Items {
				if !k.is(in) {
					continue
				}
				for name, value := range in {
					written[name] = true
					require.Contains(t, rows, name, "%s is written, of %s", name, k.begins)
					for _, inner := range innerNames(name, value) {
						require.Regexp(t, `\{[^}]*\b`+inner+`\b[^}]*\}`, strings.Join(rows[name], " "), "%s.%s", name, inner)
					}
				}
			}
			require.ElementsMatch(t, slices.Collect(maps.Keys(rows)), slices.Collect(maps.Keys(written)), k.begins)
		}
		for _, in := range out.Items {
			require.True(t, slices.ContainsFunc(kindsOfItems(c.Tables), func(k kindOfItem) bool { return k.table == table && k.is(in) }),
				"an item that the data model does not have: %v", in)
		}
	}
}

// innerNames are the names inside an attribute, where these are our own and not
// those of frames, of a head, of an entry or of conversations.
func innerNames(name string, value types.AttributeValue) []string {
	if slices.Contains([]string{"at", "long", "event", "leftHead", "message"}, name) {
		return nil
	}
	switch v := value.(type) {
	case *types.AttributeValueMemberM:
		return slices.Collect(maps.Keys(v.Value))
	case *types.AttributeValueMemberL:
		var all []string
		for _, element := range v.Value {
			all = append(all, innerNames(name, element)...)
		}
		return all
	}
	return nil
}

// writeEverything writes each attribute there is at least once.
func writeEverything(t *testing.T, c *cloud) {
	t.Helper()
	ctx := t.Context()
	s := store.New(dynamodb.New(c.Options(nil)), c.Tables,
		store.WithRetention(24*time.Hour), store.WithQuotas(store.Quotas{GroupsPerDay: 10}), store.WithConversationRate(500))
	m := text("ann", "m1", "hello")
	m.SenderDeviceID, m.ClientTime = "phone", 1
	first := must(t)(s.Append(ctx, m, "bob"))
	answer := chat.Message{
		SenderID: "bob", ClientMsgID: "m2", MessageType: chat.TypeCustom, Data: []byte(`{"a":1}`),
		ReplyTo: &chat.ReplyTo{Seq: first.Seq, MessageID: first.MessageID},
	}
	must(t)(s.Append(ctx, answer, "ann"))

	c.Set(c.Tables.Conversations, convKey(first.ConversationID), values{"laneUntil": farFuture})
	w := &wire{Rule: func(op string, n int) fault {
		if op == "TransactWriteItems" && n == 1 {
			return throttled
		}
		return none
	}}
	send(t, c.Store(w), "ann", "bob", "put off first")
	leaveIntent(t, c, text("bob", "m6", "left behind"), "ann")

	id := newGroup(t, s, chat.VisibleSinceJoin, "ann", "bob", "cy")
	target := func(r store.Committed) store.Target {
		return store.Target{ConversationID: id, Seq: r.Seq, MessageID: r.MessageID}
	}
	sent := must(t)(s.Append(ctx, chat.Message{
		ConversationID: id, SenderID: "ann", ClientMsgID: "m3", MessageType: chat.TypeImage, Text: "look", Data: []byte(`{"a":1}`),
	}, ""))
	edited := store.Edited{Version: 1, Text: "look!", Data: []byte(`{"a":2}`)}
	must(t)(s.Edit(ctx, by("ann", "edit"), target(sent), edited, store.NoWindow))
	recalled := sendIn(t, s, "ann", id, "m4")
	must(t)(s.Recall(ctx, by("ann", "recall"), target(recalled), store.NoWindow))
	must(t)(s.Leave(ctx, by("bob", "leave"), id))
	sendIn(t, s, "ann", id, "m5")
	must(t)(s.AddMembers(ctx, by("ann", "back"), id, []string{"bob"})) // so bob's line has a past
	must(t)(s.Leave(ctx, by("cy", "leave"), id))
	_, err := operate.New(s).RaiseHead(ctx, id, 5)
	require.NoError(t, err)

	crowd := newGroup(t, s, chat.VisibleAll, "eve")
	c.Set(c.Tables.Conversations, convKey(crowd), values{"memberCount": chat.MaxGroupMembers + 1})
	sendIn(t, c.Store(nil), "eve", crowd, "m6")

	var ids []chat.ConversationID
	for i := range 40 { // until some are evicted
		ids = append(ids, chat.ConversationID(fmt.Sprintf("group:%d", i)))
	}
	raise(t, s, "ann", append(ids, chat.SystemID(strings.Repeat("k", 60))))
	// An overgrown sync head, of an earlier version, is cleared: so it has a base.
	overgrown := map[chat.ConversationID]any{}
	for _, id := range ids {
		overgrown[id] = 1
	}
	c.Put(c.Tables.Inboxes, map[string]any{"userId": "dan", "conversationId": "#", "v": 40, "floor": 0, "at": overgrown, "long": map[string]any{}})
	raise(t, s, "dan", []chat.ConversationID{"group:new"})

	for i := range 250 {
		require.NoError(t, s.Enlist(ctx, "ann", chat.ConversationID(fmt.Sprintf("group:%d", i))))
	}
	require.ErrorIs(t, s.Enlist(ctx, "ann", "group:one-too-many"), store.ErrLargeFull)

	wait, err := s.Charge(store.RequestWrites)(ctx, "ann", limit.Rate{PerSecond: 1, Burst: 1}, 1, time.Now())
	require.NoError(t, err)
	require.Zero(t, wait)
	_, err = s.Connect(ctx, "ann", store.Connection{ID: "c", DeviceID: "phone", ConnectedAt: time.Now().UnixMilli()})
	require.NoError(t, err)
}

// The bounds in the data model are those of the domain, where it has them.
func TestDataModelHasBoundsOfTheDomain(t *testing.T) {
	t.Parallel()
	document := dataModel(t)
	for _, c := range []struct {
		says  string
		bound int
	}{
		{"up to %d runs on end", chat.MaxRuns},
		{"At most %d KB. No seq", chat.MaxMessageBytes >> 10},
		{"events that edited the entry, at most %d", chat.MaxEdits},
		{"`{from, to}`, the last %d", chat.MaxPastStretches},
		{"conversations of up to %d members raise it", chat.InboxGroupMax},
		{"conversations of more than %d members", chat.InboxGroupMax},
		{"of more than %d members: not raised", chat.InboxGroupMax},
		{"at most %d devices", store.MaxDevices},
	} {
		require.Contains(t, document, fmt.Sprintf(c.says, c.bound))
	}
}

// The table of tables is template.yaml's.
func TestDataModelHasEveryTable(t *testing.T) {
	t.Parallel()
	stack, err := storetest.TheStack()
	require.NoError(t, err)
	want := map[string][]string{}
	for _, table := range stack.Tables {
		row := []string{"`" + table.LogicalID + "`", "", "", "", ""}
		for i, key := range table.Key {
			at := slices.IndexFunc(table.Attributes, func(a template.Attribute) bool { return a.Name == key.Name })
			row[1+i] = "`" + key.Name + "` " + table.Attributes[at].Type
		}
		if table.TTLAttribute != "" {
			row[3] = "`" + table.TTLAttribute + "`"
		}
		if table.StreamView != "" {
			row[4] = "stream `" + table.StreamView + "`"
		}
		for _, index := range table.Indexes {
			row[4] += "index `" + index.Name + "`"
		}
		want[table.LogicalID] = row
	}
	rows := rowsAfter(t, dataModel(t), "| table | partition key")
	for name := range rows {
		rows[name] = rows[name][:5] // without what it holds
	}
	require.Equal(t, want, rows)
}

// Who reads and who writes is what template.yaml lets each function do.
func TestDataModelHasEveryRight(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../template.yaml")
	require.NoError(t, err)
	var stack struct {
		Resources map[string]struct {
			Type       string `yaml:"Type"`
			Properties struct {
				Policies []struct {
					Statement []struct {
						Action   yaml.Node `yaml:"Action"`
						Resource string    `yaml:"Resource"`
					} `yaml:"Statement"`
				} `yaml:"Policies"`
			} `yaml:"Properties"`
		} `yaml:"Resources"`
	}
	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal(raw, &doc))
	chosen(&doc)
	require.NoError(t, doc.Decode(&stack))
	document := dataModel(t)
	columns := strings.Split(regexp.MustCompile(`\| function \|(.*)\|`).FindStringSubmatch(document)[1], "|")
	want := map[string][]string{}
	for id, r := range stack.Resources {
		if r.Type != "AWS::Serverless::Function" {
			continue
		}
		name := strings.ToLower(strings.TrimSuffix(id, "Function"))
		row := []string{"`" + name + "`"}
		for _, column := range columns {
			var may []string
			for _, p := range r.Properties.Policies {
				for _, s := range p.Statement {
					if table, ok := strings.CutSuffix(s.Resource, ".Arn"); ok && table == strings.TrimSpace(column) {
						may = append(may, rightsIn(t, s.Action)...)
					}
				}
			}
			slices.Sort(may)
			row = append(row, strings.Join(slices.Compact(may), ", "))
		}
		want[name] = row
	}
	require.Equal(t, want, rowsAfter(t, document, "| function |"))
}

// chosen puts what a condition chooses where it is true in the place of the choice.
func chosen(n *yaml.Node) {
	if n.Tag == "!If" {
		*n = *n.Content[1]
	}
	for _, c := range n.Content {
		chosen(c)
	}
}

func rightsIn(t *testing.T, actions yaml.Node) []string {
	t.Helper()
	list := []string{actions.Value}
	if actions.Kind == yaml.SequenceNode {
		require.NoError(t, actions.Decode(&list))
	}
	for i, action := range list {
		switch action {
		case "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query", "dynamodb:Scan":
			list[i] = "read"
		case "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem":
			list[i] = "write"
		default:
			require.Fail(t, "a right that is neither to read nor to write", action)
		}
	}
	return list
}
