// Package template reads a SAM template and evaluates it into the plain model
// that the local cloud runs.
//
// It understands the part of SAM and CloudFormation that such a stack needs:
// parameters, rules, conditions, Globals, the intrinsic functions, and the resource
// types that run locally. Whatever else is in the template is either on
// an explicit list of things without meaning on one machine (alarms, roles, tags)
// or an [Error] with file and line. Nothing is skipped silently.
package template

import (
	"slices"
	"time"

	"github.com/inorder-im/inorder/infra/local/selection"
)

// Options say for which stack, account and parameters a template is evaluated.
type Options struct {
	StackName string // default "inorder"
	Region    string // default "us-east-1"
	AccountID string // default "000000000000"

	// Parameters override the defaults of the template's parameters. A name that
	// the template does not declare is an error.
	Parameters map[string]string

	// HTTPBase, such as "http://127.0.0.1:3000", replaces
	// "https://<apiID>.execute-api.<region>.<suffix>" in evaluated strings.
	// WSBase, such as "ws://127.0.0.1:3000", does so for "wss://…".
	// QueueBase does so for "https://sqs.<region>.<suffix>".
	// Empty leaves the cloud's addresses as they are.
	HTTPBase  string
	WSBase    string
	QueueBase string
}

// Stack is an evaluated template. Resources whose condition is false are not in it.
type Stack struct {
	File                    string // the template's path as given to Load
	Name, Region, AccountID string
	Parameters              map[string]string
	Functions               []*Function   // sorted by LogicalID
	API                     *WebSocketAPI // nil if the template has none
	Tables                  []*Table      // sorted by LogicalID
	Queues                  []*Queue      // sorted by LogicalID
	Outputs                 map[string]string

	// Ignored names, in the template's order, what was accepted and has no effect
	// here, with the reason: for example a schedule that is switched off.
	Ignored []string
}

// Function is an AWS::Serverless::Function.
type Function struct {
	LogicalID, Name, ARN string
	CodeURI              string // absolute directory
	Runtime              string // provided.al2023 or provided.al2
	Handler              string // may be empty: the provided runtimes always start "bootstrap"
	Architectures        []string
	Timeout              time.Duration // default 3 s
	MemoryMB             int           // default 128
	ReservedConcurrency  int           // 0: none
	Environment          map[string]string
	Streams              []StreamMapping
	Queues               []QueueMapping
	Schedules            []Schedule
	Build                Build
	Line                 int
}

// Build is a function's Metadata: how `sam build` makes its executable.
type Build struct {
	Method   string // Metadata.BuildMethod, such as "go1.x"; empty if there is none
	TrimPath bool   // Metadata.BuildProperties.TrimGoPath
	Line     int    // of BuildMethod, else of the function
}

// Starting positions of a [StreamMapping].
const (
	TrimHorizon = "TRIM_HORIZON" // the oldest record there is
	Latest      = "LATEST"       // what is written from now on
)

// StreamMapping is an event source mapping from a table's stream to a function: a
// DynamoDB event of the function.
// Defaults and limits are those of the Lambda API reference, CreateEventSourceMapping.
type StreamMapping struct {
	LogicalID               string
	TableID                 string // logical id
	StartingPosition        string // TrimHorizon or Latest
	BatchSize               int    // 1 to 10,000, default 100
	BatchingWindow          time.Duration
	MaxRetries              int           // -1: endless
	MaxRecordAge            time.Duration // -1: no limit
	BisectOnError           bool
	ReportBatchItemFailures bool
	ParallelizationFactor   int    // 1 to 10, default 1
	OnFailureQueue          string // logical id, "" if none
	Line                    int
}

// QueueMapping is an event source mapping from a queue to a function: an SQS event of
// the function.
type QueueMapping struct {
	LogicalID               string
	QueueID                 string // logical id
	BatchSize               int    // 1 to 10, default 10
	BatchingWindow          time.Duration
	ReportBatchItemFailures bool
	MaxConcurrency          int // 2 to 1,000; 0: as many as Lambda likes
	Line                    int
}

