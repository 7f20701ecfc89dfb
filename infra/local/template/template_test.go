package template_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/cron"
	"github.com/inorder-im/inorder/infra/local/selection"
	"github.com/inorder-im/inorder/infra/local/template"
)

func load(t *testing.T, o template.Options) *template.Stack {
	t.Helper()
	if o.Parameters == nil {
		o.Parameters = map[string]string{}
	}
	if o.Parameters["JwksUrl"] == "" {
		o.Parameters["JwksUrl"] = "http://keys"
	}
	stack, err := template.Load("testdata/chat.yaml", o)
	require.NoError(t, err)
	return stack
}

// at finds the line that is text, indentation included, in the template.
func at(t *testing.T, text string) int {
	t.Helper()
	file, err := os.ReadFile("testdata/chat.yaml")
	require.NoError(t, err)
	i := slices.Index(strings.Split(string(file), "\n"), text)
	require.GreaterOrEqual(t, i, 0, text)
	return i + 1
}

func dir(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	return abs
}

func TestLoad_Functions(t *testing.T) {
	t.Parallel()
	stack := load(t, template.Options{HTTPBase: "http://127.0.0.1:3000", WSBase: "ws://127.0.0.1:3000"})

	var ids []string
	for _, f := range stack.Functions {
		ids = append(ids, f.LogicalID)
		require.Equal(t, "provided.al2023", f.Runtime)
		require.Equal(t, "go1.x", f.Build.Method)
	}
	require.Equal(t, []string{"AuthorizerFunction", "ConnectFunction", "DefaultFunction", "DisconnectFunction",
		"FanoutFunction", "SendFunction", "SyncFunction"}, ids)

	require.Equal(t, &template.Function{
		LogicalID:     "SendFunction",
		Name:          "inorder-SendFunction",
		ARN:           "arn:aws:lambda:us-east-1:000000000000:function:inorder-SendFunction",
		CodeURI:       dir(t, "testdata/functions/send"),
		Runtime:       "provided.al2023",
		Handler:       "bootstrap",
		Architectures: []string{"x86_64"},
		Timeout:       10 * time.Second,
		MemoryMB:      512,
		Environment: map[string]string{
			"CONVERSATIONS_TABLE": "inorder-Conversations",
			"MESSAGES_TABLE":      "inorder-Messages",
			"LOG_LEVEL":           "debug",
			"IDEMPOTENCY_TABLE":   "inorder-once",
			"WEBSOCKET_ENDPOINT":  "http://127.0.0.1:3000/prod",
			"LITERAL":             "${NotMine} costs $5",
			"FEATURE":             "true",
			"RATIO":               "0.5",
		},
		Build: template.Build{Method: "go1.x", TrimPath: true, Line: at(t, "  SendFunction:") + 3},
		Line:  at(t, "  SendFunction:"),
	}, stack.Function("SendFunction"))

	authorizer := stack.Function("AuthorizerFunction").Environment
	require.Equal(t, "web|mobile", authorizer["AUDIENCES"])
	require.Equal(t, "warn", authorizer["LOG_LEVEL"], "the function's own variable wins over Globals")
	require.Equal(t, "http://keys", authorizer["JWKS_URL"])

	fallback := stack.Function("DefaultFunction")
	require.Equal(t, "inorder-fallback", fallback.Name)
	require.Equal(t, 5*time.Second, fallback.Timeout)
	require.Equal(t, 2, fallback.ReservedConcurrency)
	require.Equal(t, []string{"arm64"}, fallback.Architectures)

	fanout := stack.Function("FanoutFunction")
	require.Equal(t, 512, fanout.MemoryMB)
	require.Equal(t, "ws://127.0.0.1:3000/prod", fanout.Environment["WS"])
	require.Equal(t, "none", fanout.Environment["TOPIC"])
	require.Equal(t, "200", fanout.Environment["SMALL_GROUP_MAX"])
	require.Equal(t, []template.StreamMapping{{
		LogicalID:               "FanoutFunctionHeads",
		TableID:                 "Conversations",
		StartingPosition:        "TRIM_HORIZON",
		BatchSize:               50,
		BatchingWindow:          time.Second,
		MaxRetries:              5,
		MaxRecordAge:            time.Hour,
		BisectOnError:           true,
		ReportBatchItemFailures: true,
		ParallelizationFactor:   4,
		OnFailureQueue:          "FanoutFailures",
		Line:                    at(t, "          Type: DynamoDB") + 1,
	}}, fanout.Streams)

	require.Equal(t, []template.Schedule{{
		LogicalID: "SyncFunctionNightly",
		ARN:       "arn:aws:events:us-east-1:000000000000:rule/inorder-SyncFunctionNightly",
		Every:     24 * time.Hour,
		Line:      at(t, "            Schedule: rate(1 day)") - 1,
	}}, stack.Function("SyncFunction").Schedules)

	require.Equal(t, []string{"testdata/chat.yaml:101: " +
		"Resources.Api.Properties.Routes.sync.RouteResponseSelectionExpression: " +
		"without an AWS::ApiGatewayV2::RouteResponse the client gets no reply, here and in the cloud",
	}, stack.Ignored)
}

