// Package store is the only place that speaks DynamoDB: the ledgers, the
// idempotency records, the rosters, the inboxes and the connections, each in a
// table of its own. README.md beside this file has every attribute of them.
//
// # The life of one message
//
// Append reads the conversation's head, unless this process wrote it last and
// still knows it, and commits one transaction: the head's lastSeq goes up by one
// on condition that it, the roster's version and the state are as read; the
// message is put under the new seq; the idempotency record is put on condition
// that there is none. So seq is dense, a retry finds its first result, and a
// crash leaves all three or none.
//
// The head's change reaches the fan-out by the table's stream, and the fan-out
// reads the message by its seq. A device that missed the push finds the
// conversation in its user's sync head (Changes) and the message by Sync.
package store

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/env"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Tables are the names of the tables.
type Tables = table.Names

// TablesFromEnv reads the table names from the variables that template.yaml
// gives every function. The error names those that are missing.
func TablesFromEnv(getenv func(string) string) (Tables, error) {
	e := env.From(getenv)
	name := func(variable string) string { return e.Text(variable, "a table's name") }
	t := Tables{
		Conversations: name("CONVERSATIONS_TABLE"),
		Messages:      name("MESSAGES_TABLE"),
		Idempotency:   name("IDEMPOTENCY_TABLE"),
		Members:       name("MEMBERS_TABLE"),
		Inboxes:       name("INBOXES_TABLE"),
		Connections:   name("CONNECTIONS_TABLE"),
		Lane:          name("LANE_TABLE"),
	}
	if err := e.Err(); err != nil {
		return Tables{}, err
	}
	return t, nil
}

// Store reads and writes the tables. It is safe for concurrent use.
type Store struct {
	db    *table.DB
	heads *headCache

	maxMembers int           // of a group, by its users
	maxCrowd   int           // of a conversation, by the product; 0: no crowds
	perSecond  int           // messages of 1 KB that one conversation takes
	closed     bool          // users create no conversations, and add no one to them
	rejoin     time.Duration // for how long members add no one who left by itself
	quotas     Quotas
}

// Option is a choice that New leaves open.
type Option func(*Store)

// WithRetention makes messages expire once they are this old. They are hidden
// from then on and deleted by the table's TTL, within days. 0 keeps them.
func WithRetention(age time.Duration) Option {
	return func(s *Store) { s.db.Retention = age }
}

// WithMaxGroupMembers makes groups smaller than chat.MaxGroupMembers. Those that
// are larger already stay as they are and take no one in.
func WithMaxGroupMembers(n int) Option {
	return func(s *Store) { s.maxMembers = n }
}

// WithMaxCrowdMembers lets AdmitMembers and Publish make conversations larger than
// chat.MaxGroupMembers, up to n members and chat.MaxCrowdMembers. 0 does not, and then
// system conversations are as large as WithQuotas says.
func WithMaxCrowdMembers(n int) Option {
	return func(s *Store) { s.maxCrowd = n }
}

// WithClosed makes the Store closed: users reach nobody with whom the product has
// not brought them together. Append and CreateGroup create no conversation,
// AddMembers adds no one, and OpenSingle, OpenGroup, AdmitMembers and Publish are
// for the product's own side.
func WithClosed(closed bool) Option {
	return func(s *Store) { s.closed = closed }
}

// WithQuotas sets quotas; without, there are none.
func WithQuotas(q Quotas) Option {
	return func(s *Store) { s.quotas = q }
}

// WithRejoin sets for how long AddMembers refuses a user who left the group without
// being removed. 0, the default, lets members add such a one at once.
func WithRejoin(age time.Duration) Option {
	return func(s *Store) { s.rejoin = age }
}

