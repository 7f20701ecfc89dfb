package template_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/template"
)

// The broken templates are made of one of these and a few lines of their own.
const (
	// function ends in the properties of a function F; its next line is 7.
	function = `Transform: AWS::Serverless-2016-10-31
Resources:
  F:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: provided.al2023
`
	// api ends in the properties of an API; its next line is 9.
	api = `Transform: AWS::Serverless-2016-10-31
Resources:
  F: {Type: AWS::Serverless::Function, Properties: {CodeUri: code, Runtime: provided.al2023}}
  T: {Type: AWS::DynamoDB::Table, Properties: {AttributeDefinitions: [{AttributeName: id, AttributeType: S}], KeySchema: [{AttributeName: id, KeyType: HASH}]}}
  A:
    Type: AWS::Serverless::WebSocketApi
    Properties:
      RouteSelectionExpression: $request.body.action
`
	routes = `      Routes:
        $connect: {FunctionArn: !GetAtt F.Arn}
`
	// table ends in the properties of a table; its next line is 4.
	table = `Resources:
  T:
    Type: AWS::DynamoDB::Table
    Properties:
`
	key = `      AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
      KeySchema: [{AttributeName: id, KeyType: HASH}]
`
	// mapping ends in the properties of a DynamoDB event; its next line is 12.
	mapping = `Transform: AWS::Serverless-2016-10-31
Resources:
  T: {Type: AWS::DynamoDB::Table, Properties: {StreamSpecification: {StreamViewType: KEYS_ONLY}, AttributeDefinitions: [{AttributeName: id, AttributeType: S}], KeySchema: [{AttributeName: id, KeyType: HASH}]}}
  F:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: code
      Runtime: provided.al2023
      Events:
        E:
          Type: DynamoDB
          Properties:
`
	stream = `            Stream: !GetAtt T.StreamArn
            StartingPosition: LATEST
`
	topic   = "  Topic: {Type: AWS::SNS::Topic}\n"
	outputs = "Resources:\n" + topic + "Outputs:\n  O:\n    Value: "
)

// schedule is a function with an event of that type, whose properties are on line 9.
func schedule(properties string) string {
	return function + "      CodeUri: code\n      Events:\n        E: {Type: Schedule, Properties: {" + properties + "}}\n"
}

// queueEvent is a function with a Timeout of a minute and an SQS event, whose properties
// are on line 12, and a queue Q on line 13.
func queueEvent(properties, ofQueue string) string {
	return function + "      CodeUri: code\n      Timeout: 60\n      Events:\n        E:\n          Type: SQS\n          Properties: {" + properties + "}\n" +
		"  Q: {Type: AWS::SQS::Queue, Properties: {" + ofQueue + "}}\n"
}