func TestLoad_API(t *testing.T) {
	t.Parallel()
	api := load(t, template.Options{}).API
	require.Regexp(t, `^[a-z0-9]{10}$`, api.ID)
	const whole = 29 * time.Second
	action, err := selection.Parse("$request.body.action")
	require.NoError(t, err)
	common := &template.Throttle{PerSecond: 500, Burst: 5000} // the account's burst
	require.Equal(t, &template.WebSocketAPI{
		LogicalID:      "Api",
		ID:             api.ID,
		Stage:          "prod",
		RouteSelection: action,
		Routes: []template.Route{
			{Key: "$connect", FunctionID: "ConnectFunction", Timeout: whole, Authorize: true, Throttle: common, Line: at(t, "        $connect:")},
			{Key: "$default", FunctionID: "DefaultFunction", Timeout: whole, Reply: true, Throttle: common, Line: at(t, "        $default:")},
			{Key: "$disconnect", FunctionID: "DisconnectFunction", Timeout: whole, Throttle: common, Line: at(t, "        $disconnect:")},
			{Key: "createGroup", FunctionID: "SendFunction", Timeout: whole, Reply: true, Throttle: common, Line: at(t, "        createGroup:")},
			{Key: "send", FunctionID: "SendFunction", Timeout: 15 * time.Second, Reply: true, Throttle: &template.Throttle{PerSecond: 500, Burst: 20}, Line: at(t, "        send:")},
			{Key: "sync", FunctionID: "SyncFunction", Timeout: whole, Throttle: &template.Throttle{PerSecond: 0.5, Burst: 5000}, Line: at(t, "        sync:")},
		},
		Authorizer: &template.Authorizer{FunctionID: "AuthorizerFunction", IdentitySources: []template.IdentitySource{{From: template.FromQuery, Name: "device"}}},
		Line:       at(t, "  Api:"),
	}, api)
}

func TestLoad_TablesAndQueues(t *testing.T) {
	t.Parallel()
	stack := load(t, template.Options{StackName: "mine", Region: "eu-west-1", AccountID: "123456789012"})
	require.Len(t, stack.Tables, 6)
	require.Equal(t, &template.Table{
		LogicalID:  "Messages",
		Name:       "mine-Messages",
		Attributes: []template.Attribute{{Name: "conversationId", Type: "S"}, {Name: "seq", Type: "N"}, {Name: "messageId", Type: "S"}},
		Key:        []template.KeyElement{{Name: "conversationId", Role: "HASH"}, {Name: "seq", Role: "RANGE"}},
		Indexes: []template.Index{{
			Name:       "byMessageId",
			Key:        []template.KeyElement{{Name: "messageId", Role: "HASH"}},
			Projection: "KEYS_ONLY",
		}},
		Line: at(t, "  Messages:"),
	}, stack.Table("Messages"))
	require.Equal(t, "NEW_AND_OLD_IMAGES", stack.Table("Conversations").StreamView)
	require.Equal(t, "expiresAt", stack.Table("Connections").TTLAttribute)
	require.Equal(t, "mine-once", stack.Table("Idempotency").Name)
	require.Nil(t, stack.Table("ArchiveTable"), "its condition is false")
	require.Equal(t, []*template.Queue{{
		LogicalID: "FanoutFailures",
		Name:      "mine-FanoutFailures",
		ARN:       "arn:aws:sqs:eu-west-1:123456789012:mine-FanoutFailures",
		URL:       "https://sqs.eu-west-1.amazonaws.com/123456789012/mine-FanoutFailures",

		Visibility: 30 * time.Second, Retention: 14 * 24 * time.Hour,
		Line: at(t, "  FanoutFailures:"),
	}}, stack.Queues)
	require.Equal(t, "FanoutFailures", stack.Queues[0].LogicalID)
}

