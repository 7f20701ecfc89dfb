// Package sqlite keeps what a device has in one SQLite file, for programs that
// restart. A kill at any moment leaves the file as the last whole commit left it:
// never a position without its messages, and with every message that the user
// sent and the server has not answered for.
//
// It is a package of its own so that a program which does not use it does not
// link SQLite.
package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	_ "modernc.org/sqlite" // the driver, in Go

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
)

// Store is a client.Store in a file. Make it with Open.
type Store struct {
	db *sql.DB
}

// ErrInUse says that another program, or another Store of this one, has the file
// open. Two would overwrite each other's positions.
var ErrInUse = errors.New("the store is in use by another program")

// schema lists the steps from one version of the file to the next; the file's
// user_version counts those that were made. Steps are only ever added.
var schema = [...]string{
	`CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
	 CREATE TABLE conversations (
	   conversation_id TEXT PRIMARY KEY,
	   max_contiguous_seq INTEGER NOT NULL,
	   max_seen_seq INTEGER NOT NULL,
	   conversation TEXT NOT NULL
	 ) WITHOUT ROWID;
	 CREATE TABLE messages (
	   conversation_id TEXT NOT NULL,
	   seq INTEGER NOT NULL,
	   target_seq INTEGER,
	   message TEXT NOT NULL,
	   PRIMARY KEY (conversation_id, seq)
	 ) WITHOUT ROWID;
	 CREATE INDEX revisions ON messages (conversation_id, target_seq, seq) WHERE target_seq IS NOT NULL;
	 CREATE TABLE outbox (
	   client_msg_id TEXT PRIMARY KEY,
	   position INTEGER NOT NULL,
	   entry TEXT NOT NULL
	 ) WITHOUT ROWID;`,
	`CREATE TABLE orphans (
	   conversation_id TEXT NOT NULL,
	   seq INTEGER NOT NULL,
	   message_id TEXT NOT NULL,
	   message TEXT NOT NULL,
	   PRIMARY KEY (conversation_id, seq, message_id)
	 ) WITHOUT ROWID;`,
	// The outbox held messages alone.
	`UPDATE outbox SET entry = json_object('order', position, 'clientMsgId', client_msg_id,
	   'conversationId', entry ->> '$.send.conversationId', 'action', 'send', 'request', json(entry -> '$.send'));`,
}

// pragmas of the connection. What is deleted or replaced is overwritten in the file,
// as people expect of what was recalled, cleared or erased. A commit reaches the
// operating system before it returns, so it outlives the program; a power cut may lose
// the last commits, but only together with all that followed them.
var pragmas = []string{"locking_mode(EXCLUSIVE)", "journal_mode(WAL)", "synchronous(NORMAL)", "secure_delete(ON)", "busy_timeout(500)"}

// Open opens the file, or makes it, readable by its owner only. It errs with
// ErrInUse, and for a file that a newer version of this package made.
func Open(ctx context.Context, path string) (*Store, error) {
	s, err := open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("opening the store %s: %w", path, err)
	}
	return s, nil
}

func open(ctx context.Context, path string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the caller names the file
	if err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: url.Values{"_pragma": pragmas}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // the lock is the connection's
	s := &Store{db: db}
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(inUse(err), db.Close())
	}
	if err := s.emptyLog(ctx); err != nil { // a kill may have come before it was
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func inUse(err error) error {
	const busy = 5 // SQLITE_BUSY
	if coded, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok && coded.Code()&0xff == busy {
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return err
}

func (s *Store) migrate(ctx context.Context) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		var version int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return fmt.Errorf("reading the schema's version: %w", err)
		}
		if version > len(schema) {
			return fmt.Errorf("its schema has version %d, this program knows %d: use a newer program", version, len(schema))
		}
		for _, step := range schema[version:] {
			if _, err := tx.ExecContext(ctx, step); err != nil {
				return fmt.Errorf("bringing the schema to version %d: %w", len(schema), err)
			}
		}
		// Writing it even if it is the same takes the file's lock now, not in the
		// first commit.
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", len(schema)))
		return err
	})
}

// Close closes the file. Close the client first.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// Load is client.Store.Load.
func (s *Store) Load(ctx context.Context, userID string) (client.State, error) {
	var state client.State
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		if err := claim(ctx, tx, userID); err != nil {
			return err
		}
		row := tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'syncCursor'")
		if err := row.Scan(&state.SyncCursor); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("reading the cursor: %w", err)
		}
		var err error
		if state.Conversations, err = rows[client.Conversation](ctx, tx, "SELECT conversation FROM conversations ORDER BY conversation_id"); err != nil {
			return err
		}
		state.Buffered, err = rows[chat.Message](ctx, tx, `SELECT m.message FROM messages m
			LEFT JOIN conversations c ON c.conversation_id = m.conversation_id
			WHERE m.seq > coalesce(c.max_contiguous_seq, 0) ORDER BY m.conversation_id, m.seq`)
		if err != nil {
			return err
		}
		state.Outbox, err = rows[client.OutboxEntry](ctx, tx, "SELECT entry FROM outbox ORDER BY position")
		return err
	})
	return state, err
}

