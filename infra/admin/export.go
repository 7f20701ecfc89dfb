package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/inorder-im/inorder/shared/chat"
)

func exportCommand() command {
	return command{
		name: "export", args: []string{"conversationId"}, about: "writes a conversation as JSON lines",
		help: "The first line is the head, the others are the messages by seq, as the protocol has\nthem. Messages up to the head's lastSeq are in it; what expired or was removed is not.",
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			file := flags.String("o", "", "`file` to write, instead of standard output")
			return func(ctx context.Context, s *session, args []string) error {
				if *file == "" {
					return s.export(ctx, chat.ConversationID(args[0]), s.out)
				}
				return intoFile(*file, func(w io.Writer) error { return s.export(ctx, chat.ConversationID(args[0]), w) })
			}
		},
	}
}

// export writes a conversation page by page.
func (s *session) export(ctx context.Context, id chat.ConversationID, w io.Writer) error {
	head, err := s.operator.Head(ctx, id)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	if err := emit(out, head); err != nil {
		return err
	}
	progress := s.progress()
	count := 0
	for r := (chat.Range{From: 1, To: head.LastSeq}); r.From <= r.To; {
		messages, rest, err := s.operator.LedgerPage(ctx, id, r, pageSize)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if err := emit(out, m); err != nil {
				return err
			}
		}
		count += len(messages)
		progress("%d messages, to seq %d of %d", count, rest.From-1, head.LastSeq)
		r = rest
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// intoFile writes a file that is there only once it is whole.
func intoFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part") // another run may write the same
	if err != nil {
		return fmt.Errorf("-o %s: %w", path, err)
	}
	part := f.Name()
	if err = errors.Join(write(f), f.Sync(), f.Close()); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return nil
}
