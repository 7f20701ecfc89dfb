package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/operate"
)

func fillCommand() command {
	return command{
		name: "fill", about: "copies restored tables into an empty stack",
		help: `Copies the items of five tables, such as DynamoDB has restored to an earlier time, into
the empty tables of the stack: -from Conversations=NAME -from Messages=NAME
-from Idempotency=NAME -from Members=NAME -from Inboxes=NAME. Afterwards, raise the heads.

Without -yes it only counts.`,
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			var from store.Tables
			fields := map[string]*string{
				"Conversations": &from.Conversations, "Messages": &from.Messages, "Idempotency": &from.Idempotency,
				"Members": &from.Members, "Inboxes": &from.Inboxes,
			}
			flags.Func("from", "a table of the template and the `table=name` to copy into it; five times", func(v string) error {
				table, name, _ := strings.Cut(v, "=")
				field := fields[table]
				if field == nil || name == "" {
					return fmt.Errorf("%q: want Conversations, Messages, Idempotency, Members or Inboxes, and after a = the name of a table", v)
				}
				*field = name
				return nil
			})
			var how operate.FillOptions
			flags.BoolVar(&how.Again, "again", false, "overwrite what is there, after a run that broke off")
			flags.BoolVar(&how.Act, "yes", false, "do it")
			return func(ctx context.Context, s *session, _ []string) error {
				for _, table := range slices.Sorted(maps.Keys(fields)) {
					if *fields[table] == "" {
						return fmt.Errorf("-from %s=… is missing: say which table to copy into it", table)
					}
				}
				return s.fill(ctx, from, how)
			}
		},
	}
}

func (s *session) fill(ctx context.Context, from store.Tables, how operate.FillOptions) error {
	progress := s.progress()
	done, err := s.operator.Fill(ctx, from, how, func(f operate.Filled) {
		progress("%d roster items, %d inbox lines, %d idempotency records, %d heads, %d messages",
			f.Members, f.Inboxes, f.Idempotency, f.Conversations, f.Messages)
	})
	if err != nil {
		if how.Act && done != (operate.Filled{}) {
			return fmt.Errorf("%w\nsome of it is copied; copy all of it again with -again", err)
		}
		return err
	}
	if s.asJSON {
		return s.emit(struct {
			DryRun bool `json:"dryRun"`
			operate.Filled
		}{!how.Act, done})
	}
	verb := "copied"
	if !how.Act {
		verb = "would copy"
	}
	say(s.out, "%s %d roster items, %d inbox lines, %d idempotency records, %d heads and %d messages\n",
		verb, done.Members, done.Inboxes, done.Idempotency, done.Conversations, done.Messages)
	if done.Damaged > 0 {
		s.note("%d damaged sync heads, named above, are left out; their users' devices read their whole list once", done.Damaged)
	}
	if !how.Act {
		s.note("nothing was changed; do it with -yes")
		return nil
	}
	s.note("now raise the heads: raise -all -margin …")
	return nil
}
