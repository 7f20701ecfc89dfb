// Command ack is the function behind the routes ack and clear, by which a user's
// own positions in a conversation go up.
package main

import (
	"time"

	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

// deliverTimeout bounds the pushes, which the answer to the request waits for: a
// function is stopped once it has answered.
const deliverTimeout = 2 * time.Second

func main() {
	start.Routes(store.RequestWrites, func(b start.Backend) (map[string]route.Action, error) {
		b.Pusher.DeliverTimeout = deliverTimeout
		return handler{positions: b.Store, pusher: b.Pusher, log: b.Log}.actions(), nil
	})
}
