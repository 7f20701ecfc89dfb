package template

import "maps"

const (
	typeFunction      = "AWS::Serverless::Function"
	typeWebSocketAPI  = "AWS::Serverless::WebSocketApi"
	typeRouteResponse = "AWS::ApiGatewayV2::RouteResponse"
	typeMapping       = "AWS::Lambda::EventSourceMapping"
	typeTable         = "AWS::DynamoDB::Table"
	typeQueue         = "AWS::SQS::Queue"

	typeRoute = "AWS::ApiGatewayV2::Route" // made by SAM from the API's Routes
	typeStage = "AWS::ApiGatewayV2::Stage" // made by SAM for the API
)

// kind is what references to a resource of one type return. The patterns may use
// {name} {stage} {hash} {apiID} {region} {account} {partition} {suffix}, as the resource
// type's "Return values" in the CloudFormation reference describe them.
type kind struct {
	nameProperty string // the property that gives {name}; else it is made up
	ref          string
	attrs        map[string]string // of Fn::GetAtt

	// properties are those that the local cloud reads, or that have no meaning on
	// one machine. nil: nothing in the resource has, and nothing is checked.
	properties map[string]bool

	note string // why the resource has no effect, if the user may expect one

	passedOver map[string]string // the same for properties, by name
}

var kinds = map[string]kind{
	typeFunction: {
		nameProperty: "FunctionName",
		ref:          "{name}",
		attrs:        map[string]string{"Arn": "arn:{partition}:lambda:{region}:{account}:function:{name}"},
		properties: set(`Architectures CodeUri Environment Events FunctionName Handler MemorySize PackageType
			ReservedConcurrentExecutions Runtime Timeout

			AssumeRolePolicyDocument AutoPublishAlias AutoPublishAliasAllProperties AutoPublishCodeSha256
			CodeSigningConfigArn DeadLetterQueue DeploymentPreference Description EphemeralStorage
			EventInvokeConfig KmsKeyArn LoggingConfig PermissionsBoundary Policies PropagateTags
			ProvisionedConcurrencyConfig RecursiveLoop Role RolePath RuntimeManagementConfig SnapStart
			SourceKMSKeyArn Tags Tracing VersionDeletionPolicy VersionDescription VpcConfig`),
		passedOver: map[string]string{
			"EventInvokeConfig": byDefault,
			"DeadLetterQueue":   "an event that the function fails on is logged and dropped",
		},
	},
	typeWebSocketAPI: {
		ref:   "{apiID}",
		attrs: map[string]string{"ApiId": "{apiID}", "ApiEndpoint": "wss://{apiID}.execute-api.{region}.{suffix}"},
		properties: set(`Auth DefaultRouteSettings RouteSelectionExpression RouteSettings Routes StageName

			AccessLogSettings ApiKeySelectionExpression Description DisableExecuteApiEndpoint
			DisableSchemaValidation Domain FailOnWarnings IpAddressType Name PropagateTags Tags`),
	},
	typeRouteResponse: {
		ref:        "{hash}",
		attrs:      map[string]string{"RouteResponseId": "{hash}"},
		properties: set(`ApiId RouteId RouteResponseKey`),
	},
	typeTable: {
		nameProperty: "TableName",
		ref:          "{name}",
		attrs: map[string]string{
			"Arn":       "arn:{partition}:dynamodb:{region}:{account}:table/{name}",
			"StreamArn": "arn:{partition}:dynamodb:{region}:{account}:table/{name}/stream/2026-01-01T00:00:00.000",
		},
		properties: set(`AttributeDefinitions GlobalSecondaryIndexes KeySchema
			StreamSpecification TableName TimeToLiveSpecification

			BillingMode ContributorInsightsSpecification DeletionProtectionEnabled OnDemandThroughput
			PointInTimeRecoverySpecification ProvisionedThroughput ResourcePolicy SSESpecification
			TableClass Tags WarmThroughput`),
	},
	typeQueue: {
		nameProperty: "QueueName",
		ref:          "https://sqs.{region}.{suffix}/{account}/{name}",
		attrs: map[string]string{
			"Arn":       "arn:{partition}:sqs:{region}:{account}:{name}",
			"QueueName": "{name}",
			"QueueUrl":  "https://sqs.{region}.{suffix}/{account}/{name}",
		},
		properties: set(`DelaySeconds FifoQueue MessageRetentionPeriod QueueName RedrivePolicy VisibilityTimeout

			KmsDataKeyReusePeriodSeconds KmsMasterKeyId MaximumMessageSize ReceiveMessageWaitTimeSeconds
			RedriveAllowPolicy SqsManagedSseEnabled Tags`),
	},

	// What follows has an id for references and no effect on one machine.

	"AWS::ApiGateway::Account":         {ref: "{hash}"},
	"AWS::ApiGatewayV2::ApiMapping":    {ref: "{hash}", attrs: map[string]string{"ApiMappingId": "{hash}"}},
	"AWS::ApiGatewayV2::DomainName":    domain,
	"AWS::Budgets::Budget":             {ref: "{name}"},
	"AWS::CloudWatch::Alarm":           alarm,
	"AWS::CloudWatch::AnomalyDetector": {ref: "{hash}"},
	"AWS::CloudWatch::CompositeAlarm":  alarm,
	"AWS::CloudWatch::Dashboard":       {nameProperty: "DashboardName", ref: "{name}"},
	"AWS::IAM::ManagedPolicy":          {nameProperty: "ManagedPolicyName", ref: "arn:{partition}:iam::{account}:policy/{name}", attrs: map[string]string{"PolicyArn": "arn:{partition}:iam::{account}:policy/{name}"}},
	"AWS::IAM::Policy":                 {nameProperty: "PolicyName", ref: "{name}"},
	"AWS::IAM::Role":                   {nameProperty: "RoleName", ref: "{name}", attrs: map[string]string{"Arn": "arn:{partition}:iam::{account}:role/{name}", "RoleId": "{hash}"}},
	"AWS::KMS::Alias":                  {nameProperty: "AliasName", ref: "{name}"},
	"AWS::KMS::Key":                    {ref: "{hash}", attrs: map[string]string{"Arn": "arn:{partition}:kms:{region}:{account}:key/{hash}", "KeyId": "{hash}"}},
	"AWS::Lambda::Permission":          {ref: "{hash}", attrs: map[string]string{"Id": "{hash}"}},
	"AWS::Logs::LogGroup":              {nameProperty: "LogGroupName", ref: "{name}", attrs: map[string]string{"Arn": "arn:{partition}:logs:{region}:{account}:log-group:{name}:*"}},
	"AWS::Logs::MetricFilter":          {nameProperty: "FilterName", ref: "{name}"},
	"AWS::Logs::QueryDefinition":       {ref: "{hash}"},
	"AWS::Route53::RecordSet":          {nameProperty: "Name", ref: "{name}"},
	"AWS::SNS::Subscription":           {ref: "arn:{partition}:sns:{region}:{account}:{hash}", note: "there is no SNS here: nothing is published and nobody is told"},
	"AWS::SNS::Topic":                  {nameProperty: "TopicName", ref: "arn:{partition}:sns:{region}:{account}:{name}", attrs: map[string]string{"TopicArn": "arn:{partition}:sns:{region}:{account}:{name}", "TopicName": "{name}"}},
	"AWS::SNS::TopicPolicy":            {ref: "{hash}"},
	"AWS::SQS::QueuePolicy":            {ref: "{hash}"},
}

