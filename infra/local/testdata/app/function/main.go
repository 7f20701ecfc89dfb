// Command function is every function of the small application, by its ROLE.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	switch os.Getenv("ROLE") {
	case "crash":
		panic("the configuration is missing")
	case "stuck":
		lambda.Start(func() error {
			fmt.Println("stuck")
			time.Sleep(time.Hour)
			return nil
		})
	case "tick":
		lambda.Start(func(event events.EventBridgeEvent) error {
			fmt.Println("tick of", event.Source, event.Resources)
			return nil
		})
	default:
		lambda.Start(echo)
	}
}

// echo answers with the text, after a while if asked to.
func echo(_ context.Context, event events.APIGatewayWebsocketProxyRequest) (events.APIGatewayProxyResponse, error) {
	if event.RequestContext.EventType != "MESSAGE" {
		return events.APIGatewayProxyResponse{StatusCode: 200}, nil
	}
	var frame struct {
		Text   string
		WaitMS int
	}
	if err := json.Unmarshal([]byte(event.Body), &frame); err != nil {
		return events.APIGatewayProxyResponse{}, err
	}
	fmt.Println("heard", frame.Text)
	time.Sleep(time.Duration(frame.WaitMS) * time.Millisecond)
	return events.APIGatewayProxyResponse{StatusCode: 200, Body: frame.Text}, nil
}
