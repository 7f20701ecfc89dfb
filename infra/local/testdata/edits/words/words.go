// Package words is what the functions share.
package words

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/events"
)

const shared = "shared"

// Answer is a function's name and version, and what it was told.
func Answer(function string, event events.APIGatewayWebsocketProxyRequest) (events.APIGatewayProxyResponse, error) {
	var frame struct {
		Text  string
		Until string // a file to wait for
	}
	if event.Body != "" {
		if err := json.Unmarshal([]byte(event.Body), &frame); err != nil {
			return events.APIGatewayProxyResponse{}, err
		}
	}
	for frame.Until != "" {
		if _, err := os.Stat(frame.Until); err == nil {
			break
		}
		if err := os.WriteFile(frame.Until+".begun", nil, 0o600); err != nil {
			return events.APIGatewayProxyResponse{}, err
		}
		time.Sleep(time.Millisecond)
	}
	return events.APIGatewayProxyResponse{StatusCode: 200, Body: fmt.Sprintf("%s %s %s", function, shared, frame.Text)}, nil
}