func TestLoad_OutputsAndParameters(t *testing.T) {
	t.Parallel()
	stack := load(t, template.Options{})
	require.Equal(t, map[string]string{
		"WebSocketUrl": "wss://" + stack.API.ID + ".execute-api.us-east-1.amazonaws.com/prod",
		"QueueUrl":     "https://sqs.us-east-1.amazonaws.com/000000000000/inorder-FanoutFailures",
		"LogGroupArn":  "arn:aws:logs:us-east-1:000000000000:log-group:inorder-LogGroup:*",
		"Route":        stack.Outputs["Route"],
		"Stage":        "prod",
	}, stack.Outputs)
	require.Regexp(t, `^[a-z0-9]{10}$`, stack.Outputs["Route"])

	protected := load(t, template.Options{Parameters: map[string]string{
		"DeletionProtection": "true", "AlarmTopicArn": "arn:x", "StageName": "test",
	}})
	require.Equal(t, "inorder-ArchiveTable", protected.Outputs["Archive"])
	require.NotNil(t, protected.Table("ArchiveTable"))
	require.Equal(t, "test", protected.API.Stage)
	require.Equal(t, 20*time.Second, protected.Function("DefaultFunction").Timeout)
	require.Equal(t, "1", protected.Function("SendFunction").Environment["ONLY_PROTECTED"])
	require.Equal(t, "arn:x", protected.Function("FanoutFunction").Environment["TOPIC"])
	require.Equal(t, "true", protected.Parameters["DeletionProtection"])
	require.Equal(t, "200", protected.Parameters["SmallGroupMax"])
}

