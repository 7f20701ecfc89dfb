// Command sync is the function behind the routes by which a device pulls: sync,
// history, changes, conversations, members and receipts.
package main

import (
	"os"

	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

func main() {
	start.Routes(store.RequestReads, func(b start.Backend) (map[string]route.Action, error) {
		w, err := store.WindowsFromEnv(os.Getenv)
		if err != nil {
			return nil, err
		}
		return handler{store: b.Store, attend: route.NewAttend(b.Log, b.Store, b.Pusher), windows: told(w)}.actions(), nil
	})
}
