// Command function is every function of the small application, by its ROLE.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
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
	case "post":
		lambda.Start(post)
	case "retry":
		lambda.Start(retry)
	case "refuse":
		lambda.Start(func() error { return errors.New("no") })
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

// post sends the frame to the queue, by the endpoint that the environment tells.
func post(ctx context.Context, event events.APIGatewayWebsocketProxyRequest) (events.APIGatewayProxyResponse, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return events.APIGatewayProxyResponse{}, err
	}
	_, err = sqs.NewFromConfig(cfg).SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: aws.String(os.Getenv("QUEUE")), MessageBody: aws.String(event.Body),
	})
	return events.APIGatewayProxyResponse{StatusCode: 200}, err
}

// retry fails for messages that say so.
func retry(event events.SQSEvent) (answer events.SQSEventResponse, _ error) {
	for _, m := range event.Records {
		fmt.Println("receive", m.Attributes["ApproximateReceiveCount"], "of", m.Body)
		if strings.Contains(m.Body, "fail") {
			answer.BatchItemFailures = append(answer.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
		}
	}
	return answer, nil
}
