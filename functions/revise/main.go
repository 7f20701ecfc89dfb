// Command revise is the function behind the routes recall and edit.
package main

import (
	"os"

	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

func main() {
	start.Routes(store.RequestWrites, func(b start.Backend) (map[string]route.Action, error) {
		w, err := store.WindowsFromEnv(os.Getenv)
		if err != nil {
			return nil, err
		}
		return handler{messages: b.Store, windows: w}.actions(), nil
	})
}
