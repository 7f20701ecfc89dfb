// Command revise is the function behind the routes recall and edit.
package main

import (
	"context"
	"log/slog"
	"os"

	"inorder/shared/route"
	"inorder/shared/start"
	"inorder/shared/store"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		w, err := windowsFromEnv(os.Getenv)
		if err != nil {
			return nil, err
		}
		s, err := store.Open(ctx)
		return route.Serve(log, handler{messages: s, windows: w}.actions()), err
	})
}
