package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/operate"
)

func raiseCommand() command {
	return command{
		name: "raise", about: "lets conversations go on at higher seqs, after a restore",
		help: `Tables that were restored to an earlier time would give out seqs again that devices
have seen, and these would take new messages for ones that they have. So each head
jumps by a margin, which has to be more than a conversation can have lost. Devices
are told that the seqs between are gone, and pass them.

With -all, a head that cannot be raised is named on standard error and passed over, and
the exit code is 1: mend it, and raise it by -conversation.

Without -yes it only counts.`,
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			all := flags.Bool("all", false, "all conversations")
			one := flags.String("conversation", "", "`conversationId` of one")
			margin := flags.Int64("margin", 0, "how many `seqs` to leave out, such as 10000")
			after := flags.String("after", "", "with -all, the `conversationId` after which to go on, as a run that broke off said")
			yes := flags.Bool("yes", false, "do it")
			return func(ctx context.Context, s *session, _ []string) error {
				switch {
				case *all == (*one != ""):
					return errors.New("say -all, or which -conversation")
				case *margin < 1 || *margin > operate.MaxRepairMargin:
					return fmt.Errorf("-margin says how many seqs to leave out, from 1 to %d", operate.MaxRepairMargin)
				case *all:
					return s.raiseAll(ctx, *after, *margin, *yes)
				}
				return s.raise(ctx, chat.ConversationID(*one), *margin, *yes)
			}
		},
	}
}

func (s *session) raise(ctx context.Context, conversationID chat.ConversationID, margin int64, yes bool) error {
	if !yes {
		head, err := s.operator.Head(ctx, conversationID)
		if err != nil {
			return err
		}
		if s.asJSON {
			return s.emit(struct {
				DryRun         bool                `json:"dryRun"`
				ConversationID chat.ConversationID `json:"conversationId"`
				Before         int64               `json:"before"`
				Margin         int64               `json:"margin"`
			}{true, conversationID, head.LastSeq, margin})
		}
		say(s.out, "would raise the head of %s, now at %d, by %d\n", conversationID, head.LastSeq, margin)
		s.note("nothing was changed; do it with -yes")
		return nil
	}
	r, err := s.operator.RaiseHead(ctx, conversationID, margin)
	if err != nil {
		return err
	}
	if s.asJSON {
		return s.emit(struct {
			DryRun bool `json:"dryRun"`
			operate.Repair
		}{false, r})
	}
	say(s.out, "raised the head of %s from %d to %d\n", r.ConversationID, r.Before, r.After)
	return nil
}

func (s *session) raiseAll(ctx context.Context, cursor string, margin int64, yes bool) error {
	progress := s.progress()
	count, left, last := 0, 0, cursor
	brokeOff := func(err error) error {
		if !yes || last == "" {
			return err
		}
		err = errors.Join(err, fmt.Errorf("%d heads were raised", count), notRaised(left))
		return s.goOn(err, []string{"raise", "-all", "-margin", strconv.FormatInt(margin, 10), "-yes", "-after", last})
	}
	for more := true; more; more = cursor != "" {
		heads, damaged, next, err := s.operator.Heads(ctx, cursor, pageSize)
		if err != nil {
			return brokeOff(err)
		}
		left += damaged
		for _, h := range heads {
			if err := s.raiseOne(ctx, h.ConversationID, margin, yes); err == nil {
				count++
			} else if ofOne(ctx, err) {
				left++
				s.note("passed over %s: %v", h.ConversationID, err)
			} else {
				return brokeOff(err)
			}
			last = string(h.ConversationID)
			progress("%d heads", count)
		}
		cursor = next
	}
	if err := s.tellRaised(count, left, margin, yes); err != nil {
		return err
	}
	return notRaised(left)
}

func (s *session) raiseOne(ctx context.Context, conversationID chat.ConversationID, margin int64, yes bool) error {
	if !yes {
		return nil
	}
	_, err := s.operator.RaiseHead(ctx, conversationID, margin)
	return err
}

// ofOne reports whether an error is of one conversation, and no reason to leave others.
func ofOne(ctx context.Context, err error) bool {
	_, refused := errors.AsType[*chat.Error](err)
	return ctx.Err() == nil && (refused || store.Permanent(err))
}

// notRaised is the error of heads that were passed over; nil if there are none.
func notRaised(left int) error {
	if left == 0 {
		return nil
	}
	return fmt.Errorf("%d heads were passed over, as said above; mend each, and raise it by -conversation", left)
}

func (s *session) tellRaised(count, left int, margin int64, yes bool) error {
	if s.asJSON {
		return s.emit(struct {
			DryRun bool  `json:"dryRun"`
			Heads  int   `json:"heads"`
			Left   int   `json:"left"` // passed over
			Margin int64 `json:"margin"`
		}{!yes, count, left, margin})
	}
	if !yes {
		say(s.out, "would raise %d heads by %d\n", count, margin)
		s.note("nothing was changed; do it with -yes")
		return nil
	}
	say(s.out, "raised %d heads by %d\n", count, margin)
	return nil
}
