package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// pageSize is how much is read at a time.
const pageSize = 100

func listCommand() command {
	return command{
		name: "list", about: "lists conversations",
		help: "All of the stack, in no order, or those of one user with the user's positions.",
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			user := flags.String("user", "", "`userId` whose conversations to list, those that were left too")
			limit := flags.Int("limit", pageSize, "how many at most; 0 for all")
			return func(ctx context.Context, s *session, _ []string) error {
				if *limit < 0 {
					return fmt.Errorf("-limit %d: want at least 1, or 0 for all", *limit)
				}
				if *user != "" {
					return s.listOf(ctx, *user, *limit)
				}
				return s.list(ctx, *limit)
			}
		},
	}
}

func (s *session) list(ctx context.Context, limit int) error {
	t := s.table("conversation", "kind", "state", "lastSeq", "members", "updated", "title")
	count := 0
	for cursor := ""; ; {
		heads, _, next, err := s.operator.Heads(ctx, cursor, pageSize)
		if err != nil {
			return err
		}
		for _, h := range heads {
			if limit > 0 && count == limit {
				s.note("there are more; -limit 0 lists all")
				return t.flush()
			}
			count++
			if err := t.row(h, h.ConversationID, h.Kind, h.State, h.LastSeq, h.MemberCount, clock(h.UpdatedAt), quote(h.Title)); err != nil {
				return err
			}
		}
		if cursor = next; next == "" {
			break
		}
	}
	if count == 0 {
		s.note("there are no conversations yet")
	}
	return t.flush()
}

func (s *session) listOf(ctx context.Context, userID string, limit int) error {
	t := s.lines("conversation")
	count := 0
	for cursor := ""; ; {
		lines, next, err := s.operator.LinesOf(ctx, userID, cursor, pageSize)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if limit > 0 && count == limit {
				s.note("there are more; -limit 0 lists all")
				return t.flush()
			}
			count++
			if err := t.line(l, l.ConversationID); err != nil {
				return err
			}
		}
		if cursor = next; next == "" {
			break
		}
	}
	if count == 0 {
		return fmt.Errorf("%s has no conversations", quote(userID))
	}
	return t.flush()
}

func showCommand() command {
	return command{
		name: "show", args: []string{"conversationId"}, about: "shows a conversation's head",
		help: "The head as it is in the table.",
		prepare: func(*flag.FlagSet) func(context.Context, *session, []string) error {
			return func(ctx context.Context, s *session, args []string) error {
				head, err := s.operator.Head(ctx, chat.ConversationID(args[0]))
				if err != nil {
					return err
				}
				if s.asJSON {
					return s.emit(head)
				}
				for _, line := range [][2]any{
					{"conversation", quote(string(head.ConversationID))}, {"kind", head.Kind}, {"state", head.State}, {"title", quote(head.Title)},
					{"owner", quote(head.Owner)}, {"visibility", head.Visibility}, {"lastSeq", head.LastSeq}, {"members", head.MemberCount},
					{"roster version", head.MembersVersion}, {"created", clock(head.CreatedAt)}, {"updated", clock(head.UpdatedAt)},
				} {
					say(s.out, "%-15s %s\n", line[0], visible(fmt.Sprint(line[1]), ""))
				}
				return nil
			}
		},
	}
}

func ledgerCommand() command {
	return command{
		name: "ledger", args: []string{"conversationId"}, about: "shows the messages of a conversation",
		help: "By seq, without what they say; seqs that no message has are named. Without -from it\nshows the end.",
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			from := flags.Int64("from", 0, "the first `seq`")
			limit := flags.Int("limit", 50, "how many seqs at most")
			content := flags.Bool("content", false, "show the texts, too")
			return func(ctx context.Context, s *session, args []string) error {
				head, err := s.operator.Head(ctx, chat.ConversationID(args[0]))
				if err != nil {
					return err
				}
				if *limit < 1 {
					return fmt.Errorf("-limit %d: want at least 1", *limit)
				}
				if *from > head.LastSeq {
					return fmt.Errorf("-from %d: the last seq is %d", *from, head.LastSeq)
				}
				r := chat.Range{From: *from, To: head.LastSeq}
				if r.From < 1 {
					r.From = max(1, head.LastSeq-int64(*limit)+1)
				}
				r.To = min(r.To, r.From+int64(*limit)-1)
				return s.ledger(ctx, head.ConversationID, r, *content)
			}
		},
	}
}

func (s *session) ledger(ctx context.Context, id chat.ConversationID, r chat.Range, content bool) error {
	t := s.table("seq", "messageId", "sender", "type", "version", "status", "time", "")
	expected := r.From
	gap := func(before int64) error {
		if expected == before || s.asJSON {
			return nil
		}
		return t.row(nil, fmt.Sprintf("%d-%d", expected, before-1), "not there")
	}
	to := r.To
	for r.From <= r.To {
		messages, rest, err := s.operator.LedgerPage(ctx, id, r, pageSize)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if err := gap(m.Seq); err != nil {
				return err
			}
			expected = m.Seq + 1
			if !content {
				m.Text, m.Data = "", nil
			}
			if err := t.row(m, m.Seq, m.MessageID, quote(m.SenderID), m.MessageType, m.Version, m.Status, clock(m.ServerTime), about(m)); err != nil {
				return err
			}
		}
		r = rest
	}
	if err := gap(to + 1); err != nil {
		return err
	}
	return t.flush()
}

