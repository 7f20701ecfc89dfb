package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/operate"
)

func eraseCommand() command {
	return command{
		name: "erase-user", args: []string{"userId"}, about: "takes the content out of all that a user has sent",
		help: `Messages, and the texts in events of edits, lose text, data and the device they came
from, and are shown as recalled. They keep seq, messageId and sender, and the user
stays in rosters and inboxes: other people's conversations would not be whole without.
The user's idempotency records lose the fingerprint of the content, and the user's
connections are forgotten. An event in each conversation tells its members' devices,
which take the content out of what they hold as soon as they catch up.

What remains: the userId, as the sender of what is blank, in rosters, inboxes and
events; titles that the user gave to groups; files that messages pointed to; what
devices hold that do not connect again, or whose users had left the group before; what
waits in the user's own outbox; what a function that was killed left uncommitted, until
DynamoDB deletes it, which it does an hour later or some days after that; backups, for as
long as they are kept (35 days of point-in-time recovery); and logs, which have ids but no
content.

What is damaged, one message or one conversation, is passed over and named on standard
error, and the exit code is 1: mend it, by a restore or a repair, and erase again.

It may be repeated at will. Block the user first: what is sent meanwhile may be missed.
Without -yes it only counts.`,
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			yes := flags.Bool("yes", false, "do it")
			after := flags.String("after", "", "`conversationId` after which to go on, as a run that broke off said")
			return func(ctx context.Context, s *session, args []string) error {
				return s.erase(ctx, args[0], chat.ConversationID(*after), *yes)
			}
		},
	}
}

func (s *session) erase(ctx context.Context, userID string, after chat.ConversationID, yes bool) error {
	if err := chat.ValidateKnownUserID("userId", userID); err != nil {
		return err
	}
	progress := s.progress()
	done, err := s.operator.EraseUser(ctx, userID, after, yes, func(e operate.Erasure) {
		progress("%d conversations, %d messages looked at, %d with content of %s", e.Conversations, e.Scanned, e.Messages+e.Edits, quote(userID))
	})
	if err != nil {
		if done.After == "" {
			return err
		}
		if !done.Whole() {
			err = fmt.Errorf("%w\n%w", err, notWhole(userID, done))
		}
		command := []string{"erase-user", "-after", string(done.After)}
		if yes {
			command = append(command, "-yes")
		}
		return s.goOn(err, command, userID)
	}
	if err := s.tellErasure(userID, yes, done); err != nil {
		return err
	}
	if !done.Whole() {
		return notWhole(userID, done)
	}
	return nil
}

// notWhole is the error of an erasure that has passed over something.
func notWhole(userID string, done operate.Erasure) error {
	return fmt.Errorf("%s is not wholly erased: %d damaged messages and %d conversations were passed over, as said above, and have their content; "+
		"restore the messages from a backup, repair the conversations, and erase all of it again", quote(userID), done.Damaged, done.Untold)
}

func (s *session) tellErasure(userID string, yes bool, done operate.Erasure) error {
	if s.asJSON {
		return s.emit(struct {
			UserID string `json:"userId"`
			DryRun bool   `json:"dryRun"`
			operate.Erasure
		}{userID, !yes, done})
	}
	verb := "blanked"
	if !yes {
		verb = "would blank"
	}
	say(s.out, "%s %d messages and %d edits of %s in %d conversations (%d messages looked at), and in %d the name of the device; %d events tell devices\n",
		verb, done.Messages, done.Edits, quote(userID), done.Conversations, done.Scanned, done.Devices, done.Events)
	if !yes {
		s.note("nothing was changed; do it with -yes")
	}
	return nil
}
