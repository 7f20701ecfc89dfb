// Command bot answers /time with the time and /echo with the words that follow it.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/sqlite"
)

func main() {
	server := flag.String("server", "127.0.0.1:3000", "`host:port` of the local cloud")
	user := flag.String("user", "bot", "the bot's user `id`")
	data := flag.String("data", "bot.db", "`file` that keeps what it has done")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *server, *user, *data); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// run answers until ctx ends. What it was not done with by then, the next run answers.
func run(ctx context.Context, server, user, data string) error {
	store, err := sqlite.Open(ctx, data)
	if err != nil {
		return err
	}
	defer store.Close()
	bot, err := client.Dial(ctx, client.Config{
		URL: "ws://" + server + "/v1", UserID: user, DeviceID: "bot", Token: devToken(server, user), Store: store,
		Log: slog.Default(),
	})
	if err != nil {
		return err
	}
	defer bot.Close()
	if err := bot.Online(ctx); err != nil {
		return err
	}
	log.Printf("%s is online", user)
	for in, err := range bot.Incoming(ctx) {
		if err != nil {
			return err
		}
		if words := answer(in.Text); words != "" {
			_, err := in.Reply(ctx, words)
			if refused, ok := errors.AsType[*client.Error](err); ok {
				log.Printf("no answer to %s: %v", in.SenderID, refused) // of a group that is no more, say
			} else if err != nil {
				return err
			}
		}
		if err := in.Done(); err != nil {
			return err
		}
	}
	return nil
}

// answer has nothing to say where there is no command, or two bots would talk for ever.
func answer(text string) string {
	switch command, rest, _ := strings.Cut(strings.TrimSpace(text), " "); command {
	case "/time":
		return time.Now().UTC().Format(time.RFC1123)
	case "/echo":
		return strings.TrimSpace(rest)
	}
	return ""
}