// claim makes an empty store this user's.
func claim(ctx context.Context, tx *sql.Tx, userID string) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO meta VALUES ('userId', ?) ON CONFLICT DO NOTHING", userID); err != nil {
		return fmt.Errorf("naming the user: %w", err)
	}
	var owner string
	if err := tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'userId'").Scan(&owner); err != nil {
		return fmt.Errorf("reading the user: %w", err)
	}
	if owner != userID {
		return fmt.Errorf("the store is of user %q, not of %q", owner, userID)
	}
	return nil
}

// Commit is client.Store.Commit: one transaction. With an erasure it also empties the
// log of earlier ones, in which what was erased stands as it was.
func (s *Store) Commit(ctx context.Context, b client.Batch) error {
	erases := func(m chat.Message) bool { return m.Is(chat.EventErase) }
	if err := s.write(ctx, b); err != nil || !slices.ContainsFunc(b.Messages, erases) {
		return err
	}
	return s.emptyLog(ctx)
}

// emptyLog moves the write-ahead log into the file and empties it.
func (s *Store) emptyLog(ctx context.Context) error {
	var busy, frames, moved int
	row := s.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	if err := row.Scan(&busy, &frames, &moved); err != nil || busy != 0 {
		return fmt.Errorf("emptying the log: busy %d: %w", busy, err)
	}
	return nil
}

func (s *Store) write(ctx context.Context, b client.Batch) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		w := writer{ctx: ctx, tx: tx}
		for _, span := range b.Orphan {
			w.exec(`INSERT OR REPLACE INTO orphans SELECT conversation_id, seq, json_extract(message, '$.messageId'), message
				FROM messages WHERE conversation_id = ? AND seq BETWEEN ? AND ?`, span.ConversationID, span.From, span.To)
			w.exec("DELETE FROM messages WHERE conversation_id = ? AND seq BETWEEN ? AND ?", span.ConversationID, span.From, span.To)
		}
		for _, span := range b.OrphanDelete {
			w.exec("DELETE FROM orphans WHERE conversation_id = ? AND seq BETWEEN ? AND ?", span.ConversationID, span.From, span.To)
		}
		for _, span := range b.Delete {
			w.exec("DELETE FROM messages WHERE conversation_id = ? AND seq BETWEEN ? AND ?", span.ConversationID, span.From, span.To)
		}
		for _, m := range b.Messages {
			w.exec("INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?)", m.ConversationID, m.Seq, targetOf(m), w.json(m))
		}
		for _, c := range b.Conversations {
			w.exec("INSERT OR REPLACE INTO conversations VALUES (?, ?, ?, ?)", c.ConversationID, c.MaxContiguousSeq, c.MaxSeenSeq, w.json(c))
		}
		for _, e := range b.OutboxPut {
			w.exec("INSERT OR REPLACE INTO outbox VALUES (?, ?, ?)", e.ClientMsgID, e.Order, w.json(e))
		}
		for _, id := range b.OutboxDelete {
			w.exec("DELETE FROM outbox WHERE client_msg_id = ?", id)
		}
		if b.SyncCursor != nil {
			w.exec("INSERT OR REPLACE INTO meta VALUES ('syncCursor', ?)", *b.SyncCursor)
		}
		return w.err
	})
}

// Messages is client.Store.Messages.
func (s *Store) Messages(ctx context.Context, conversationID chat.ConversationID, afterSeq, throughSeq int64, limit int) ([]chat.Message, error) {
	return rows[chat.Message](ctx, s.db, `SELECT message FROM messages
		WHERE conversation_id = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?`, conversationID, afterSeq, throughSeq, limit)
}

// Orphans is client.Store.Orphans.
func (s *Store) Orphans(ctx context.Context, conversationID chat.ConversationID) ([]chat.Message, error) {
	return rows[chat.Message](ctx, s.db, "SELECT message FROM orphans WHERE conversation_id = ? ORDER BY seq, message_id", conversationID)
}

// Revisions is client.Store.Revisions.
func (s *Store) Revisions(ctx context.Context, conversationID chat.ConversationID, targetSeq int64) ([]chat.Message, error) {
	return rows[chat.Message](ctx, s.db, `SELECT message FROM messages
		WHERE conversation_id = ? AND target_seq = ? ORDER BY seq`, conversationID, targetSeq)
}

// targetOf is the message's Target, or NULL.
func targetOf(m chat.Message) sql.NullInt64 {
	seq, ok := m.Target()
	return sql.NullInt64{Int64: seq, Valid: ok}
}

func (s *Store) inTx(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return tx.Commit()
}

// ignoreDone: the end of the context has rolled it back already.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// writer keeps the first error of a transaction.
type writer struct {
	ctx context.Context
	tx  *sql.Tx
	err error
}

func (w *writer) exec(statement string, args ...any) {
	if w.err == nil {
		_, w.err = w.tx.ExecContext(w.ctx, statement, args...)
	}
}

func (w *writer) json(v any) string {
	encoded, err := chat.EncodeJSON(v)
	if w.err == nil {
		w.err = err
	}
	return string(encoded)
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// rows reads the JSON in the one column of a query.
func rows[T any](ctx context.Context, q querier, query string, args ...any) (found []T, err error) {
	result, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, result.Close()) }()
	for result.Next() {
		var encoded []byte
		if err := result.Scan(&encoded); err != nil {
			return nil, err
		}
		var v T
		if err := json.Unmarshal(encoded, &v); err != nil {
			return nil, fmt.Errorf("reading %.100q: %w", encoded, err)
		}
		found = append(found, v)
	}
	return found, result.Err()
}
