package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"

	"github.com/oklog/ulid/v2"

	"inorder/shared/chat"
	"inorder/shared/wire"
)

func createCommand() command {
	return command{
		name: "create", args: []string{"userId", "userId"}, about: "creates the conversation of two users",
		help: "For stacks whose users may not (DirectMessages=closed). One that is there already stays\nas it is. Without -yes it only says which it would be.",
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			yes := flags.Bool("yes", false, "do it")
			return func(ctx context.Context, s *session, args []string) error {
				for _, user := range args {
					if err := chat.ValidateUserID("between", user); err != nil {
						return err
					}
				}
				request := map[string]any{"between": args}
				if !*yes {
					return s.wouldCreate(request, fmt.Sprintf("%s, of %s and %s", chat.SingleID(args[0], args[1]), quote(args[0]), quote(args[1])))
				}
				return s.create(ctx, request)
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
				request := map[string]any{
					"group": map[string]any{"owner": *owner, "title": *title, "members": args, "visibility": *visibility},
				}
				if !*yes {
					return s.wouldCreate(request, fmt.Sprintf("the group %s of %s and %d others", quote(*title), quote(*owner), len(args)))
				}
				if *key == "" {
					*key = "admin:" + ulid.Make().String()
				}
				request["clientMsgId"] = *key
				return s.create(ctx, request)
			}
		},
	}
}

// wouldCreate says what a request would make.
func (s *session) wouldCreate(request map[string]any, what string) error {
	if s.asJSON {
		request["dryRun"] = true
		return s.emit(request)
	}
	say(s.out, "would create %s\n", what)
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
		return s.emit(struct {
			DryRun bool `json:"dryRun"`
			wire.Sent
		}{false, sent})
	}
	verb := "created"
	if sent.Duplicate {
		verb = "there already:"
	}
	say(s.out, "%s %s\n", verb, sent.ConversationID)
	return nil
}
