// Command revise is the function behind the routes recall and edit.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"inorder/shared/route"
	"inorder/shared/store"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	s, err := store.Open(context.Background())
	if err != nil {
		log.Error("starting", "err", err)
		os.Exit(1)
	}
	w, err := windowsFromEnv(os.Getenv)
	if err != nil {
		log.Error("starting", "err", err)
		os.Exit(1)
	}
	lambda.Start(route.Serve(log, handler{messages: s, windows: w}.actions()))
}