// WebSocketAPI is an AWS::Serverless::WebSocketApi with its one stage.
type WebSocketAPI struct {
	LogicalID, ID, Stage string
	RouteSelection       selection.Path
	Routes               []Route // sorted by Key
	Authorizer           *Authorizer
	Line                 int
}

// Route is one route of a WebSocketAPI.
type Route struct {
	Key, FunctionID string // FunctionID is a logical id
	// Reply is true if the function's answer goes back to the client: the route
	// has a $default route response and selects it.
	Reply     bool
	Timeout   time.Duration // 50 ms to 29 s, default 29 s
	Authorize bool          // only ever true on $connect
	Throttle  *Throttle     // nil without throttling settings
	Line      int
}

// Throttle is how many requests a route admits: PerSecond on the average and Burst
// at once.
type Throttle struct {
	PerSecond float64
	Burst     int
}

// Authorizer is the REQUEST authorizer of $connect. FunctionID is a logical id.
type Authorizer struct {
	FunctionID      string
	IdentitySources []IdentitySource
}

// IdentitySource is what a handshake must have, or it is refused without asking the
// authorizer: {FromQuery, "device"} for route.request.querystring.device.
type IdentitySource struct{ From, Name string }

// Where an identity source is.
const (
	FromHeader = "route.request.header."
	FromQuery  = "route.request.querystring."
)

// String is the source as a template has it.
func (s IdentitySource) String() string { return s.From + s.Name }

// Table is an AWS::DynamoDB::Table.
type Table struct {
	LogicalID, Name string
	Attributes      []Attribute
	Key             []KeyElement
	Indexes         []Index
	StreamView      string // such as NEW_AND_OLD_IMAGES; "" without a stream
	TTLAttribute    string // "" if time to live is off
	Line            int
}

// Attribute is a key attribute's definition. Type is S, N or B.
type Attribute struct{ Name, Type string }

// KeyElement is one element of a key. Role is HASH or RANGE.
type KeyElement struct{ Name, Role string }

// Index is a global secondary index.
type Index struct {
	Name       string
	Key        []KeyElement
	Projection string   // ALL, KEYS_ONLY or INCLUDE
	NonKey     []string // for INCLUDE
}

// Queue is an AWS::SQS::Queue. Defaults and limits are those of the SQS API reference,
// CreateQueue.
type Queue struct {
	LogicalID, Name, ARN, URL string
	Visibility                time.Duration // of a received message; default 30 s
	Delay                     time.Duration // of a sent message
	Retention                 time.Duration // default 4 days
	DeadLetters               string        // logical id of the queue for what is received too often, "" if none
	MaxReceives               int           // how often that may be
	Line                      int
}

// Function returns the function with that logical id, or nil. Tests ask for one by name.
func (s *Stack) Function(logicalID string) *Function {
	return find(s.Functions, func(f *Function) bool { return f.LogicalID == logicalID })
}

// Table returns the table with that logical id, or nil.
func (s *Stack) Table(logicalID string) *Table {
	return find(s.Tables, func(t *Table) bool { return t.LogicalID == logicalID })
}

func find[T any](list []*T, match func(*T) bool) *T {
	if i := slices.IndexFunc(list, match); i >= 0 {
		return list[i]
	}
	return nil
}

// Load reads the template at path and evaluates it. The error joins one *[Error]
// per mistake, in the order of their lines, as many as can be found in one pass.
func Load(path string, o Options) (*Stack, error) {
	d, err := parse(path)
	if err != nil {
		return nil, err
	}
	e := newEvaluation(d, o)
	stack := e.stack()
	if err := d.err(); err != nil {
		return nil, err
	}
	return stack, nil
}

// ParameterNames lists the parameters that the template at path declares, sorted.
func ParameterNames(path string) ([]string, error) {
	d, err := parse(path)
	if err != nil {
		return nil, err
	}
	names := keys(d.section("Parameters"))
	slices.Sort(names)
	return names, d.err()
}
