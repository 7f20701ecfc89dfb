package clienttest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// A bot is tested while the connection breaks before it hears that its reply was committed.
// All the same the server has the reply, and has it once.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := clienttest.New()
	defer server.Close()
	var broken atomic.Bool
	server.Interfere(clienttest.Hooks{OnRequest: func(r clienttest.Request) clienttest.Fate {
		if r.Action == wire.ActionSend && !broken.Swap(true) {
			return clienttest.CutAfter
		}
		return clienttest.Handle
	}})

	bot, err := client.Dial(ctx, client.Config{
		URL: server.URL(), HTTPClient: server.HTTPClient(), Token: clienttest.Token("bot"),
		UserID: "bot", DeviceID: "server",
	})
	if err != nil {
		panic(err)
	}
	defer bot.Close()
	asked := server.Post("alice", wire.Send{To: "bot", Text: "ping"})
	for in, err := range bot.Incoming(ctx) {
		if err != nil {
			panic(err)
		}
		if _, err := in.Reply(ctx, "pong"); err != nil {
			panic(err)
		}
		break
	}

	for _, m := range server.Ledger("alice", asked.ConversationID) {
		fmt.Printf("%d %s: %s\n", m.Seq, m.SenderID, m.Text)
	}

	// Output:
	// 1 alice: ping
	// 2 bot: pong
}