func TestParameterNames(t *testing.T) {
	t.Parallel()
	names, err := template.ParameterNames("testdata/chat.yaml")
	require.NoError(t, err)
	require.Equal(t, []string{"AlarmTopicArn", "Audiences", "DeletionProtection", "Issuer", "JwksUrl",
		"SmallGroupMax", "StageName"}, names)

	_, err = template.ParameterNames("testdata/none.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// write makes a template in a folder that has a function's code in code/.
func write(t *testing.T, text string) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "code"), 0o700))
	path := filepath.Join(folder, "template.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// withoutPlaces takes file and line from notes.
func withoutPlaces(t *testing.T, notes []string) []string {
	t.Helper()
	place := regexp.MustCompile(`^.*/template\.yaml:\d+: `)
	var all []string
	for _, note := range notes {
		require.Regexp(t, place, note)
		all = append(all, place.ReplaceAllString(note, ""))
	}
	return all
}

// What a user may expect something of, and gets nothing, is named with its line.
func TestLoad_NamesWhatIsPassedOver(t *testing.T) {
	t.Parallel()
	path := write(t, `Transform: AWS::Serverless-2016-10-31
Conditions:
  Never: !Equals [a, b]
Resources:
  F:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: code
      Runtime: provided.al2023
      Handler: bootstrap
      EventInvokeConfig: {MaximumRetryAttempts: 0}
      DeadLetterQueue: {Type: SQS, TargetArn: !GetAtt Q.Arn}
  Q:
    Type: AWS::SQS::Queue
  Topic:
    Type: AWS::SNS::Topic
  Mail:
    Type: AWS::SNS::Subscription
    Properties: {TopicArn: !Ref Topic, Protocol: email, Endpoint: a@example.com}
  NoMail:
    Type: AWS::SNS::Subscription
    Condition: Never
`)
	stack, err := template.Load(path, template.Options{})
	require.NoError(t, err)
	var places []string
	for _, note := range stack.Ignored {
		place, why, _ := strings.Cut(strings.TrimPrefix(note, path), ": ")
		name, _, _ := strings.Cut(why, ": ")
		places = append(places, place+" "+name)
	}
	require.Equal(t, []string{
		":11 Resources.F.Properties.EventInvokeConfig",
		":12 Resources.F.Properties.DeadLetterQueue",
		":17 Resources.Mail",
	}, places)
}

func TestLoad_Defaults(t *testing.T) {
	t.Parallel()
	stack, err := template.Load(write(t, `
Transform: AWS::Serverless-2016-10-31
Resources:
  F:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: code
      Runtime: provided.al2
      Events:
        E: {Type: DynamoDB, Properties: {Stream: !GetAtt T.StreamArn, StartingPosition: LATEST}}
        Off: {Type: DynamoDB, Properties: {Stream: !GetAtt T.StreamArn, StartingPosition: LATEST, Enabled: false}}
  T:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
      KeySchema: [{AttributeName: id, KeyType: HASH}]
      StreamSpecification: {StreamViewType: KEYS_ONLY}
`), template.Options{})
	require.NoError(t, err)
	require.Nil(t, stack.API)
	require.Equal(t, []template.StreamMapping{{
		LogicalID: "FE", TableID: "T", StartingPosition: "LATEST", BatchSize: 100,
		MaxRetries: -1, MaxRecordAge: -1, ParallelizationFactor: 1, Line: 10,
	}}, stack.Function("F").Streams)
	require.Equal(t, 3*time.Second, stack.Function("F").Timeout)
	require.Equal(t, 128, stack.Function("F").MemoryMB)
	require.Equal(t, []string{"x86_64"}, stack.Function("F").Architectures)
	require.Equal(t, []string{"Resources.F.Properties.Events.Off.Properties: the mapping is not enabled"}, withoutPlaces(t, stack.Ignored))
}

func TestLoad_Queues(t *testing.T) {
	t.Parallel()
	const text = `
Transform: AWS::Serverless-2016-10-31
Resources:
  F:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: code
      Runtime: provided.al2023
      Timeout: 60
      Environment: {Variables: {QUEUE: !Ref Retries, NAME: !GetAtt Retries.QueueName}}
      Events:
        Plain:
          Type: SQS
          Properties: {Queue: !GetAtt Retries.Arn}
        Full:
          Type: SQS
          Properties:
            Queue: !GetAtt Dead.Arn
            BatchSize: 1
            MaximumBatchingWindowInSeconds: 20
            FunctionResponseTypes: [ReportBatchItemFailures]
            ScalingConfig: {MaximumConcurrency: 2}
            Enabled: true
        Off:
          Type: SQS
          Properties: {Queue: !GetAtt Dead.Arn, Enabled: false}
  Retries:
    Type: AWS::SQS::Queue
    Properties:
      DelaySeconds: 5
      VisibilityTimeout: 360
      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 5}
  Dead:
    Type: AWS::SQS::Queue
    Properties: {QueueName: dead, VisibilityTimeout: 60}
Outputs:
  Mapping: {Value: !Ref FPlain}
`
	stack, err := template.Load(write(t, text), template.Options{QueueBase: "http://127.0.0.1:3000"})
	require.NoError(t, err)
	f := stack.Function("F")
	require.Equal(t, map[string]string{"QUEUE": "http://127.0.0.1:3000/000000000000/inorder-Retries", "NAME": "inorder-Retries"}, f.Environment)
	require.Equal(t, []template.QueueMapping{
		{LogicalID: "FFull", QueueID: "Dead", BatchSize: 1, BatchingWindow: 20 * time.Second, ReportBatchItemFailures: true, MaxConcurrency: 2, Line: 17},
		{LogicalID: "FPlain", QueueID: "Retries", BatchSize: 10, Line: 14},
	}, f.Queues)
	require.Equal(t, &template.Queue{
		LogicalID: "Retries", Name: "inorder-Retries", ARN: "arn:aws:sqs:us-east-1:000000000000:inorder-Retries",
		URL: "http://127.0.0.1:3000/000000000000/inorder-Retries", Visibility: 6 * time.Minute, Delay: 5 * time.Second,
		Retention: 4 * 24 * time.Hour, DeadLetters: "Dead", MaxReceives: 5, Line: 27,
	}, stack.Queues[1])
	require.Equal(t, []string{"Resources.F.Properties.Events.Off.Properties: the mapping is not enabled"}, withoutPlaces(t, stack.Ignored))
}

func TestLoad_Schedules(t *testing.T) {
	t.Parallel()
	const text = `
Transform: AWS::Serverless-2016-10-31
Parameters:
  How: {Type: String, Default: rate(5 minutes)}
Conditions:
  Runs: !Not [!Equals [!Ref How, never]]
Resources:
  F:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: code
      Runtime: provided.al2023
      Events:
        Often:
          Type: Schedule
          Properties:
            Schedule: !If [Runs, !Ref How, rate(1 day)]
            State: !If [Runs, ENABLED, DISABLED]
        Hourly:
          Type: Schedule
          Properties: {Schedule: rate(1 hour), Enabled: true, Input: '{"all": true}', Name: x, RetryPolicy: {MaximumRetryAttempts: 0}}
        Off:
          Type: Schedule
          Properties: {Schedule: "cron(0 3 * * ? *)", Enabled: false}
        Nightly:
          Type: Schedule
          Properties: {Schedule: "cron(0 3 ? * MON-FRI *)"}
Outputs:
  Rule: {Value: !GetAtt FHourly.Arn}
`
	stack, err := template.Load(write(t, text), template.Options{})
	require.NoError(t, err)
	hourly := template.Schedule{
		LogicalID: "FHourly", ARN: "arn:aws:events:us-east-1:000000000000:rule/inorder-FHourly", Every: time.Hour, Input: `{"all": true}`, Line: 21,
	}
	often := template.Schedule{LogicalID: "FOften", ARN: "arn:aws:events:us-east-1:000000000000:rule/inorder-FOften", Every: 5 * time.Minute, Line: 16}
	expression := func(text string) *cron.Expression {
		e, err := cron.Parse(text)
		require.NoError(t, err)
		return e
	}
	nightly := template.Schedule{
		LogicalID: "FNightly", ARN: "arn:aws:events:us-east-1:000000000000:rule/inorder-FNightly", Cron: expression("0 3 ? * MON-FRI *"), Line: 27,
	}
	require.Equal(t, []template.Schedule{hourly, nightly, often}, stack.Function("F").Schedules)
	require.Equal(t, hourly.ARN, stack.Outputs["Rule"])
	require.Equal(t, []string{"Resources.F.Properties.Events.Off.Properties: the schedule is switched off"}, withoutPlaces(t, stack.Ignored))

	stack, err = template.Load(write(t, text), template.Options{Parameters: map[string]string{"How": "never"}})
	require.NoError(t, err)
	require.Equal(t, []template.Schedule{hourly, nightly}, stack.Function("F").Schedules)
}

func TestLoad_Conditions(t *testing.T) {
	t.Parallel()
	const text = `
Parameters:
  P: {Type: String, Default: a}
  Q: {Type: String, Default: b}
Conditions:
  PA: !Equals [!Ref P, a]
  QA: !Equals [!Ref Q, a]
  Or: !Or [!Condition PA, !Condition QA]
  And: !And [!Condition PA, Condition: QA]
  Neither: !Not [Fn::Or: [Condition: PA, Condition: QA]]
  No: !Equals [x, y]
Resources:
  Topic: {Type: AWS::SNS::Topic}
  Left: {Type: AWS::SQS::Queue, Condition: No}
Outputs:
  Or: {Condition: Or, Value: x}
  And: {Condition: And, Value: x}
  Neither: {Condition: Neither, Value: x}
  Nested: {Value: !If [And, both, !If [Or, one, none]]}
  Left: {Condition: No, Value: x}
`
	for _, tt := range []struct {
		p, q string
		want map[string]string
	}{
		{"a", "a", map[string]string{"Or": "x", "And": "x", "Nested": "both"}},
		{"a", "b", map[string]string{"Or": "x", "Nested": "one"}},
		{"b", "a", map[string]string{"Or": "x", "Nested": "one"}},
		{"b", "b", map[string]string{"Neither": "x", "Nested": "none"}},
	} {
		stack, err := template.Load(write(t, text), template.Options{Parameters: map[string]string{"P": tt.p, "Q": tt.q}})
		require.NoError(t, err)
		require.Equal(t, tt.want, stack.Outputs)
		require.Empty(t, stack.Queues)
	}
}

func TestLoad_IgnoreGlobals(t *testing.T) {
	t.Parallel()
	stack, err := template.Load(write(t, `
Transform: AWS::Serverless-2016-10-31
Globals:
  Function: {CodeUri: code, Runtime: provided.al2, Timeout: 9, MemorySize: 512}
Resources:
  All: {Type: AWS::Serverless::Function}
  Some: {Type: AWS::Serverless::Function, IgnoreGlobals: [Timeout]}
  None:
    Type: AWS::Serverless::Function
    IgnoreGlobals: "*"
    Properties: {CodeUri: code, Runtime: provided.al2023}
`), template.Options{})
	require.NoError(t, err)
	require.Equal(t, 9*time.Second, stack.Function("All").Timeout)
	require.Equal(t, 3*time.Second, stack.Function("Some").Timeout)
	require.Equal(t, 512, stack.Function("Some").MemoryMB)
	require.Equal(t, 128, stack.Function("None").MemoryMB)
}

func TestLoad_FilePathIsInTheError(t *testing.T) {
	t.Parallel()
	path := write(t, "Resources: {A: {Type: AWS::EC2::Instance}}\n")
	_, err := template.Load(path, template.Options{})
	var e *template.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, path, e.File)
	require.Equal(t, 1, e.Line)
	require.Equal(t, "Resources.A.Type", e.Path)
}

