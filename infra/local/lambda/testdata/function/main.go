// Command function is the Lambda function of the tests. It does what its
// payload says; with RAW set it is a runtime of its own making, see raw.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

// Command is a payload.
type Command struct {
	Do    string
	Value string
	Path  string
	N     int
}

// Answer always has the process id, and what else was asked for.
type Answer struct {
	Pid      int
	Value    string
	Env      []string
	Context  *lambdacontext.LambdaContext
	Deadline time.Time
	TraceID  string
}

func main() {
	switch os.Getenv("INIT") {
	case "exit":
		log.Fatal("cannot start")
	case "hang":
		time.Sleep(time.Hour)
	}
	if scenario := os.Getenv("RAW"); scenario != "" {
		runRaw(scenario)
		return
	}
	lambda.Start(handle)
}

func handle(ctx context.Context, c Command) (any, error) {
	answer := Answer{Pid: os.Getpid(), Value: c.Value}
	switch c.Do {
	case "echo":
	case "error":
		return nil, errors.New(c.Value)
	case "panic":
		panic(c.Value)
	case "exit":
		os.Exit(c.N)
	case "sleep":
		time.Sleep(time.Hour)
	case "wait": // says that it has begun, and stays until it may end
		if err := os.WriteFile(c.Path+".begun", fmt.Append(nil, os.Getpid()), 0o600); err != nil {
			return nil, err
		}
		for {
			if _, err := os.Stat(c.Path); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	case "count": // goes on in the background: a byte more each millisecond
		file, err := os.Create(c.Path)
		if err != nil {
			return nil, err
		}
		go func() {
			for {
				_, _ = file.WriteString("x")
				time.Sleep(time.Millisecond)
			}
		}()
	case "until": // the file has so many bytes
		for {
			if info, err := os.Stat(c.Path); err != nil || info.Size() >= int64(c.N) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	case "print":
		fmt.Print(c.Value)
	case "print-error":
		fmt.Fprint(os.Stderr, c.Value)
	case "context":
		answer.Env = os.Environ()
		answer.Context, _ = lambdacontext.FromContext(ctx)
		answer.Deadline, _ = ctx.Deadline()
		answer.TraceID = os.Getenv("_X_AMZN_TRACE_ID")
	case "big":
		return strings.Repeat("x", c.N-2), nil // and two quotes
	case "break-off":
		return &brokenReader{left: strings.NewReader("half an answer")}, nil
	default:
		return nil, fmt.Errorf("unknown command %q", c.Do)
	}
	return answer, nil
}

// brokenReader is a streamed answer that fails half-way.
type brokenReader struct{ left *strings.Reader }

func (r *brokenReader) Read(p []byte) (int, error) {
	if r.left.Len() == 0 {
		return 0, errors.New("the source dried up")
	}
	return r.left.Read(p)
}
