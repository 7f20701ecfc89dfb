// Command default is the function behind $default: it answers ping, and tells
// what no route serves that it is unknown.
package main

import (
	"time"

	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

func main() {
	start.Routes(store.RequestReads, func(b start.Backend) (map[string]route.Action, error) {
		return handler{now: time.Now, attend: route.NewAttend(b.Log, b.Store, b.Pusher)}.actions(), nil
	})
}