// Whatever line is missing (every fourth is tried), Load ends, and what it accepts
// holds together.
func TestLoad_AnyLineMissing(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS("testdata")))
	text, err := os.ReadFile("testdata/chat.yaml")
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	path := filepath.Join(folder, "chat.yaml")
	for i := 0; i < len(lines); i += 4 {
		without := slices.Concat(lines[:i], lines[i+1:])
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(without, "\n")), 0o600))
		stack, err := template.Load(path, template.Options{Parameters: map[string]string{"JwksUrl": "x"}})
		if err != nil {
			continue
		}
		for _, f := range stack.Functions {
			require.DirExists(t, f.CodeURI)
			for _, m := range f.Streams {
				require.NotNil(t, stack.Table(m.TableID), "without line %d", i+1)
			}
		}
		if stack.API == nil {
			continue
		}
		for _, r := range stack.API.Routes {
			require.NotNil(t, stack.Function(r.FunctionID), "without line %d", i+1)
		}
	}
}

// The stack that this repository deploys loads, and every action has its reply but tell,
// which is for those who want none.
func TestLoad_ThisProject(t *testing.T) {
	t.Parallel()
	stack, err := template.Load("../../../template.yaml", template.Options{Parameters: map[string]string{
		"JwksUrl": "http://127.0.0.1/keys", "JwtIssuer": "me",
	}})
	require.NoError(t, err)
	require.NotNil(t, stack.API)
	require.NotNil(t, stack.API.Authorizer)
	for _, r := range stack.API.Routes {
		require.Equal(t, !slices.Contains([]string{"$connect", "$disconnect", "tell"}, r.Key), r.Reply, r.Key)
	}
	for _, f := range stack.Functions {
		require.Equal(t, "makefile", f.Build.Method, f.LogicalID)
	}
}

