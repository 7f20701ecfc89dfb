//go:build !windows

package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/inorder-im/inorder/infra/local/build"
	"github.com/inorder-im/inorder/infra/local/lambda"
)

// build compiles the functions into their folder. What is there is up to date after
// a moment.
func (c *cloud) build(ctx context.Context, folder string) (map[string]string, error) {
	c.out.step("building %d functions", len(c.stack.Functions))
	return c.buildOnly(ctx, nil, build.Options{
		OutDir: folder,
		Progress: func(function string, took time.Duration, done, total int) {
			c.out.step("built %s (%d of %d, %.1f s)", shortName(function), done, total, took.Seconds())
		},
	}, func() { c.out.step("waiting for another local cloud that builds the same functions") })
}

// buildOnly compiles some, nil for all. It waits until no other local cloud does it.
func (c *cloud) buildOnly(ctx context.Context, only []string, o build.Options, waiting func()) (map[string]string, error) {
	unlock, err := awaitLock(ctx, filepath.Join(o.OutDir, buildLock), waiting)
	if err != nil {
		return nil, err
	}
	defer unlock()
	o.Only, o.Debug = only, c.debugged
	return build.Functions(ctx, c.stack, o)
}

// awsEnv is what the AWS SDK finds in the environment, here and in functions.
// The developer's own credentials are passed on for a DynamoDB elsewhere only.
func (c *cloud) awsEnv() map[string]string {
	env := map[string]string{
		"AWS_ACCESS_KEY_ID":                 "local",
		"AWS_SECRET_ACCESS_KEY":             "local",
		"AWS_ENDPOINT_URL_DYNAMODB":         c.dynamoDB,
		"AWS_ENDPOINT_URL_DYNAMODB_STREAMS": c.database,
		"AWS_ENDPOINT_URL_SQS":              c.endpoint,
		"AWS_ENDPOINT_URL_LAMBDA":           c.base,
		"AWS_EC2_METADATA_DISABLED":         "true",
	}
	if c.elsewhere && os.Getenv("AWS_ACCESS_KEY_ID") != "" {
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
			if value := os.Getenv(name); value != "" {
				env[name] = value
			}
		}
	}
	return env
}

func (c *cloud) credentials() credentials.StaticCredentialsProvider {
	env := c.awsEnv()
	return credentials.NewStaticCredentialsProvider(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], env["AWS_SESSION_TOKEN"])
}

// startFunctions runs the executables when they are invoked.
func (c *cloud) startFunctions(executables map[string]string) (err error) {
	var functions []lambda.Function
	for _, f := range c.stack.Functions {
		env := c.awsEnv()
		env["AWS_SDK_UA_APP_ID"] = f.LogicalID // so that a proxy can tell whose request it sees
		functions = append(functions, lambda.Function{
			Function: *f, Dir: executables[f.LogicalID], Env: env, Debug: slices.Contains(c.debugged, f.LogicalID),
		})
	}
	c.functions, err = lambda.New(lambda.Config{
		Functions: functions,
		Region:    c.stack.Region,
		Reaper:    c.reaper,
		Output:    func(function, line string) { c.out.function(shortName(function), line, c.rawLogs) },
		Answered:  func(string) { c.wakeStreams() },
		Started:   c.tellDebugger,
		Log:       c.out.logger("lambda"),
	})
	if err != nil {
		return err
	}
	c.onClose(func(ctx context.Context) { _ = c.functions.Close(ctx) })
	return nil
}

// shortName is a function's name as people say it: send for SendFunction.
func shortName(logicalID string) string {
	return strings.ToLower(cmp.Or(strings.TrimSuffix(logicalID, "Function"), logicalID))
}
