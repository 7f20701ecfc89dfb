// Command conversation is the function behind the routes that make a group and
// change its roster, title and state.
package main

import (
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

func main() {
	start.Routes(store.RequestWrites, func(b start.Backend) (map[string]route.Action, error) {
		return handler{groups: b.Store}.actions(), nil
	})
}