// A new account has ten environments for all its functions, none of which can be
// reserved. By default the fan-out leaves four of them to logins and sends.
func TestLoad_ThisProjectFitsANewAccount(t *testing.T) {
	t.Parallel()
	const environments, shards, left = 10, 4, 4
	with := func(name, value string) *template.Stack {
		stack, err := template.Load("../../../template.yaml", template.Options{Parameters: map[string]string{
			"JwksUrl": "http://127.0.0.1/keys", "JwtIssuer": "me", name: value,
		}})
		require.NoError(t, err)
		return stack
	}
	taken := func(stack *template.Stack) (sum int) {
		for _, f := range stack.Functions {
			require.Zero(t, f.ReservedConcurrency, f.LogicalID)
			for _, m := range f.Streams {
				sum += shards * m.ParallelizationFactor
			}
			for _, m := range f.Queues {
				require.NotZero(t, m.MaxConcurrency, "%s is not bounded", m.LogicalID)
				sum += m.MaxConcurrency
			}
		}
		return sum
	}
	require.Equal(t, environments-left, taken(with("JwtIssuer", "me")), "with the defaults")
	require.Equal(t, environments-left+2, taken(with("MaxCrowdMembers", "100000")), "infra/README.md says that crowds take two")
	require.Equal(t, 10, with("FanoutLanes", "10").Function("FanoutFunction").Streams[0].ParallelizationFactor, "the most there are")
}

