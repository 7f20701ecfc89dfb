package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	smithytime "github.com/aws/smithy-go/time"
)

func hottestCommand() command {
	return command{
		name: "hottest", about: "lists the conversations that grow fastest now",
		help: `Looks at all heads, and a while later again at those that were written to lately: by
how much they grew in between is how hot they are. It takes half a read unit for some
ten conversations that there are, and a unit for each that it looks at again.

full in is how long the bucket of ConversationWritesPerSecond fills up again. By the default,
400, messages are refused from 0.19s on, and large ones from 0.13s; where it is 250 or less,
from 0.75s and 0.5s. With a long -for it finds those that are busy all the time, with a
short one those that are at this moment.`,
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			span := flags.Duration("for", 10*time.Second, "`time` between the looks")
			limit := flags.Int("limit", 20, "how many at most")
			return func(ctx context.Context, s *session, _ []string) error {
				if *span <= 0 || *limit < 1 {
					return fmt.Errorf("-for %v and -limit %d: want some time, and at least 1", *span, *limit)
				}
				return s.hottest(ctx, *span, *limit)
			}
		},
	}
}

func (s *session) hottest(ctx context.Context, span time.Duration, limit int) error {
	hot, err := s.operator.Hottest(ctx, limit, func(ctx context.Context) error {
		s.note("looking again in %v", span)
		return smithytime.SleepWithContext(ctx, span)
	})
	if err != nil {
		return err
	}
	if len(hot) == 0 {
		s.note("no conversation was written to meanwhile")
	}
	t := s.table("conversation", "kind", "messages/s", "full in", "lastSeq", "members", "title")
	for _, h := range hot {
		if err := t.row(h, h.ConversationID, h.Kind, fmt.Sprintf("%.1f", h.PerSecond), fmt.Sprintf("%.2fs", float64(h.FullInMs)/1000), h.LastSeq, h.MemberCount, quote(h.Title)); err != nil {
			return err
		}
	}
	return t.flush()
}
