package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

func createCommand() command {
	return command{
		name: "create", args: []string{"userId", "userId"}, about: "creates the conversation of two users",
		help: "For stacks whose users may not (DirectMessages=closed). One that is there already stays\nas it is. Without -yes it only says which it would be.",
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			yes := flags.Bool("yes", false, "do it")
			return func(ctx context.Context, s *session, args []string) error {
				if !*yes {
					return s.wouldOpen(ctx, args[0], args[1])
				}
				return s.create(ctx, map[string]any{"between": args})
			}
		},
	}
}

func createGroupCommand() command {
	return command{
		name: "create-group", args: []string{"userId"}, more: true, about: "creates a group, in the name of its owner",
		help: "Of the owner and the users named. Without -yes it only says so.",
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			owner := flags.String("owner", "", "`userId` of the owner")
			title := flags.String("title", "", "the group's title")
			visibility := flags.String("visibility", string(chat.VisibleAll), "what later members may read: all or sinceJoin")
			key := flags.String("key", "", "idempotency `key`: the same group again, not another (default a new one)")
			yes := flags.Bool("yes", false, "do it")
			return func(ctx context.Context, s *session, args []string) error {
				if *owner == "" || *title == "" {
					return errors.New("a group needs -owner and -title")
				}
				if !*yes {
					return s.wouldCreateGroup(*owner, *title, args)
				}
				if *key == "" {
					*key = "admin:" + ulid.Make().String()
				}
				return s.create(ctx, map[string]any{
					"clientMsgId": *key,
					"group":       map[string]any{"owner": *owner, "title": *title, "members": args, "visibility": *visibility},
				})
			}
		},
	}
}

// wouldOpen says what create does with two users.
func (s *session) wouldOpen(ctx context.Context, userID, otherID string) error {
	for _, id := range []string{userID, otherID} {
		if err := chat.ValidateUserID("between", id); err != nil {
			return err
		}
	}
	conversationID := chat.SingleID(userID, otherID)
	_, err := s.operator.Head(ctx, conversationID)
	if err != nil && chat.CodeOf(err) != chat.CodeNotFound {
		return err
	}
	there := err == nil
	if s.asJSON {
		return s.emit(struct {
			DryRun         bool                `json:"dryRun"`
			ConversationID chat.ConversationID `json:"conversationId"`
			Duplicate      bool                `json:"duplicate"`
		}{true, conversationID, there})
	}
	if there {
		say(s.out, "there already: %s\n", conversationID)
		return nil
	}
	say(s.out, "would create %s, of %s and %s\n", conversationID, quote(userID), quote(otherID))
	s.note("nothing was changed; do it with -yes")
	return nil
}

// wouldCreateGroup says what create-group does.
func (s *session) wouldCreateGroup(owner, title string, members []string) error {
	if err := cmp.Or(
		chat.ValidateUserID("owner", owner), chat.ValidateTitle("title", title), chat.ValidateMembers("members", members),
	); err != nil {
		return err
	}
	if s.asJSON {
		return s.emit(struct {
			DryRun  bool     `json:"dryRun"`
			Owner   string   `json:"owner"`
			Title   string   `json:"title"`
			Members []string `json:"members"`
		}{true, owner, title, members})
	}
	say(s.out, "would create the group %s of %s and %d more\n", quote(title), quote(owner), len(members))
	s.note("nothing was changed; do it with -yes")
	return nil
}

// create asks the publish function, which writes for the product itself.
func (s *session) create(ctx context.Context, request map[string]any) error {
	payload, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	answer, err := s.invoke(ctx, "PublishFunction", payload)
	if err != nil {
		return err
	}
	var sent wire.Sent
	if err := json.Unmarshal(answer, &sent); err != nil {
		return fmt.Errorf("the answer of PublishFunction: %w", err)
	}
	if s.asJSON {
		return s.emit(sent)
	}
	verb := "created"
	if sent.Duplicate {
		verb = "there already:"
	}
	say(s.out, "%s %s\n", verb, sent.ConversationID)
	return nil
}
