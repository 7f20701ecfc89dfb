// Command default is the function behind $default: it answers ping, and tells
// what no route serves that it is unknown.
package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"inorder/shared/route"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	lambda.Start(route.Serve(log, handler{now: time.Now}.actions()))
}