// Parameters that CloudFormation would fail on half-way, or that would do nothing, are
// refused before, and told what to do.
func TestLoad_ThisProjectsRules(t *testing.T) {
	t.Parallel()
	const certificate = "arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012"
	for name, test := range map[string]struct {
		domain, certificate, zone string
		alarms, email             string
		want                      string
	}{
		"no domain":                      {},
		"a domain":                       {domain: "chat.example.com", certificate: certificate},
		"a domain and its zone":          {domain: "chat.example.com", certificate: certificate, zone: "Z0123456789ABCDEFGHIJ"},
		"a certificate for later":        {certificate: certificate},
		"a domain without certificate":   {domain: "chat.example.com", want: "DomainName needs CertificateArn: set it to the ARN of a certificate for that name"},
		"a zone and no domain":           {zone: "Z0123456789ABCDEFGHIJ", want: "set DomainName, or leave HostedZoneId empty."},
		"a domain, zone, no certificate": {domain: "chat.example.com", zone: "Z0123456789ABCDEFGHIJ", want: "DomainName needs CertificateArn"},
		"alarms by mail":                 {alarms: "on", email: "me@example.com"},
		"alarms without mail":            {alarms: "on"},
		"mail and no alarms":             {email: "me@example.com", want: "set Alarms=on, or leave AlarmEmail empty."},
	} {
		stack, err := template.Load("../../../template.yaml", template.Options{Parameters: map[string]string{
			"JwksUrl": "http://127.0.0.1/keys", "JwtIssuer": "me",
			"DomainName": test.domain, "CertificateArn": test.certificate, "HostedZoneId": test.zone,
			"Alarms": cmp.Or(test.alarms, "off"), "AlarmEmail": test.email,
		}})
		if test.want != "" {
			require.ErrorContains(t, err, test.want, name)
			continue
		}
		require.NoError(t, err, name)
		// Who has to point the domain to the API is told where to.
		_, told := stack.Outputs["DomainTarget"]
		require.Equal(t, test.domain != "" && test.zone == "", told, name)
	}
}

// What is off by default is understood when it is on.
func TestLoad_ThisProjectWithAllOn(t *testing.T) {
	t.Parallel()
	_, err := template.Load("../../../template.yaml", template.Options{Parameters: map[string]string{
		"JwksUrl": "http://127.0.0.1/keys", "JwtIssuer": "me", "Alarms": "on", "AlarmEmail": "me@example.com", "AccessLogs": "on", "Tracing": "Active",
		"MaxCrowdMembers": "100000", "MessageIndex": "on", "DomainName": "chat.example.com",
		"CertificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012",
	}})
	require.NoError(t, err)
}

// Whose tokens are good is said by https, or by this machine.
func TestLoad_ThisProjectsKeys(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"https://login.example.com/.well-known/jwks.json": true,
		"http://127.0.0.1:3000/dev/jwks.json":             true,
		"http://127.8.9.10/jwks":                          true,
		"http://localhost:3000/dev/jwks.json":             true,
		"http://[::1]:3000/dev/jwks.json":                 true,
		"http://login.example.com/.well-known/jwks.json":  false,
		"http://10.0.0.1/jwks":                            false,
		"http://127.0.0.1.example.com/jwks":               false,
		"http://localhost@login.example.com/jwks":         false,
		"http://127.0.0.1:3000@login.example.com/jwks":    false,
		"ftp://127.0.0.1/jwks":                            false,
		"https://":                                        false,
	} {
		_, err := template.Load("../../../template.yaml", template.Options{Parameters: map[string]string{"JwksUrl": address, "JwtIssuer": "me"}})
		if good {
			require.NoError(t, err, address)
		} else {
			require.ErrorContains(t, err, "AllowedPattern", address)
		}
	}
}
