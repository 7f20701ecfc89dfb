// Command cli is a chat for the terminal, or for a script that writes to its standard
// input.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/sqlite"
)

var errUsage = errors.New("/list  /to NAME  /edit SEQ TEXT  /recall SEQ  /quit  or, after a /to, what you have to say")

func main() {
	server := flag.String("server", "127.0.0.1:3000", "`host:port` of the local cloud")
	user := flag.String("user", "me", "your user `id`")
	data := flag.String("data", "chat.db", "`file` that keeps your messages")
	flag.Parse()
	ctx, cancel := context.WithCancel(context.Background())
	store, err := sqlite.Open(ctx, *data)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	c, err := client.Dial(ctx, client.Config{
		URL: "ws://" + *server + "/v1", UserID: *user, DeviceID: "terminal", Token: devToken(*server, *user), Store: store,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	defer cancel()
	t := terminal{Client: c, user: *user}
	go func() {
		for change := range c.Changes(ctx) {
			report(t.show(ctx, change))
		}
	}()
	report(t.do(ctx, "/list"))
	for in := bufio.NewScanner(os.Stdin); in.Scan() && in.Text() != "/quit"; {
		report(t.do(ctx, in.Text()))
	}
}

func report(err error) {
	if err != nil {
		fmt.Println("--", err)
	}
}

// terminal shows the conversation id, up to the message with the seq shown.
type terminal struct {
	*client.Client
	mu    sync.Mutex
	user  string
	id    client.ConversationID
	to    client.Draft // what is sent there, without the words
	shown int64
}

// do does what a line says.
func (t *terminal) do(ctx context.Context, line string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // what is sent stays in the outbox
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch words := strings.SplitN(line, " ", 3); {
	case line == "/list":
		err := t.Online(ctx) // or what is known without
		for _, c := range t.Conversations() {
			fmt.Printf("-- %s: %d unread\n", cmp.Or(c.Peer, string(c.ConversationID)), c.Unread)
		}
		return err
	case words[0] == "/to" && len(words) == 2:
		t.id, t.to, t.shown = client.SingleID(t.user, words[1]), client.Draft{To: words[1]}, 0
		id := client.ConversationID(words[1])
		if _, ok := t.Conversation(id); ok { // a group, say
			t.id, t.to = id, client.Draft{ConversationID: id}
		}
		latest, err := t.Latest(ctx, t.id, 20)
		t.print(latest)
		return err
	case words[0] == "/edit" && len(words) == 3, words[0] == "/recall" && len(words) == 2:
		seq, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return errUsage
		}
		found, err := t.Stored(ctx, t.id, seq-1, 1)
		switch {
		case err != nil:
			return err
		case len(found) == 0 || found[0].Seq != seq: // the next one, if there is none with this seq
			return fmt.Errorf("message %d is not here", seq)
		}
		if words[0] == "/recall" {
			_, err = t.Recall(ctx, found[0])
		} else {
			_, err = t.Edit(ctx, found[0], words[2])
		}
		return err
	case line == "", t.id == "", slices.Contains([]string{"/to", "/edit", "/recall"}, words[0]):
		return errUsage
	default:
		t.to.Text = line
		_, err := t.Send(ctx, t.to)
		return err
	}
}

// show prints what is new.
func (t *terminal) show(ctx context.Context, change client.Change) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch change := change.(type) {
	case client.MessagesChanged:
		if change.ConversationID == t.id {
			news, err := t.Stored(ctx, t.id, t.shown, 1000)
			t.print(news)
			return err
		}
		c, _ := t.Conversation(change.ConversationID)
		fmt.Printf("-- %s: %d unread\n", cmp.Or(c.Peer, string(c.ConversationID)), c.Unread)
	case client.Settled: // for which Send did not wait
		return change.Err
	case client.StateChanged:
		fmt.Printf("-- %s\n", change.State)
		return change.Err
	}
	return nil
}

// print shows messages, which are read then.
func (t *terminal) print(messages []client.Message) {
	for _, m := range messages {
		t.shown = m.Seq
		switch {
		case client.IsEvent(m):
			m.Text = fmt.Sprintf("(%s of %d) %s", m.Event.Kind, m.Event.TargetSeq, m.Text)
		case m.Status == client.StatusRecalled:
			m.Text = "(recalled)"
		}
		fmt.Println(m.Seq, m.SenderID+":", m.Text)
	}
	if len(messages) > 0 {
		go t.Ack(context.Background(), t.id, t.shown, t.shown)
	}
}
