// Command send is the function behind the route send: it commits one message.
package main

import (
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

func main() {
	start.Routes(store.RequestWrites, func(b start.Backend) (map[string]route.Action, error) {
		return handler{ledger: b.Store}.actions(), nil
	})
}