// byDefault is Lambda's way with events where nothing else is configured.
const byDefault = "an event is tried twice more and then dropped, and a schedule's not at all, whatever is configured"

var alarm = kind{nameProperty: "AlarmName", ref: "{name}",
	attrs: map[string]string{"Arn": "arn:{partition}:cloudwatch:{region}:{account}:alarm:{name}"}}

// domain is a host name on the internet, which does not lead to this machine.
var domain = kind{nameProperty: "DomainName", ref: "{name}", note: "the API is served on this machine's address only",
	attrs: map[string]string{
		"DomainNameArn":        "arn:{partition}:apigateway:{region}::/domainnames/{name}",
		"RegionalDomainName":   "d-{hash}.execute-api.{region}.{suffix}",
		"RegionalHostedZoneId": "{hash}",
	}}

// generated are the kinds of resources that SAM makes out of the template's.
var generated = map[string]kind{
	typeRoute:                        {ref: "{hash}", attrs: map[string]string{"RouteId": "{hash}"}},
	typeStage:                        {ref: "{stage}"},
	"AWS::ApiGatewayV2::Integration": {ref: "{hash}", attrs: map[string]string{"IntegrationId": "{hash}"}},
	"AWS::ApiGatewayV2::Authorizer":  {ref: "{hash}", attrs: map[string]string{"AuthorizerId": "{hash}"}},
	"AWS::IAM::Role":                 {ref: "{name}", attrs: map[string]string{"Arn": "arn:{partition}:iam::{account}:role/{name}", "RoleId": "{hash}"}},
	"AWS::Lambda::Permission":        {ref: "{hash}"},
	typeMapping:                      {ref: "{hash}", attrs: map[string]string{"Id": "{hash}"}},
	typeRule:                         {ref: "{name}", attrs: map[string]string{"Arn": "arn:{partition}:events:{region}:{account}:rule/{name}"}},
}

// mappingProperties are those of a DynamoDB event.
var mappingProperties = set(`BatchSize BisectBatchOnFunctionError DestinationConfig Enabled
	FunctionResponseTypes MaximumBatchingWindowInSeconds MaximumRecordAgeInSeconds
	MaximumRetryAttempts ParallelizationFactor StartingPosition Stream

	KmsKeyArn LoggingConfig MetricsConfig`)

// globals are the properties that SAM takes from Globals, for the types that run here.
var globals = map[string]struct {
	typ        string
	properties map[string]bool
}{
	"Function": {typeFunction, minus(kinds[typeFunction].properties,
		`AutoPublishCodeSha256 Events FunctionName PackageType Policies Role VersionDescription`)},
	"WebSocketApi": {typeWebSocketAPI, minus(kinds[typeWebSocketAPI].properties,
		`Auth Description Name Routes StageName`)},
}

// otherGlobals are for resource types that do not run here, so they change nothing.
var otherGlobals = set(`Api CapacityProvider HttpApi LayerVersion MicroVMImage NetworkConnector SimpleTable StateMachine`)

func minus(a map[string]bool, words string) map[string]bool {
	out := maps.Clone(a)
	for w := range set(words) {
		delete(out, w)
	}
	return out
}
