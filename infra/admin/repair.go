package main

import (
	"context"
	"errors"
	"flag"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/operate"
)

func repairCommand() command {
	return command{
		name: "repair", args: []string{"conversationId"}, about: "mends a head that is behind its ledger",
		help: `It audits the conversation, raises a head that is behind its ledger to the ledger's
last seq and the margin, and lists a large conversation where it is not listed. With
-user it takes one off that user's list where it should not be on it. What else is wrong
it only shows. Nothing in the stack may do this by itself: it takes
your credentials.

The margin is for messages that devices have seen and the ledger has lost: devices
are told that the seqs between are gone, and pass them. 0 is right if nothing was lost.

Without -yes it only says what it would do.`,
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			margin := flags.Int64("margin", -1, "how many `seqs` to leave out: 0, or more than devices may have seen beyond the ledger")
			user := flags.String("user", "", "`userId` of one whom the audit has as largeStale")
			yes := flags.Bool("yes", false, "do it")
			return func(ctx context.Context, s *session, args []string) error {
				if *user != "" {
					return s.unlist(ctx, chat.ConversationID(args[0]), *user, *yes)
				}
				if *yes && *margin < 0 {
					return errors.New("-margin says how many seqs to leave out: 0 if no message was lost, else more than devices may have seen beyond the ledger")
				}
				return s.repair(ctx, chat.ConversationID(args[0]), *margin, *yes)
			}
		},
	}
}

// unlist takes a conversation off a user's list of large ones. There may be neither the
// conversation nor the user any more.
func (s *session) unlist(ctx context.Context, conversationID chat.ConversationID, userID string, yes bool) error {
	unlist := s.operator.ShouldUnlist
	if yes {
		unlist = s.operator.Unlist
	}
	off, err := unlist(ctx, userID, conversationID)
	if err != nil {
		return err
	}
	if s.asJSON {
		return s.emit(struct {
			DryRun   bool `json:"dryRun"`
			Unlisted bool `json:"unlisted"`
		}{!yes, off})
	}
	switch {
	case !off:
		say(s.out, "%s is not on the list of %s, or rightly so\n", conversationID, quote(userID))
	case yes:
		say(s.out, "took %s off the list of %s\n", conversationID, quote(userID))
	default:
		say(s.out, "would take %s off the list of %s\n", conversationID, quote(userID))
		s.note("nothing was changed; do it with -yes")
	}
	return nil
}

// repaired is what became of a repair.
type repaired struct {
	DryRun     bool                `json:"dryRun"`
	Repair     *operate.Repair     `json:"repair,omitempty"`
	Relisted   int                 `json:"relisted,omitempty"` // members for whom a large conversation was not listed
	Violations []operate.Violation `json:"violations"`         // what is wrong now
}

func (s *session) repair(ctx context.Context, conversationID chat.ConversationID, margin int64, yes bool) error {
	if _, err := s.operator.Head(ctx, conversationID); err != nil {
		return err
	}
	r := repaired{DryRun: !yes}
	if yes {
		head, err := s.operator.RepairHead(ctx, conversationID, margin)
		if err != nil {
			return err
		}
		r.Repair = &head
		if r.Relisted, err = s.operator.Relist(ctx, conversationID); err != nil {
			return err
		}
	}
	report, err := s.operator.AuditConversation(ctx, conversationID)
	if err != nil {
		return err
	}
	r.Violations = report.Violations
	if s.asJSON {
		return s.emit(r)
	}
	return s.tellRepair(conversationID, r)
}

// mended are the kinds of violations that a repair ends.
var mended = map[operate.ViolationKind]string{
	operate.ViolationHeadBehind:     "raise the head",
	operate.ViolationLargeNotListed: "list the conversation for the member",
}

func (s *session) tellRepair(conversationID chat.ConversationID, r repaired) error {
	switch {
	case r.Repair == nil:
	case r.Repair.Changed:
		say(s.out, "raised the head of %s from %d to %d\n", conversationID, r.Repair.Before, r.Repair.After)
	default:
		say(s.out, "the head of %s, at %d, is not behind its ledger\n", conversationID, r.Repair.Before)
	}
	if r.Relisted > 0 {
		say(s.out, "listed it for %d members\n", r.Relisted)
	}
	t := s.table("wrong", "seq", "user", "expected", "found", "what to do")
	for _, v := range r.Violations {
		remedy := v.Remedy
		if what := mended[v.Kind]; what != "" && r.DryRun {
			remedy = "-yes would " + what
		}
		if err := t.row(nil, v.Kind, v.Seq, quote(v.UserID), v.Expected, v.Found, remedy); err != nil {
			return err
		}
	}
	if len(r.Violations) == 0 {
		s.note("nothing is wrong with %s", conversationID)
	} else if err := t.flush(); err != nil {
		return err
	}
	if r.DryRun {
		s.note("nothing was changed; do it with -margin N -yes")
	}
	return nil
}
