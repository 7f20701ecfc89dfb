package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// ErrorPrefix begins the types of DynamoDB's own errors.
const ErrorPrefix = "com.amazonaws.dynamodb.v20120810#"

// Refusal is an error as DynamoDB words it, such as 400 and [ErrorPrefix] +
// "ValidationException". more is put beside its type and message.
func Refusal(status int, errorType, message string, more map[string]any) Answer {
	fields := map[string]any{"__type": errorType, "message": message}
	maps.Copy(fields, more)
	body, err := json.Marshal(fields)
	if err != nil {
		panic(fmt.Sprintf("proxy: refusing with what is no JSON: %v", err))
	}
	return Answer{Status: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: body}
}

// Reads reports whether an operation of DynamoDB reads items, and Writes whether it
// writes some. Others, such as CreateTable, do neither.
func Reads(operation string) bool {
	switch operation {
	case "GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems":
		return true
	}
	return false
}

// Writes is for writes what [Reads] is for reads.
func Writes(operation string) bool {
	switch operation {
	case "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems":
		return true
	}
	return false
}

// Spent is what one request took of DynamoDB.
type Spent struct {
	Operation string
	// Units are read or write units. A condition that fails costs as a write does, and
	// its answer does not say so (Developer Guide, "Condition expressions"): that is
	// taken for one unit, as for a small item.
	Units float64
	// Cancelled is a transaction that met a condition or another one. It is billed as
	// one that is committed (Developer Guide, "Capacity management for transactions"),
	// but does not say how much that is: Units is 0.
	Cancelled bool
	Throttled bool // refused for its rate
}

// Metered forwards a request to DynamoDB, and has it say what the request took. That is
// nil of what costs nothing: what is not about items, and what Lambda reads of a stream
// (DynamoDB pricing, "DynamoDB Streams"). The error says that the answer does not tell,
// as that of a server that is no DynamoDB, or that failed.
func (p *Proxy) Metered(r Request) (Answer, *Spent, error) {
	api, operation := r.Operation()
	if !strings.HasPrefix(api, "DynamoDB_") || !Reads(operation) && !Writes(operation) {
		return p.Forward(r), nil, nil
	}
	a := p.Forward(askForUnits(r))
	s := &Spent{Operation: operation}
	var answer struct {
		Type             string `json:"__type"`
		ConsumedCapacity json.RawMessage
	}
	if err := json.Unmarshal(a.Body, &answer); err != nil {
		return a, s, fmt.Errorf("%s does not say what it took, but %.300q", operation, a.Body)
	}
	_, failure, _ := strings.Cut(answer.Type, "#")
	// A transaction's reasons say ThrottlingError, other refusals ThrottlingException.
	s.Throttled = !a.OK() && (strings.Contains(string(a.Body), "Throttling") || strings.Contains(string(a.Body), "ProvisionedThroughputExceeded"))
	switch {
	case s.Throttled:
	case failure == "ConditionalCheckFailedException":
		s.Units = 1
	case failure == "TransactionCanceledException":
		s.Cancelled = true
	default:
		units, ok := unitsIn(answer.ConsumedCapacity)
		if s.Units = units; !ok {
			return a, s, fmt.Errorf("%s does not say what it took, but %.300q", operation, a.Body)
		}
	}
	return a, s, nil
}

// askForUnits has the answer say what the request took. It decodes nothing, since each
// request of a load comes through here.
func askForUnits(r Request) Request {
	rest, isObject := bytes.CutPrefix(r.Body, []byte("{"))
	if !isObject || bytes.Contains(r.Body, []byte(`"ReturnConsumedCapacity"`)) {
		return r
	}
	asks := `{"ReturnConsumedCapacity":"TOTAL"`
	if !bytes.HasPrefix(rest, []byte("}")) {
		asks += ","
	}
	r.Body = append([]byte(asks), rest...)
	return r
}

// unitsIn adds up the capacity in an answer: one entry, or one for each table.
func unitsIn(consumed json.RawMessage) (sum float64, ok bool) {
	type capacity struct{ CapacityUnits float64 }
	var one capacity
	if json.Unmarshal(consumed, &one) == nil {
		return one.CapacityUnits, true
	}
	var several []capacity
	if json.Unmarshal(consumed, &several) != nil {
		return 0, false
	}
	for _, c := range several {
		sum += c.CapacityUnits
	}
	return sum, true
}
