// Package store is the only place that speaks DynamoDB: the ledgers, the
// idempotency records, the rosters, the inboxes and the connections, each in a
// table of its own.
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
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Tables are the names of the six tables.
type Tables struct {
	Conversations string
	Messages      string
	Idempotency   string
	Members       string
	Inboxes       string
	Connections   string
}

// TablesFromEnv reads the table names from the variables that template.yaml
// gives every function. The error names the first one missing.
func TablesFromEnv(getenv func(string) string) (Tables, error) {
	var t Tables
	for name, field := range map[string]*string{
		"CONVERSATIONS_TABLE": &t.Conversations,
		"MESSAGES_TABLE":      &t.Messages,
		"IDEMPOTENCY_TABLE":   &t.Idempotency,
		"MEMBERS_TABLE":       &t.Members,
		"INBOXES_TABLE":       &t.Inboxes,
		"CONNECTIONS_TABLE":   &t.Connections,
	} {
		if *field = getenv(name); *field == "" {
			return Tables{}, fmt.Errorf("the environment variable %s is not set; template.yaml sets it to a table's name", name)
		}
	}
	return t, nil
}

// Store reads and writes the tables. It is safe for concurrent use.
type Store struct {
	db     *dynamodb.Client
	tables Tables
	now    func() time.Time
	heads  *headCache
	pace   *pace

	retention time.Duration // 0: messages are kept
}

// Option is a choice that New leaves open.
type Option func(*Store)

// WithRetention makes messages expire once they are this old. They are hidden
// from then on and deleted by the table's TTL, within days. 0 keeps them.
func WithRetention(age time.Duration) Option {
	return func(s *Store) { s.retention = age }
}

// New makes a Store on a client.
func New(db *dynamodb.Client, tables Tables, options ...Option) *Store {
	s := &Store{db: db, tables: tables, now: time.Now, heads: newHeadCache(), pace: newPace()}
	for _, o := range options {
		o(s)
	}
	return s
}

// Open makes a Store from the environment: the SDK's own variables say which
// endpoint and credentials, TablesFromEnv which tables, and RetentionFromEnv how
// long messages stay.
func Open(ctx context.Context) (*Store, error) {
	tables, err := TablesFromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	retention, err := RetentionFromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	return New(dynamodb.NewFromConfig(cfg), tables, WithRetention(retention)), nil
}

const day = 24 * time.Hour

// maxRetentionDays is a hundred years; more is a slip of the keyboard.
const maxRetentionDays = 36500

// RetentionFromEnv reads RETENTION_DAYS, a whole number of days. 0 and nothing
// mean that messages are kept.
func RetentionFromEnv(getenv func(string) string) (time.Duration, error) {
	v := getenv("RETENTION_DAYS")
	if v == "" {
		return 0, nil
	}
	days, err := strconv.Atoi(v)
	if err != nil || days < 0 || days > maxRetentionDays {
		return 0, fmt.Errorf("the environment variable RETENTION_DAYS is %q; it is a number of days from 0, which keeps messages for ever, to %d", v, maxRetentionDays)
	}
	return time.Duration(days) * day, nil
}

// errUnfinished is what BatchGetItem's callers report when keys stayed
// unprocessed: DynamoDB was throttling.
var errUnfinished = errors.New("DynamoDB did not process all keys of a batch in time")
