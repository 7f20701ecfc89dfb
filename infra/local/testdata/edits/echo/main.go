// Command echo answers.
package main

import (
	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/inorder-im/inorder/words"
)

const name = "echo"

func main() {
	lambda.Start(func(event events.APIGatewayWebsocketProxyRequest) (events.APIGatewayProxyResponse, error) {
		return words.Answer(name, event)
	})
}
