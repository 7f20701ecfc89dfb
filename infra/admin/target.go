package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/inorder-im/inorder/infra/local/address"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// defaultLocal is where a local cloud is, unless it was told otherwise.
const defaultLocal = "127.0.0.1:3000"

// localKey is the access key, and the secret, of all that a local cloud starts.
const localKey = "local"

// localTimeout is how long a local cloud may take to say what it runs.
const localTimeout = 5 * time.Second

// location says which stack is meant.
type location struct {
	stack string
	local address.Address
}

func (l *location) declare(flags *flag.FlagSet) {
	flags.StringVar(&l.stack, "stack", "", "`name` of a deployed stack; region and credentials are found as by the AWS CLI")
	flags.Var(&l.local, "addr", "`address` of a local cloud, such as "+defaultLocal+", which is the default")
}

// flags are those that name the stack.
func (l location) flags() []string {
	switch {
	case l.stack != "":
		return []string{"-stack", l.stack}
	case !l.local.IsZero():
		return []string{"-addr", l.local.URL()}
	}
	return nil
}

// target is a stack that was found.
type target struct {
	name      string
	resources map[string]string // physical ids by logical ids
	store     *store.Store
	operator  *operate.Operator
	streams   *dynamodbstreams.Client
	functions *lambda.Client
	queues    *sqs.Client
}

func (l location) find(ctx context.Context) (*target, error) {
	switch {
	case l.stack != "" && !l.local.IsZero():
		return nil, errors.New("-stack and -addr are two stacks; name one")
	case l.stack != "":
		return deployed(ctx, l.stack)
	case !l.local.IsZero():
		return local(ctx, l.local.URL())
	}
	usual, _ := address.Parse(defaultLocal) // it is one
	t, err := local(ctx, usual.URL())
	if err != nil {
		err = fmt.Errorf("%w; name a deployed stack with -stack, or say where the local cloud is with -addr", err)
	}
	return t, err
}

// deployed asks CloudFormation what the stack is made of. It is more than the 100
// resources that DescribeStackResources gives.
func deployed(ctx context.Context, name string) (*target, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	resources := map[string]string{}
	pages := cloudformation.NewListStackResourcesPaginator(cloudformation.NewFromConfig(cfg), &cloudformation.ListStackResourcesInput{StackName: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("-stack %s: asking CloudFormation for its resources: %w", name, err)
		}
		for _, r := range page.StackResourceSummaries {
			resources[aws.ToString(r.LogicalResourceId)] = aws.ToString(r.PhysicalResourceId)
		}
	}
	return newTarget(name, resources, cfg, cfg)
}

// local asks a local cloud. It is reached by the same APIs.
func local(ctx context.Context, base string) (*target, error) {
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/dev/stack", nil)
	if err != nil {
		return nil, fmt.Errorf("asking the local cloud at %s what it runs: %w", base, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no local cloud answers at %s: %w", base, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading what the local cloud at %s runs: %w", base, err)
	}
	var d struct {
		Name, Region, DynamoDB, AccessKeyID, Endpoint string
		Resources                                     map[string]string
	}
	if response.StatusCode != http.StatusOK || json.Unmarshal(body, &d) != nil {
		return nil, fmt.Errorf("what answers at %s is no local cloud: %s", base, response.Status)
	}
	rest := aws.Config{Region: d.Region, BaseEndpoint: &d.Endpoint, Credentials: credentials.NewStaticCredentialsProvider(localKey, localKey, "")}
	data := rest
	data.BaseEndpoint = &d.DynamoDB
	if d.AccessKeyID != localKey {
		if data.Credentials, err = developers(d.AccessKeyID); err != nil {
			return nil, fmt.Errorf("the DynamoDB of the local cloud at %s: %w", base, err)
		}
	}
	return newTarget(d.Name, d.Resources, data, rest)
}

// developers returns the credentials that a local cloud passes on to a DynamoDB which
// it did not start. With others, LocalStack and DynamoDB Local have other tables.
func developers(accessKeyID string) (aws.CredentialsProvider, error) {
	if os.Getenv("AWS_ACCESS_KEY_ID") != accessKeyID {
		return nil, fmt.Errorf("it is called with the access key %s; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY here as there", accessKeyID)
	}
	return credentials.NewStaticCredentialsProvider(accessKeyID, os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")), nil
}

// newTarget makes the clients: data for DynamoDB and its streams, rest for Lambda
// and SQS.
func newTarget(name string, resources map[string]string, data, rest aws.Config) (*target, error) {
	t := &target{name: name, resources: resources}
	var tables store.Tables
	for id, field := range map[string]*string{
		"Conversations": &tables.Conversations, "Messages": &tables.Messages, "Idempotency": &tables.Idempotency,
		"Members": &tables.Members, "Inboxes": &tables.Inboxes, "Connections": &tables.Connections,
	} {
		var err error
		if *field, err = t.resource(id); err != nil {
			return nil, err
		}
	}
	t.store = store.New(dynamodb.NewFromConfig(data), tables, store.WithLog(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	t.operator = operate.New(t.store)
	t.streams = dynamodbstreams.NewFromConfig(data)
	t.functions = lambda.NewFromConfig(rest)
	t.queues = sqs.NewFromConfig(rest)
	return t, nil
}

// resource returns the physical id of a resource of the template.
func (t *target) resource(logicalID string) (string, error) {
	id := t.resources[logicalID]
	if id == "" {
		return "", fmt.Errorf("the stack %s has no resource %s; is it one of this product?", t.name, logicalID)
	}
	return id, nil
}

// invoke runs a function and gives its answer.
func (t *target) invoke(ctx context.Context, logicalID string, payload []byte) ([]byte, error) {
	name, err := t.resource(logicalID)
	if err != nil {
		return nil, err
	}
	out, err := t.functions.Invoke(ctx, &lambda.InvokeInput{FunctionName: &name, Payload: payload})
	if err != nil {
		return nil, fmt.Errorf("invoking %s: %w", logicalID, err)
	}
	if out.FunctionError != nil {
		var failed struct {
			Message string `json:"errorMessage"`
		}
		if json.Unmarshal(out.Payload, &failed) != nil || failed.Message == "" {
			failed.Message = string(out.Payload)
		}
		return nil, fmt.Errorf("%s: %s", logicalID, failed.Message)
	}
	return out.Payload, nil
}