// New makes a Store on a client.
func New(db *dynamodb.Client, tables Tables, options ...Option) *Store {
	s := &Store{
		db: &table.DB{
			Client: db, Names: tables, Now: time.Now, Pace: table.NewPace(), Log: slog.New(slog.DiscardHandler),
		},
		heads: newHeadCache(), maxMembers: chat.MaxGroupMembers,
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// DB is what the operators' part works on. Its type cannot be named outside the store:
// everyone else asks the Store.
func (s *Store) DB() *table.DB { return s.db }

// Open makes a Store from the environment: the SDK's own variables say which
// endpoint and credentials, TablesFromEnv which tables, and OptionsFromEnv the
// rest. Items that cannot be read are told of in log. A request that DynamoDB does
// not answer within 3 s is made again.
func Open(ctx context.Context, log *slog.Logger) (*Store, error) {
	tables, err := TablesFromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	options, err := OptionsFromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	return New(dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		// The SDK by itself waits for an answer as long as the function may run, and
		// keeps 10 idle connections: a batch of the fan-out would open new ones.
		o.HTTPClient = awshttp.NewBuildableClient().WithTimeout(table.RequestTimeout).WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConnsPerHost = maxIdleConns
		})
	}), tables, append(options, WithLog(log))...), nil
}

// maxIdleConns is above what the fan-out asks for at a time.
const maxIdleConns = 64

const day = 24 * time.Hour

// maxRetentionDays is a hundred years; more is a slip of the keyboard.
const maxRetentionDays = 36500

// maxRejoinDays is ten years, which is for good.
const maxRejoinDays = 3650

// OptionsFromEnv reads RETENTION_DAYS, where 0 and nothing mean that messages are
// kept for ever; MAX_GROUP_MEMBERS, from 2 to chat.MaxGroupMembers, which is the
// default; MAX_CROWD_MEMBERS, for WithMaxCrowdMembers, where nothing means 0;
// REJOIN_DAYS, for WithRejoin, where nothing means 0; DIRECT_MESSAGES, open, which is
// the default, or closed; and the Quotas: GROUPS_PER_DAY, MAX_SYSTEM_MEMBERS and
// MAX_LARGE_CONVERSATIONS, where 0 and nothing are none; and
// CONVERSATION_WRITES_PER_SECOND, for WithConversationRate, up to 500, where nothing means
// 0. The error names the variable that is wrong.
func OptionsFromEnv(getenv func(string) string) ([]Option, error) {
	e := env.From(getenv)
	options := []Option{
		WithRetention(time.Duration(e.IntOr(0, "RETENTION_DAYS", 0, maxRetentionDays)) * day),
		WithMaxGroupMembers(e.IntOr(chat.MaxGroupMembers, "MAX_GROUP_MEMBERS", 2, chat.MaxGroupMembers)),
		WithMaxCrowdMembers(e.IntOr(0, "MAX_CROWD_MEMBERS", 0, chat.MaxCrowdMembers)),
		WithRejoin(time.Duration(e.IntOr(0, "REJOIN_DAYS", 0, maxRejoinDays)) * day),
		WithConversationRate(e.IntOr(0, "CONVERSATION_WRITES_PER_SECOND", 0, maxConversationRate)),
		WithClosed(e.OneOf("DIRECT_MESSAGES", "open", "closed") == "closed"),
		WithQuotas(Quotas{
			GroupsPerDay:       e.IntOr(0, "GROUPS_PER_DAY", 0, maxQuota),
			SystemMembers:      e.IntOr(0, "MAX_SYSTEM_MEMBERS", 0, maxQuota),
			LargeConversations: e.IntOr(0, "MAX_LARGE_CONVERSATIONS", 0, table.MaxLarge-largeSlack),
		}),
	}
	if err := e.Err(); err != nil {
		return nil, err
	}
	return options, nil
}

// WithLog makes the Store tell, with a line for each, of items that it cannot read
// and leaves out. Without it they are left out in silence.
func WithLog(log *slog.Logger) Option {
	return func(s *Store) { s.db.Log = log }
}