// about is what a line of a ledger says of a message beside its ids.
func about(m chat.Message) string {
	text := ""
	if e := m.Event; e != nil {
		text = string(e.Kind)
		if e.TargetSeq != 0 {
			text += " of seq " + strconv.FormatInt(e.TargetSeq, 10)
		}
		if len(e.Added)+len(e.Removed) > 0 {
			text += fmt.Sprintf(" +%d -%d", len(e.Added), len(e.Removed))
		}
	}
	if m.Text != "" {
		text += " " + strconv.Quote(m.Text)
	}
	if len(m.Data) > 0 {
		text += " " + strconv.Quote(string(m.Data))
	}
	return text
}

func rosterCommand() command {
	return command{
		name: "roster", args: []string{"conversationId"}, about: "shows the members of a conversation and how far they have come",
		help: "With each member's positions, as its line says.",
		prepare: func(*flag.FlagSet) func(context.Context, *session, []string) error {
			return func(ctx context.Context, s *session, args []string) error {
				if _, err := s.operator.Head(ctx, chat.ConversationID(args[0])); err != nil {
					return err
				}
				members, err := s.store.Roster(ctx, chat.ConversationID(args[0]))
				if err != nil {
					return err
				}
				ids := make([]string, len(members))
				for i, m := range members {
					ids[i] = m.UserID
				}
				lines, err := s.operator.Lines(ctx, chat.ConversationID(args[0]), ids)
				if err != nil {
					return err
				}
				t := s.table("user", "role", "joined", "joinSeq", "readSeq", "deliveredSeq", "clearedSeq")
				for _, m := range members {
					l, ok := lines[m.UserID]
					row := struct {
						chat.Member
						Line *chat.Line `json:"line"`
					}{m, &l}
					cells := []any{quote(m.UserID), m.Role, clock(m.JoinedAt), l.JoinSeq, l.ReadSeq, l.DeliveredSeq, l.ClearedSeq}
					if !ok {
						row.Line, cells = nil, []any{quote(m.UserID), m.Role, clock(m.JoinedAt), "no line"}
					}
					if err := t.row(row, cells...); err != nil {
						return err
					}
				}
				return t.flush()
			}
		},
	}
}

func findCommand() command {
	return command{
		name: "find", args: []string{"messageId"}, about: "finds a message by its messageId",
		help: "The index that is asked lags a little: a message of this second may not be found. A\nstack has it with MessageIndex=on; -scan reads all messages instead, at a read unit for\nsome 20 of them.",
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			content := flags.Bool("content", false, "show the text, too")
			scan := flags.Bool("scan", false, "read all messages of the stack, without the index")
			return func(ctx context.Context, s *session, args []string) error {
				find := s.operator.FindMessage
				if *scan {
					find = s.operator.ScanMessage
				}
				messages, err := find(ctx, args[0])
				if errors.Is(err, operate.ErrNoIndex) {
					return fmt.Errorf("%w: deploy the stack with MessageIndex=on, or find it by -scan, which reads all messages, or in the log, whose line of the send has its messageId", err)
				}
				if err != nil {
					return err
				}
				t := s.table("conversation", "seq", "sender", "type", "version", "status", "time", "")
				for _, m := range messages {
					if !*content {
						m.Text, m.Data = "", nil
					}
					if err := t.row(m, m.ConversationID, m.Seq, quote(m.SenderID), m.MessageType, m.Version, m.Status, clock(m.ServerTime), about(m)); err != nil {
						return err
					}
				}
				if len(messages) > 1 {
					s.note("one messageId under several seqs: audit the conversation")
				}
				return t.flush()
			}
		},
	}
}

// table writes rows, for people or for machines.
type table struct {
	s    *session
	tabs *tabwriter.Writer
	rows int
	cols []any
}

func (s *session) table(columns ...any) *table {
	return &table{s: s, tabs: tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0), cols: columns}
}

func (s *session) lines(first any) *table {
	return s.table(first, "readSeq", "deliveredSeq", "clearedSeq", "joinSeq", "leftSeq")
}

func (t *table) line(l chat.Line, first any) error {
	left := "-"
	if l.LeftSeq != 0 {
		left = strconv.FormatInt(l.LeftSeq, 10)
	}
	return t.row(l, first, l.ReadSeq, l.DeliveredSeq, l.ClearedSeq, l.JoinSeq, left)
}

// row writes one: v as JSON, or the cells.
func (t *table) row(v any, cells ...any) error {
	if t.s.asJSON {
		return t.s.emit(v)
	}
	if t.rows++; t.rows == 1 {
		if err := line(t.tabs, t.cols); err != nil {
			return err
		}
	}
	if err := line(t.tabs, cells); err != nil {
		return err
	}
	if t.rows%pageSize == 0 { // so that a long list does not wait for its end
		return t.flush()
	}
	return nil
}

func line(w io.Writer, cells []any) error {
	for i, c := range cells {
		if i > 0 {
			if _, err := fmt.Fprint(w, "\t"); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
		}
		if _, err := io.WriteString(w, visible(fmt.Sprint(c), "")); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

func (t *table) flush() error {
	if err := t.tabs.Flush(); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// emit writes a JSON line.
func (s *session) emit(v any) error { return emit(s.out, v) }

func emit(w io.Writer, v any) error {
	data, err := chat.EncodeJSON(v)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if _, err := w.Write(append(visibleJSON(data), '\n')); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// note says what is not part of the answer.
func (s *session) note(format string, args ...any) { say(s.notes, format+"\n", args...) }

// quote makes what users have chosen safe for a terminal.
func quote(s string) string {
	if q := strconv.Quote(s); s != "" && q != `"`+s+`"` {
		return q
	}
	return s
}

func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
