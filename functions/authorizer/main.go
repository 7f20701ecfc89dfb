// Command authorizer is the Lambda authorizer of the API: it says who may open a
// WebSocket, and as which user.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/inorder-im/inorder/shared/start"
)

func main() {
	start.Function(func(_ context.Context, log *slog.Logger) (any, error) {
		cfg, err := configFromEnv(os.Getenv)
		if err != nil {
			return nil, err
		}
		return newAuthorizer(cfg, log).handle, nil
	})
}
