package client_test

import (
	"context"
	"fmt"
	"time"

	"inorder/shared/client"
	"inorder/shared/client/internal/fakeserver"
)

// Two users talk. Instead of the fake server, name yours.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := fakeserver.Listen(ctx)
	if err != nil {
		panic(err)
	}
	defer server.Close()
	start := func(userID string) *client.Client {
		c, err := client.Dial(ctx, client.Config{
			URL: server.URL(), UserID: userID, DeviceID: "phone",
			Token: fakeserver.Token(userID), // yours comes from your issuer
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
	// read by [bob]
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