func TestLoad_BrokenTemplates(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, template string
		options        template.Options
		want           []string // each "line: path: message"
	}{
		// YAML
		{name: "empty", template: "", want: []string{": the template is empty"}},
		{name: "syntax", template: "Resources:\n  A: {Type: x\n  B: y\n", want: []string{
			":2: not valid YAML, here or in the block that begins here: did not find expected ',' or '}'"}},
		{name: "syntax on the first line", template: "A: 'b'c\n", want: []string{
			":1: not valid YAML, here or in the block that begins here: did not find expected key"}},
		{name: "indentation", template: "A:\n  b: 1\n c: 2\n", want: []string{
			":3: not valid YAML, here or in the block that begins here: did not find expected key"}},
		{name: "tab", template: "Resources:\n\tA: x\n", want: []string{
			":2: not valid YAML: found character that cannot start any token"}},
		{name: "list", template: "- a\n", want: []string{":1: a template is a mapping with Resources"}},
		{name: "two documents", template: "Resources:\n" + topic + "---\nb: 1\n", want: []string{
			":3: a template is one YAML document; this starts a second one"}},
		{name: "duplicate key", template: function + "      CodeUri: code\n      Timeout: 3\n      Timeout: 4\n", want: []string{
			`:9: Resources.F.Properties.Timeout: duplicate key "Timeout"; it is first on line 8`}},
		{name: "duplicate resource", template: "Resources:\n" + topic + topic, want: []string{
			`:3: Resources.Topic: duplicate key "Topic"; it is first on line 2`}},
		{name: "alias", template: function + "      CodeUri: code\n      Tags: &t {a: b}\n      Description: *t\n", want: []string{
			":9: Resources.F.Properties.Description: CloudFormation has no YAML aliases; write the value out"}},
		{name: "merge key", template: "Resources:\n  Topic:\n    Type: AWS::SNS::Topic\n    <<: {DeletionPolicy: Retain}\n", want: []string{
			":4: Resources.Topic.<<: CloudFormation has no YAML merge keys; write the values out",
			":4: Resources.Topic.<<: the local cloud does not know << of a resource"}},

		// sections and resources
		{name: "no resources", template: "Description: x\n", want: []string{": Resources: a template needs resources"}},
		{name: "unknown section", template: "Hooks: {}\nResources:\n" + topic, want: []string{
			":1: Hooks: the local cloud does not know the section Hooks"}},
		{name: "rule broken", template: rule("{Assertions: [{Assert: !Equals [!Ref P, b], AssertDescription: set P to b}]}"), want: []string{
			":2: Rules.R.Assertions[0]: the parameters break the rule R: set P to b"}},
		{name: "rule that applies broken", template: rule("{RuleCondition: {'Fn::Not': [{'Fn::Equals': [{Ref: P}, '']}]}, Assertions: [{Assert: !Or [!Equals [!Ref P, b], !Equals [!Ref P, c]], AssertDescription: x}]}"), want: []string{
			":2: Rules.R.Assertions[0]: the parameters break the rule R: x"}},
		{name: "rule of what is not evaluated here", template: rule("{RuleCondition: !Equals [!Ref P, b], Assertions: [{Assert: !Contains [[a], !Ref P]}]}"), want: []string{
			":2: Rules.R.Assertions[0].Assert: the local cloud does not know Fn::Contains in a rule"}},
		{name: "rule of what is no parameter", template: rule("{RuleCondition: !Equals [!Ref P, b], Assertions: [{Assert: !Equals [!Ref Topic, a]}]}"), want: []string{
			`:2: Rules.R.Assertions[0].Assert[0]: a rule uses parameters, and there is none named "Topic"`}},
		{name: "rule without assertions", template: rule("{Assertion: []}"), want: []string{
			":2: Rules.R.Assertion: the local cloud does not know Assertion of a rule",
			":2: Rules.R.Assertions: is required and missing"}},
		{name: "assertion of nothing", template: rule("{Assertions: [{AssertDescription: x}]}"), want: []string{
			":2: Rules.R.Assertions[0]: has no Assert"}},
		{name: "rule no mapping", template: rule("[]"), want: []string{":2: Rules.R: want a mapping, not a list"}},
		{name: "unknown transform", template: "Transform: [AWS::LanguageExtensions]\nResources:\n" + topic, want: []string{
			`:1: Transform[0]: the local cloud does not know the transform "AWS::LanguageExtensions"`}},
		{name: "unknown type", template: "Resources:\n  V:\n    Type: AWS::EC2::VPC\n", want: []string{
			":3: Resources.V.Type: the local cloud cannot run a resource of type AWS::EC2::VPC, nor does it know it to have no effect there"}},
		{name: "no type", template: "Resources:\n  V:\n    Properties: {}\n", want: []string{":2: Resources.V: has no Type"}},
		{name: "unknown attribute", template: "Resources:\n  V:\n    Type: AWS::SNS::Topic\n    Propertys: {}\n", want: []string{
			":4: Resources.V.Propertys: the local cloud does not know Propertys of a resource"}},
		{name: "properties no mapping", template: "Resources:\n  V:\n    Type: AWS::SNS::Topic\n    Properties: []\n", want: []string{
			":4: Resources.V.Properties: want a mapping, not a list"}},
		{name: "cycle", template: "Resources:\n  R:\n    Type: AWS::IAM::Role\n    Properties: {Path: !Sub '${P}'}\n" +
			"  P:\n    Type: AWS::IAM::Policy\n    DependsOn: Q\n  Q:\n    Type: AWS::SQS::Queue\n    Properties: {QueueName: !GetAtt R.Arn}\n", want: []string{
			":2: Resources.R: these resources need each other: R → P → Q → R"}},
		{name: "self reference", template: "Resources:\n  Q:\n    Type: AWS::SQS::Queue\n    Properties: {QueueName: !Ref Q}\n", want: []string{
			":2: Resources.Q: these resources need each other: Q → Q"}},
		{name: "cycle through a generated role", template: function + "      CodeUri: code\n      Policies: [!Sub '${F.Arn}']\n", want: []string{
			":3: Resources.F: these resources need each other: F → FRole → F"}},
		{name: "cycle through the stage", template: api + routes + "      AccessLogSettings: {Format: !Ref G}\n" +
			"  G: {Type: AWS::Serverless::Function, Properties: {CodeUri: code, Runtime: provided.al2, Environment: {Variables: {URL: !Ref ADefaultStage}}}}\n", want: []string{
			":12: Resources.G: these resources need each other: G → ADefaultStage → G"}},

		// functions
		{name: "no CodeUri", template: function, want: []string{":5: Resources.F.Properties.CodeUri: is required and missing"}},
		{name: "no folder", template: function + "      CodeUri: nowhere/\n", want: []string{
			":7: Resources.F.Properties.CodeUri: there is no folder nowhere/"}},
		{name: "code in a bucket", template: function + "      CodeUri: {Bucket: b, Key: k}\n", want: []string{
			":7: Resources.F.Properties.CodeUri: want a string, not a mapping"}},
		{name: "timeout no number", template: function + "      CodeUri: code\n      Timeout: abc\n", want: []string{
			`:8: Resources.F.Properties.Timeout: want a whole number, not "abc"`}},
		{name: "limits", template: function + "      CodeUri: code\n      Timeout: 901\n      MemorySize: 127\n      ReservedConcurrentExecutions: 0\n      Architectures: [x86_64, arm64]\n", want: []string{
			":8: Resources.F.Properties.Timeout: 901 is outside 1 to 900",
			":9: Resources.F.Properties.MemorySize: 127 is outside 128 to 10240",
			":10: Resources.F.Properties.ReservedConcurrentExecutions: 0 keeps the function from ever running; leave it out for no limit",
			":11: Resources.F.Properties.Architectures: want a list of one, x86_64 or arm64"}},
		{name: "image", template: function + "      PackageType: Image\n", want: []string{
			`:7: Resources.F.Properties.PackageType: the local cloud runs functions of PackageType Zip only, not Image`}},
		{name: "runtime", template: strings.Replace(function, "provided.al2023", "python3.14", 1) + "      CodeUri: code\n", want: []string{
			":6: Resources.F.Properties.Runtime: the local cloud runs provided.al2023 and provided.al2 (a Go executable), not python3.14"}},
		{name: "unknown property", template: function + "      CodeUri: code\n      Layers: []\n", want: []string{
			":8: Resources.F.Properties.Layers: the local cloud does not know Layers of AWS::Serverless::Function"}},
		{name: "environment", template: function + "      CodeUri: code\n      Environment:\n        Variables:\n          A1: [x]\n          B1:\n          9X: y\n        Extra: {}\n", want: []string{
			`:10: Resources.F.Properties.Environment.Variables.A1: want a string, not a list`,
			`:11: Resources.F.Properties.Environment.Variables.B1: want a string, not nothing`,
			`:12: Resources.F.Properties.Environment.Variables.9X: a variable's name is a letter, then letters, digits or _`,
			`:13: Resources.F.Properties.Environment.Extra: the local cloud does not know Extra of Environment`}},
		{name: "event type", template: function + "      CodeUri: code\n      Events:\n        H:\n          Type: HttpApi\n", want: []string{
			":9: Resources.F.Properties.Events.H: the local cloud cannot raise HttpApi events"}},
		{name: "globals", template: "Globals:\n  Function: {Role: x, Layers: []}\n  Functions: {}\n  Api: {}\nResources:\n" + topic, want: []string{
			":2: Globals.Function.Layers: the local cloud does not know Layers of Globals.Function",
			":2: Globals.Function.Role: the local cloud does not know Role of Globals.Function",
			":3: Globals.Functions: SAM has no Globals for Functions"}},
		{name: "wrong value in globals, once", template: "Transform: AWS::Serverless-2016-10-31\nGlobals:\n  Function:\n    Runtime: provided.al2\n    CodeUri: code\n    Timeout: soon\n" +
			"Resources:\n  F: {Type: AWS::Serverless::Function}\n  G: {Type: AWS::Serverless::Function}\n", want: []string{
			`:6: Globals.Function.Timeout: want a whole number, not "soon"`}},
		{name: "empty values", template: function + "      CodeUri: ''\n      FunctionName: ''\n      PackageType: !Ref Nothing\n", want: []string{
			":7: Resources.F.Properties.CodeUri: must not be empty",
			":8: Resources.F.Properties.FunctionName: must not be empty",
			`:9: Resources.F.Properties.PackageType: unknown name "Nothing": neither a parameter nor a resource of this template`}},
		{name: "same name", template: function + "      CodeUri: code\n      FunctionName: one\n" +
			"  G: {Type: AWS::Serverless::Function, Properties: {CodeUri: code, Runtime: provided.al2, FunctionName: one}}\n", want: []string{
			":9: Resources.G: has the same FunctionName as F: one"}},
		{name: "several at once", template: function + "      Timeout: x\n      MemorySize: !Ref Nothing\n      Handler: !Foo x\n", want: []string{
			":5: Resources.F.Properties.CodeUri: is required and missing",
			`:7: Resources.F.Properties.Timeout: want a whole number, not "x"`,
			`:8: Resources.F.Properties.MemorySize: unknown name "Nothing": neither a parameter nor a resource of this template`,
			`:9: Resources.F.Properties.Handler: the local cloud does not know the function Fn::Foo`}},

		// intrinsic functions
		{name: "unknown Ref", template: outputs + "!Ref Nothing\n", want: []string{
			`:5: Outputs.O.Value: unknown name "Nothing": neither a parameter nor a resource of this template`}},
		{name: "unknown function in what is not run", template: "Resources:\n  A:\n    Type: AWS::CloudWatch::Alarm\n    Properties:\n      AlarmName: {Fn::Upper: x}\n", want: []string{
			":5: Resources.A.Properties.AlarmName: the local cloud does not know the function Fn::Upper"}},
		{name: "unknown Sub", template: outputs + "!Sub 'a-${Nothing}-${Topic.TopicName}-${Other.Arn}'\n", want: []string{
			`:5: Outputs.O.Value: unknown name "Nothing": neither a parameter nor a resource of this template`,
			`:5: Outputs.O.Value: unknown name "Other": neither a parameter nor a resource of this template`}},
		{name: "unknown attribute of a resource", template: outputs + "!GetAtt Topic.Colour\n", want: []string{
			":5: Outputs.O.Value: the local cloud knows no attribute Colour of Topic, which is an AWS::SNS::Topic"}},
		{name: "GetAtt of a parameter", template: "Parameters: {P: {Type: String, Default: x}}\n" + outputs + "!GetAtt P.Arn\n", want: []string{
			`:6: Outputs.O.Value: unknown name "P": neither a parameter nor a resource of this template`}},
		{name: "malformed functions", template: outputs + "!GetAtt Topic\n  P:\n    Value: !Join [a]\n  Q:\n    Value: !Select [7, [a]]\n  R:\n    Value: !Sub [a, b, c]\n  T:\n    Value: !If [x, y]\n  U:\n    Value: {Ref: [a]}\n", want: []string{
			":5: Outputs.O.Value: Fn::GetAtt takes a resource and an attribute",
			":7: Outputs.P.Value: Fn::Join takes a list of 2 values",
			":9: Outputs.Q.Value: Fn::Select: there is no element 7 in a list of 1",
			":11: Outputs.R.Value: Fn::Sub takes a string, or a list of a string and a mapping",
			":13: Outputs.T.Value: Fn::If takes a list of 3 values",
			":15: Outputs.U.Value: Ref takes a name"}},
		{name: "function only the cloud has", template: outputs + "!ImportValue other\n", want: []string{
			":5: Outputs.O.Value: the local cloud does not know the function Fn::ImportValue"}},
		{name: "dynamic reference", template: outputs + "'{{resolve:ssm:x}}'\n", want: []string{
			":5: Outputs.O.Value: a dynamic reference cannot be resolved locally; make it a parameter"}},
		{name: "condition function as a value", template: outputs + "!Equals [a, a]\n", want: []string{
			":5: Outputs.O.Value: Fn::Equals is only allowed under Conditions"}},
		{name: "resource that is left out", template: "Conditions: {Never: !Equals [a, b]}\nResources:\n  Q: {Type: AWS::SQS::Queue, Condition: Never}\nOutputs: {O: {Value: !Ref Q}}\n", want: []string{
			":4: Outputs.O.Value: Q does not exist because its condition Never is false"}},
		{name: "unknown conditions", template: "Resources:\n  Q: {Type: AWS::SQS::Queue, Condition: No}\n  R: {Type: AWS::SQS::Queue, Properties: {QueueName: !If [Nor, a, b]}}\n", want: []string{
			`:2: Resources.Q.Condition: there is no condition "No"`,
			`:3: Resources.R.Properties.QueueName: there is no condition "Nor"`}},
		{name: "bad conditions", template: "Conditions:\n  A: !Condition B\n  B: !Not [Condition: A]\n  C: yes\n  D: !Equals [!Ref Topic, x]\n  E: !Or [!Condition D]\nResources:\n" + topic, want: []string{
			":3: Conditions.B[0]: the condition A depends on itself",
			":4: Conditions.C: a condition is Fn::Equals, Fn::And, Fn::Or, Fn::Not or Condition",
			":5: Conditions.D[0]: a condition cannot use the resource Topic; only parameters",
			":6: Conditions.E: Fn::Or takes a list of 2 to 10 conditions"}},

		// parameters
		{name: "parameters", template: `Parameters:
  NoDefault: {Type: String}
  Number: {Type: Number, Default: ten}
  Low: {Type: Number, Default: 1, MinValue: 2}
  High: {Type: Number, Default: 9.5, MaxValue: 9}
  Choice: {Type: String, Default: c, AllowedValues: [a, b]}
  Pattern: {Type: String, Default: ab1, AllowedPattern: "[a-z]+"}
  Start: {Type: String, Default: 1ab, AllowedPattern: "[a-z]+"}
  Short: {Type: String, Default: "", MinLength: 1}
  Long: {Type: String, Default: äbc, MaxLength: 2}
  Kind: {Type: AWS::EC2::Image::Id, Default: x}
  Typo: {Type: String, Default: x, Minlength: 1}
  Many: {Type: List<Number>, Default: "1, x"}
  None: {Type: Number, Default: NaN, MinValue: 0}
  Endless: {Type: Number, Default: Inf, MinValue: 0}
  Hex: {Type: Number, Default: "0x10", MinValue: 0}
Resources:
` + topic, want: []string{
			":2: Parameters.NoDefault: parameter NoDefault has no default: give it a value",
			`:3: Parameters.Number: parameter Number: want a number, not "ten"`,
			":4: Parameters.Low: parameter Low: 1 is below MinValue 2",
			":5: Parameters.High: parameter High: 9.5 is above MaxValue 9",
			`:6: Parameters.Choice: parameter Choice: "c" is none of the AllowedValues a, b`,
			`:7: Parameters.Pattern: parameter Pattern: "ab1" does not match AllowedPattern [a-z]+`,
			`:8: Parameters.Start: parameter Start: "1ab" does not match AllowedPattern [a-z]+`,
			`:9: Parameters.Short: parameter Short: "" is shorter than MinLength 1`,
			`:10: Parameters.Long: parameter Long: its 3 characters are longer than MaxLength 2`,
			`:11: Parameters.Kind.Type: "AWS::EC2::Image::Id" is not understood: want String or Number or CommaDelimitedList or List<Number>`,
			":12: Parameters.Typo.Minlength: the local cloud does not know Minlength of a parameter",
			`:13: Parameters.Many: parameter Many: want a number, not "x"`,
			`:14: Parameters.None: parameter None: want a number, not "NaN"`,
			`:15: Parameters.Endless: parameter Endless: want a number, not "Inf"`,
			`:16: Parameters.Hex: parameter Hex: want a number, not "0x10"`}},
		{name: "overrides are checked and known",
			template: "Parameters:\n  P: {Type: Number, Default: 1}\n  Q: {Type: String, Default: a}\nResources:\n" + topic,
			options:  template.Options{Parameters: map[string]string{"P": "x", "R": "y"}},
			want: []string{
				": Parameters: there is no parameter R; the template has P, Q",
				`:2: Parameters.P: parameter P: want a number, not "x"`}},

		// the WebSocket API
		{name: "no routes", template: api, want: []string{":7: Resources.A.Properties.Routes: is required and missing"}},
		{name: "route to no function", template: api + "      Routes:\n        send: {FunctionArn: !GetAtt T.Arn}\n        sync: {FunctionArn: !Ref F}\n        ping: {}\n", want: []string{
			`:10: Resources.A.Properties.Routes.send.FunctionArn: "arn:aws:dynamodb:us-east-1:000000000000:table/inorder-T" is not the ARN of a function of this template`,
			`:11: Resources.A.Properties.Routes.sync.FunctionArn: "inorder-F" is not the ARN of a function of this template`,
			":12: Resources.A.Properties.Routes.ping.FunctionArn: is required and missing"}},
		{name: "route to nothing", template: api + "      Routes:\n        send: {FunctionArn: ''}\n", want: []string{
			":10: Resources.A.Properties.Routes.send.FunctionArn: must not be empty"}},
		{name: "route properties", template: api + "      Routes:\n        send:\n          FunctionArn: !GetAtt F.Arn\n          ApiKeyRequired: true\n          IntegrationTimeout: 30000\n          RequestModels: {}\n          RouteResponseSelectionExpression: x\n", want: []string{
			":12: Resources.A.Properties.Routes.send.ApiKeyRequired: the local cloud has no API keys",
			":13: Resources.A.Properties.Routes.send.IntegrationTimeout: 30000 is outside 50 to 29000",
			":14: Resources.A.Properties.Routes.send.RequestModels: the local cloud does not know RequestModels of a route",
			":15: Resources.A.Properties.Routes.send.RouteResponseSelectionExpression: API Gateway takes $default only"}},
		{name: "route keys", template: api + "      Routes:\n        send-now: {FunctionArn: !GetAtt F.Arn}\n        addUser: {FunctionArn: !GetAtt F.Arn}\n        adduser: {FunctionArn: !GetAtt F.Arn}\n", want: []string{
			":10: Resources.A.Properties.Routes.send-now: SAM takes letters and digits in a route key, or $connect, $disconnect, $default",
			":12: Resources.A.Properties.Routes.adduser: SAM gives the routes addUser and adduser the same logical id"}},
		{name: "route selection", template: strings.Replace(api, "$request.body.action", "$request.header.x", 1) + routes, want: []string{
			`:8: Resources.A.Properties.RouteSelectionExpression: "$request.header.x" is not of the form $request.body.action`}},
		{name: "throttling", template: api + routes + "      DefaultRouteSettings:\n        ThrottlingRateLimit: 0\n        ThrottlingBurstLimit: 0\n        Throttle: 1\n      RouteSettings:\n        $connect: {ThrottlingRateLimit: much}\n        none: {}\n", want: []string{
			":12: Resources.A.Properties.DefaultRouteSettings.ThrottlingRateLimit: 0 lets nothing through; leave it out for no limit of its own",
			":13: Resources.A.Properties.DefaultRouteSettings.ThrottlingBurstLimit: 0 is outside 1 to 2147483647",
			":14: Resources.A.Properties.DefaultRouteSettings.Throttle: the local cloud does not know Throttle of DefaultRouteSettings",
			`:16: Resources.A.Properties.RouteSettings.$connect.ThrottlingRateLimit: want a number, not "much"`,
			":17: Resources.A.Properties.RouteSettings.none: there is no route none"}},
		{name: "stage", template: api + routes + "      StageName: $default\n", want: []string{
			":11: Resources.A.Properties.StageName: a WebSocket API's stage has letters, digits, - and _, not \"$default\""}},
		{name: "two APIs", template: api + routes + "  B:\n    Type: AWS::Serverless::WebSocketApi\n    Properties:\n      RouteSelectionExpression: $request.body.action\n" + routes, want: []string{
			":11: Resources.B: a second WebSocket API beside A; the local cloud serves one"}},
		{name: "authorizer", template: api + routes + "      Auth:\n        AuthType: CUSTOM\n        AuthArn: !GetAtt T.Arn\n        IdentitySource: [method.request.header.x]\n", want: []string{
			`:13: Resources.A.Properties.Auth.AuthArn: "arn:aws:dynamodb:us-east-1:000000000000:table/inorder-T" is not the ARN of a function of this template`,
			`:14: Resources.A.Properties.Auth.IdentitySource[0]: "method.request.header.x" is no identity source: want route.request.header.X, route.request.querystring.X`}},
		{name: "IAM authorizer", template: api + routes + "      Auth: {AuthType: AWS_IAM}\n", want: []string{
			":11: Resources.A.Properties.Auth.AuthType: the local cloud cannot check AWS_IAM signatures; use CUSTOM or NONE"}},
		{name: "authorizer without connect", template: api + "      Routes: {send: {FunctionArn: !GetAtt F.Arn}}\n      Auth: {AuthType: CUSTOM, AuthArn: !GetAtt F.Arn}\n", want: []string{
			":10: Resources.A.Properties.Auth: the authorizer runs on $connect, and there is no such route"}},
		{name: "route responses", template: api + routes +
			"  R:\n    Type: AWS::ApiGatewayV2::RouteResponse\n    Properties: {ApiId: !Ref A, RouteId: !Ref AConnectRoute, RouteResponseKey: $default}\n" +
			"  S:\n    Type: AWS::ApiGatewayV2::RouteResponse\n    Properties: {ApiId: !Ref F, RouteId: !Ref A, RouteResponseKey: x}\n", want: []string{
			":11: Resources.R: API Gateway sends no reply: the route $connect needs RouteResponseSelectionExpression: $default",
			`:16: Resources.S.Properties.ApiId: "inorder-F" is not the API A`,
			`:16: Resources.S.Properties.RouteId: "oevavhgpnk" is no route of A: want !Ref A<Key>Route`,
			`:16: Resources.S.Properties.RouteResponseKey: API Gateway takes $default only`}},

		// tables and queues
		{name: "table without key", template: table + "      TableName: x\n", want: []string{
			":4: Resources.T.Properties.AttributeDefinitions: is required and missing",
			":4: Resources.T.Properties.KeySchema: is required and missing"}},
		{name: "table keys", template: table + "      AttributeDefinitions: [{AttributeName: id, AttributeType: X}]\n      KeySchema: [{AttributeName: id, KeyType: KEY}]\n", want: []string{
			`:5: Resources.T.Properties.AttributeDefinitions[0].AttributeType: "X" is not understood: want S or N or B`,
			`:6: Resources.T.Properties.KeySchema[0].KeyType: "KEY" is not understood: want HASH or RANGE`}},
		{name: "table properties", template: table + key + "      ImportSourceSpecification: {}\n      StreamSpecification: {StreamViewType: ALL}\n      TimeToLiveSpecification: {Enabled: maybe}\n      GlobalSecondaryIndexes:\n        - IndexName: x\n          Projection: {}\n", want: []string{
			":7: Resources.T.Properties.ImportSourceSpecification: the local cloud does not know ImportSourceSpecification of AWS::DynamoDB::Table",
			`:8: Resources.T.Properties.StreamSpecification.StreamViewType: "ALL" is not understood: want KEYS_ONLY or NEW_AND_OLD_IMAGES or NEW_IMAGE or OLD_IMAGE`,
			`:9: Resources.T.Properties.TimeToLiveSpecification.Enabled: want true or false, not "maybe"`,
			":11: Resources.T.Properties.GlobalSecondaryIndexes[0].KeySchema: is required and missing",
			":12: Resources.T.Properties.GlobalSecondaryIndexes[0].Projection.ProjectionType: is required and missing"}},
		{name: "a queue's name", template: "Resources:\n  Q: {Type: AWS::SQS::Queue, Properties: {QueueName: ../../q}}\n", want: []string{
			`:2: Resources.Q.Properties.QueueName: a queue's name has up to 80 letters, digits, - and _, not "../../q"`}},
		{name: "fifo queue", template: "Resources:\n  Q: {Type: AWS::SQS::Queue, Properties: {FifoQueue: true}}\n", want: []string{
			":2: Resources.Q.Properties.FifoQueue: Lambda gives up records to standard queues only, and the local cloud has no others"}},

		{name: "a queue's properties", template: "Resources:\n  Q:\n    Type: AWS::SQS::Queue\n    Properties:\n      DelaySeconds: 901\n      VisibilityTimeout: 43201\n      MessageRetentionPeriod: 59\n      RedrivePolicy:\n        deadLetterTargetArn: !GetAtt Topic.TopicArn\n        maxReceiveCount: 0\n        redrivePermission: x\n" + topic, want: []string{
			":5: Resources.Q.Properties.DelaySeconds: 901 is outside 0 to 900",
			":6: Resources.Q.Properties.VisibilityTimeout: 43201 is outside 0 to 43200",
			":7: Resources.Q.Properties.MessageRetentionPeriod: 59 is outside 60 to 1209600",
			`:9: Resources.Q.Properties.RedrivePolicy.deadLetterTargetArn: "arn:aws:sns:us-east-1:000000000000:inorder-Topic" is not the ARN of a queue of this template`,
			":10: Resources.Q.Properties.RedrivePolicy.maxReceiveCount: 0 is outside 1 to 1000",
			":11: Resources.Q.Properties.RedrivePolicy.redrivePermission: the local cloud does not know redrivePermission of a redrive policy"}},
		{name: "a redrive policy of nothing", template: "Resources:\n  Q:\n    Type: AWS::SQS::Queue\n    Properties:\n      RedrivePolicy: {}\n", want: []string{
			":5: Resources.Q.Properties.RedrivePolicy.deadLetterTargetArn: is required and missing",
			":5: Resources.Q.Properties.RedrivePolicy.maxReceiveCount: is required and missing"}},

		// queue mappings
		{name: "a queue that shows messages too early", template: queueEvent("Queue: !GetAtt Q.Arn", "VisibilityTimeout: 59"), want: []string{
			":12: Resources.F.Properties.Events.E.Properties.Queue: Lambda wants the VisibilityTimeout of Q, 59 seconds, to be at least the function's Timeout, 60 seconds"}},
		{name: "a queue that shows messages too early by default", template: queueEvent("Queue: !GetAtt Q.Arn", ""), want: []string{
			":12: Resources.F.Properties.Events.E.Properties.Queue: Lambda wants the VisibilityTimeout of Q, 30 seconds, to be at least the function's Timeout, 60 seconds"}},
		{name: "a wrong visibility timeout, once", template: queueEvent("Queue: !GetAtt Q.Arn", "VisibilityTimeout: long"), want: []string{
			":12: Resources.F.Properties.Events.E.Properties.Queue: Lambda wants the VisibilityTimeout of Q, 30 seconds, to be at least the function's Timeout, 60 seconds",
			`:13: Resources.Q.Properties.VisibilityTimeout: want a whole number, not "long"`}},
		{name: "no queue", template: queueEvent("BatchSize: 1", "VisibilityTimeout: 60"), want: []string{
			":12: Resources.F.Properties.Events.E.Properties.Queue: is required and missing"}},
		{name: "queue mapping properties", template: queueEvent("Queue: !Ref Q, BatchSize: 11, MaximumBatchingWindowInSeconds: 301, FunctionResponseTypes: [All], ScalingConfig: {MaximumConcurrency: 1}, FilterCriteria: {}", "VisibilityTimeout: 60"), want: []string{
			":12: Resources.F.Properties.Events.E.Properties.BatchSize: 11 is outside 1 to 10",
			":12: Resources.F.Properties.Events.E.Properties.FilterCriteria: the local cloud does not know FilterCriteria of an SQS event",
			`:12: Resources.F.Properties.Events.E.Properties.FunctionResponseTypes[0]: "All" is not understood: want ReportBatchItemFailures`,
			":12: Resources.F.Properties.Events.E.Properties.MaximumBatchingWindowInSeconds: 301 is outside 0 to 300",
			`:12: Resources.F.Properties.Events.E.Properties.Queue: "https://sqs.us-east-1.amazonaws.com/000000000000/inorder-Q" is not the ARN of a queue of this template`,
			":12: Resources.F.Properties.Events.E.Properties.ScalingConfig.MaximumConcurrency: 1 is outside 2 to 1000"}},

		// stream mappings
		{name: "no stream", template: strings.Replace(mapping, "StreamSpecification: {StreamViewType: KEYS_ONLY}, ", "", 1) + stream, want: []string{
			":13: Resources.F.Properties.Events.E.Properties.Stream: the table T has no stream: add a StreamSpecification"}},
		{name: "not a stream", template: mapping + "            Stream: !GetAtt T.Arn\n            StartingPosition: LATEST\n", want: []string{
			`:13: Resources.F.Properties.Events.E.Properties.Stream: "arn:aws:dynamodb:us-east-1:000000000000:table/inorder-T" is no stream of a table of this template`}},
		{name: "no properties", template: strings.Replace(mapping, "          Properties:\n", "", 1), want: []string{
			":10: Resources.F.Properties.Events.E.Properties: is required and missing"}},
		{name: "mapping properties", template: mapping + stream + `            BatchSize: 0
            MaximumRecordAgeInSeconds: 30
            TumblingWindowInSeconds: 5
            FunctionResponseTypes: [Other]
            FilterCriteria: {Filters: [{Pattern: "[1]"}]}
            DestinationConfig: {OnFailure: {Destination: !GetAtt T.Arn}}
`, want: []string{
			":15: Resources.F.Properties.Events.E.Properties.BatchSize: 0 is outside 1 to 10000",
			":16: Resources.F.Properties.Events.E.Properties.MaximumRecordAgeInSeconds: want -1 or at least 60, not 30",
			":17: Resources.F.Properties.Events.E.Properties.TumblingWindowInSeconds: the local cloud does not know TumblingWindowInSeconds of a DynamoDB event",
			`:18: Resources.F.Properties.Events.E.Properties.FunctionResponseTypes[0]: "Other" is not understood: want ReportBatchItemFailures`,
			":19: Resources.F.Properties.Events.E.Properties.FilterCriteria: the local cloud does not know FilterCriteria of a DynamoDB event",
			`:20: Resources.F.Properties.Events.E.Properties.DestinationConfig.OnFailure.Destination: "arn:aws:dynamodb:us-east-1:000000000000:table/inorder-T" is not the ARN of a queue of this template`}},

		// schedules
		{name: "cron of Unix", template: schedule("Schedule: cron(0 3 * * *)"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.Schedule: cron(0 3 * * *): want six fields, minutes hours day-of-month month day-of-week year, as in cron(0 3 * * ? *), not 5"}},
		{name: "cron without ?", template: schedule("Schedule: cron(0 3 * * MON *)"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.Schedule: cron(0 3 * * MON *): want ? for either day-of-month or day-of-week, as in cron(0 3 * * ? *) or cron(0 3 ? * MON-FRI *), not * and MON"}},
		{name: "cron at no hour", template: schedule("Schedule: 'cron(0 24 * * ? *)'"), want: []string{
			`:9: Resources.F.Properties.Events.E.Properties.Schedule: cron(0 24 * * ? *): hours: want 0 to 23, not "24"`}},
		{name: "cron after a space", template: schedule("Schedule: ' cron(0 3 * * ? *)'"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.Schedule: the local cloud runs schedules such as rate(5 minutes), rate(1 hour), rate(2 days) or cron(0 3 * * ? *), not  cron(0 3 * * ? *)"}},
		{name: "at", template: schedule("Schedule: at(2030-01-01T00:00:00)"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.Schedule: the local cloud runs schedules such as rate(5 minutes), rate(1 hour), rate(2 days) or cron(0 3 * * ? *), not at(2030-01-01T00:00:00)"}},
		{name: "rate of nothing", template: schedule("Schedule: rate(0 minutes)"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.Schedule: the local cloud runs schedules such as rate(5 minutes), rate(1 hour), rate(2 days) or cron(0 3 * * ? *), not rate(0 minutes)"}},
		{name: "rate in seconds", template: schedule("Schedule: rate(5 seconds)"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.Schedule: the local cloud runs schedules such as rate(5 minutes), rate(1 hour), rate(2 days) or cron(0 3 * * ? *), not rate(5 seconds)"}},
		{name: "singular and plural", template: schedule("Schedule: rate(1 days)"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.Schedule: EventBridge wants rate(1 day), and the plural for more than 1, not rate(1 days)"}},
		{name: "an age", template: schedule("Schedule: rate(99999999999999999999 days)"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.Schedule: rate(99999999999999999999 days) is longer than 36500 days"}},
		{name: "no schedule", template: schedule("Enabled: true"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.Schedule: is required and missing"}},
		{name: "schedule properties", template: schedule("Schedule: rate(1 day), State: up, Input: '{', StartDate: x"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.Input: the input of a function is JSON",
			":9: Resources.F.Properties.Events.E.Properties.StartDate: the local cloud does not know StartDate of a Schedule event",
			`:9: Resources.F.Properties.Events.E.Properties.State: "up" is not understood: want ENABLED or DISABLED`}},
		{name: "schedule switched twice", template: schedule("Schedule: rate(1 day), State: ENABLED, Enabled: true"), want: []string{
			":9: Resources.F.Properties.Events.E.Properties.State: State and Enabled say the same; SAM takes one of them"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := write(t, tt.template)
			stack, err := template.Load(path, tt.options)
			require.Error(t, err)
			require.Nil(t, stack)
			got := strings.Split(strings.ReplaceAll(err.Error(), path, ""), "\n")
			require.Equal(t, tt.want, got)
		})
	}
}

// rule is a template whose parameter P is "a", with a rule on line 2.
func rule(text string) string {
	return "Rules:\n  R: " + text + "\nParameters: {P: {Type: String, Default: a}}\nResources: {Topic: {Type: AWS::SNS::Topic}}\n"
}

// Every broken template above differs from one of these in a line or two.
func TestLoad_TheirUnbrokenForms(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"function": function + "      CodeUri: code\n",
		"api":      api + routes + "      Auth: {AuthType: NONE}\n",
		"table":    table + key,
		"mapping":  mapping + stream,
		"output":   outputs + "!Ref Topic\n",
		"queue":    queueEvent("Queue: !GetAtt Q.Arn", "VisibilityTimeout: 60"),
		"what only the generated mapping needs, the function does not": mapping + stream +
			"            DestinationConfig: {OnFailure: {Destination: !GetAtt Q.Arn}}\n" +
			"  Q: {Type: AWS::SQS::Queue, Properties: {QueueName: !Sub '${F}-failures'}}\n",
		"a rule that does not apply": rule("{RuleCondition: !Equals [!Ref P, b], Assertions: [{Assert: !Equals [a, b], AssertDescription: x}]}"),
		"a rule that holds":          rule("{Assertions: [{Assert: !And [!Equals [!Ref P, a], !Not [!Equals [!Ref 'AWS::Region', b]]]}]}"),
		"a cycle that a condition leaves out": "Conditions: {Never: !Equals [a, b]}\nResources:\n  Q: {Type: AWS::SQS::Queue}\n" +
			"  A: {Type: AWS::SNS::Topic, Condition: Never, DependsOn: B}\n" +
			"  B: {Type: AWS::SNS::Topic, Condition: Never, DependsOn: A}\n",
		"a cycle that an Fn::If leaves out": "Conditions: {Never: !Equals [a, b]}\nResources:\n" +
			"  Q: {Type: AWS::SQS::Queue, Properties: {QueueName: !If [Never, !Ref R, q]}}\n" +
			"  R: {Type: AWS::SQS::Queue, Properties: {QueueName: !If [Never, !Sub '${Q.QueueName}-r', r]}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := template.Load(write(t, text), template.Options{})
			require.NoError(t, err)
		})
	}
}
