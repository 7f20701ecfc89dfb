package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// Two users talk. Instead of the fake server, name yours.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := clienttest.Listen(ctx)
	if err != nil {
		panic(err)
	}
	defer server.Close()
	start := func(userID string) *client.Client {
		c, err := client.Dial(ctx, client.Config{
			URL: server.URL(), UserID: userID, DeviceID: "phone",
			Token: clienttest.Token(userID), // yours comes from your issuer
			// Store: a *sqlite.Store, to have it all after a restart
		})
		if err != nil {
			panic(err)
		}
		return c
	}
	alice, bob := start("alice"), start("bob")
	defer alice.Close()
	defer bob.Close()

	sent, err := alice.Send(ctx, client.Draft{To: "bob", Text: "Lunch?"})
	if err != nil {
		panic(err)
	}
	for m, err := range bob.Messages(ctx, client.SingleID("alice", "bob"), 0) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d %s: %s\n", m.Seq, m.SenderID, m.Text)
		if m.SenderID == "bob" {
			break
		}
		if _, err := bob.Ack(ctx, m.ConversationID, m.Seq, m.Seq); err != nil {
			panic(err)
		}
		if _, err := bob.Send(ctx, client.Draft{To: "alice", Text: "Gladly."}); err != nil {
			panic(err)
		}
	}
	_, read, err := alice.Receipts(ctx, sent.ConversationID, sent.Seq)
	if err != nil {
		panic(err)
	}
	fmt.Println("read by", read)

	// Output:
	// 1 alice: Lunch?
	// 2 bob: Gladly.
	// read by [alice bob]
}

// A bot answers what others write. What it was not done with when it ended is given to
// its next run, and a reply that it had sent by then is not sent twice.
func ExampleClient_Incoming() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := clienttest.Listen(ctx)
	if err != nil {
		panic(err)
	}
	defer server.Close()
	server.Post("alice", wire.Send{To: "bot", Text: "hello"})
	bot, err := client.Dial(ctx, client.Config{
		URL: server.URL(), UserID: "bot", DeviceID: "server",
		Token: clienttest.Token("bot"), // yours comes from your issuer
		// Store: a *sqlite.Store, to go on where it was
	})
	if err != nil {
		panic(err)
	}
	defer bot.Close()
	for in, err := range bot.Incoming(ctx) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: %s\n", in.SenderID, in.Text)
		sent, err := in.Reply(ctx, "You said: "+in.Text)
		if err != nil {
			panic(err)
		}
		if err := in.Done(); err != nil {
			panic(err)
		}
		fmt.Println("answered with seq", sent.Seq)
		break
	}

	// Output:
	// alice: hello
	// answered with seq 2
}

// A program shows what happens without asking for it.
func ExampleClient_Changes() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var c *client.Client // of Dial
	if c == nil {
		return
	}
	for change := range c.Changes(ctx) {
		switch change := change.(type) {
		case client.MessagesChanged:
			fmt.Println("look at", change.ConversationID, "from", change.FromSeq)
		case client.Progress:
			fmt.Printf("catching up: %d of %d\n", change.Done, change.Total)
		case client.StateChanged:
			fmt.Println(change.State, change.Err)
		}
	}
}
