package fault

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/inorder-im/inorder/integration/proxy"
)

// Database is a proxy in front of DynamoDB and DynamoDB Streams.
type Database struct {
	*proxy.Proxy
	plan     *Plan
	applying *applying
	streams  *streams

	mu       sync.Mutex
	stubborn map[call]bool // those that fail in each of their attempts
}

// call is one call of a client, which may make several attempts, and how it fails.
type call struct {
	id   string
	kind Kind
}

// stubbornOneIn is how many of the calls that fail do so in each attempt. What fails
// but once is hidden by the SDK, which tries again, from those who use it.
const stubbornOneIn = 4

// NewDatabase starts a proxy in front of the DynamoDB at the endpoint.
func NewDatabase(plan *Plan, endpoint string) (*Database, error) {
	p, err := proxy.New()
	if err != nil {
		return nil, err
	}
	d := &Database{Proxy: p, plan: plan, applying: newApplying(), stubborn: map[call]bool{}}
	d.streams = newStreams(plan, p)
	if err := p.SetTarget(endpoint); err != nil {
		p.Close()
		return nil, err
	}
	p.Serve(d.handle)
	return d, nil
}

func (d *Database) handle(req proxy.Request) proxy.Answer {
	switch api, operation := req.Operation(); {
	case strings.HasPrefix(api, "DynamoDBStreams_"):
		return d.streams.serve(operation, req)
	case proxy.Reads(operation) || proxy.Writes(operation):
		return d.serveData(operation, req)
	default: // such as CreateTable, which a stack uses once: nothing goes wrong with it
		return d.Forward(req)
	}
}

func isWrite(operation string) bool {
	return operation == "PutItem" || operation == "UpdateItem" || operation == "DeleteItem"
}

func isTransaction(operation string) bool { return strings.HasPrefix(operation, "Transact") }

// strikes decides about an attempt of a call: as all of its attempts go, or by the
// plan. The SDKs name a call in each of its attempts.
func (d *Database) strikes(kind Kind, req proxy.Request) (strike, bool) {
	s, ok := d.plan.consider(kind)
	c := call{req.Header.Get("Amz-Sdk-Invocation-Id"), kind}
	if c.id != "" && d.plan.isOn() {
		d.mu.Lock()
		if ok && s.IntN(stubbornOneIn) == 0 {
			d.stubborn[c] = true
		}
		ok = ok || d.stubborn[c]
		d.mu.Unlock()
	}
	if ok {
		d.plan.count(kind)
	}
	return s, ok
}

func (d *Database) serveData(operation string, req proxy.Request) proxy.Answer {
	if s, ok := d.plan.strikes(Delay); ok {
		d.Sleep(s.duration())
	}
	if _, ok := d.strikes(DropRequest, req); ok {
		proxy.HangUp()
	}
	if s, ok := d.strikes(Throttle, req); ok {
		return d.throttled(s, operation, req)
	}
	if isWrite(operation) || isTransaction(operation) {
		if s, ok := d.plan.strikes(Conflict); ok {
			return d.conflicted(s, operation, req)
		}
	}
	failed := false
	if s, ok := d.strikes(ServerError, req); ok {
		if failed = true; s.coin() {
			return internalError()
		}
	}
	a := d.carryOut(operation, req)
	if failed {
		return internalError()
	}
	if _, ok := d.strikes(DropAnswer, req); ok {
		proxy.HangUp()
	}
	return a
}

func (d *Database) carryOut(operation string, req proxy.Request) proxy.Answer {
	switch operation {
	case "TransactWriteItems":
		return d.transact(req)
	case "BatchGetItem":
		var left json.RawMessage
		if s, ok := d.plan.consider(Unprocessed); ok {
			if req.Body, left = splitBatch(s, req.Body); left != nil {
				d.plan.count(Unprocessed)
			}
		}
		return d.applying.hideInBatch(unprocessed(d.Forward(req), left))
	case "Query", "Scan":
		return d.applying.hide(req, d.Forward(req))
	}
	return d.Forward(req)
}

// transact carries out a transaction. Its new items may not show for a while.
func (d *Database) transact(req proxy.Request) proxy.Answer {
	if !d.plan.isOn() {
		return d.Forward(req)
	}
	created := creations(req.Body)
	s, ok := d.plan.consider(Applying)
	if !ok || len(created) == 0 {
		a := d.Forward(req)
		if a.OK() {
			d.applying.remember(created)
		}
		return a
	}
	tx := d.applying.begin(created)
	defer d.applying.end(tx)
	a := d.Forward(req)
	tx.settle(a.OK())
	if a.OK() {
		d.plan.count(Applying)
		d.Sleep(s.duration())
	}
	return a
}

// splitBatch takes some keys, never all, out of the request of a BatchGetItem. It
// returns both parts; the second is nil if nothing was taken out.
func splitBatch(s strike, body []byte) (now []byte, left json.RawMessage) {
	var fields map[string]json.RawMessage
	var tables map[string]map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || json.Unmarshal(fields["RequestItems"], &tables) != nil {
		return body, nil
	}
	type place struct {
		table string
		key   json.RawMessage
	}
	var places []place
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		var keys []json.RawMessage
		if json.Unmarshal(tables[table]["Keys"], &keys) != nil {
			return body, nil
		}
		for _, key := range keys {
			places = append(places, place{table, key})
		}
	}
	if len(places) < 2 {
		return body, nil // DynamoDB does at least some of a batch, or refuses it
	}
	s.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	some := 1 + s.IntN(len(places)-1)
	part := func(places []place) json.RawMessage {
		keys := map[string][]json.RawMessage{}
		for _, p := range places {
			keys[p.table] = append(keys[p.table], p.key)
		}
		items := map[string]map[string]json.RawMessage{}
		for table, list := range keys {
			items[table] = map[string]json.RawMessage{}
			maps.Copy(items[table], tables[table]) // ConsistentRead and such
			items[table]["Keys"] = mustMarshal(list)
		}
		return mustMarshal(items)
	}
	fields["RequestItems"] = part(places[some:])
	return mustMarshal(fields), part(places[:some])
}

// unprocessed adds the keys that were left to the answer.
func unprocessed(a proxy.Answer, left json.RawMessage) proxy.Answer {
	var fields map[string]json.RawMessage
	if left == nil || !a.OK() || json.Unmarshal(a.Body, &fields) != nil {
		return a
	}
	var more map[string]json.RawMessage
	if json.Unmarshal(fields["UnprocessedKeys"], &more) == nil && len(more) > 0 {
		// The engine left some by itself: then ours are asked for with all others.
		return internalError()
	}
	fields["UnprocessedKeys"] = left
	a.Body = mustMarshal(fields)
	return a
}

// commonErrors begins what DynamoDB throttles with, too: API reference, "Common errors",
// and TransactWriteItems, "CancellationReasons".
const commonErrors = "com.amazon.coral.availability#"

func (d *Database) throttled(s strike, operation string, req proxy.Request) proxy.Answer {
	if isTransaction(operation) && s.coin() {
		code := oneOf(s, "ThrottlingError", "ProvisionedThroughputExceeded")
		return cancelled(s, d.judge(operation, req), code, "the item's partition takes no more for now")
	}
	if s.coin() {
		return refusal(http.StatusBadRequest, commonErrors+"ThrottlingException", "the rate of requests exceeds what is allowed", nil)
	}
	return refusal(http.StatusBadRequest, proxy.ErrorPrefix+"ProvisionedThroughputExceededException",
		"the rate of requests exceeds the table's throughput", nil)
}

func (d *Database) conflicted(s strike, operation string, req proxy.Request) proxy.Answer {
	if isTransaction(operation) {
		return cancelled(s, d.judge(operation, req), "TransactionConflict", "a transaction is ongoing for the item")
	}
	return refusal(http.StatusBadRequest, proxy.ErrorPrefix+"TransactionConflictException", "a transaction is ongoing for the item", nil)
}

func internalError() proxy.Answer {
	return refusal(http.StatusInternalServerError, proxy.ErrorPrefix+"InternalServerError", "the request could not be processed", nil)
}

// reason is why a transaction was cancelled, for one of its items.
type reason struct {
	Code    string
	Message string          `json:",omitempty"`
	Item    json.RawMessage `json:",omitempty"`
}

// judge returns what there is against each item of a transaction as things are: a
// condition that fails, or none. DynamoDB judges each item by itself, so the reasons
// of others may stand beside a conflict or a throttle in any order. Nothing is
// carried out: the engine is given one more condition, which always fails.
func (d *Database) judge(operation string, req proxy.Request) []reason {
	var fields map[string]json.RawMessage
	var items []json.RawMessage
	if json.Unmarshal(req.Body, &fields) != nil || json.Unmarshal(fields["TransactItems"], &items) != nil {
		return nil
	}
	unjudged := slices.Repeat([]reason{{Code: "None"}}, len(items))
	if operation != "TransactWriteItems" || len(items) == 0 || len(items) == maxTransaction {
		return unjudged
	}
	fields["TransactItems"] = mustMarshal(append(items, impossible(items[0])))
	delete(fields, "ClientRequestToken") // it stands for the transaction itself
	req.Body = mustMarshal(fields)
	var refused struct{ CancellationReasons []reason }
	if json.Unmarshal(d.Forward(req).Body, &refused) != nil || len(refused.CancellationReasons) != len(items)+1 {
		return unjudged
	}
	return refused.CancellationReasons[:len(items)]
}

// maxTransaction is how many items DynamoDB takes in a transaction.
const maxTransaction = 100

// impossible is an item of a transaction that asks for what nothing has, in the
// table of another item: under a key that differs in all that is text.
func impossible(other json.RawMessage) json.RawMessage {
	var of map[string]struct { // by verb; there is one
		TableName string
		Key, Item map[string]map[string]any
	}
	_ = json.Unmarshal(other, &of)
	for verb, o := range of {
		what := map[string]any{
			"TableName": o.TableName, "ConditionExpression": "attribute_exists(#no)",
			"ExpressionAttributeNames": map[string]string{"#no": "no such attribute"},
		}
		key := o.Key
		if what["Key"] = key; verb == "Put" {
			key = o.Item // the key is somewhere in it
			delete(what, "Key")
			what["Item"] = key
		} else {
			verb = "ConditionCheck"
		}
		for _, value := range key {
			if _, isText := value["S"]; isText {
				value["S"] = "of nothing there is"
			}
		}
		return mustMarshal(map[string]any{verb: what})
	}
	return mustMarshal(of)
}

// cancelled is the answer to a transaction of which at least one item has the
// given reason, and the others what they have anyway.
func cancelled(s strike, reasons []reason, code, why string) proxy.Answer {
	n := len(reasons)
	if n == 0 {
		return internalError() // no such request passes DynamoDB either
	}
	for _, i := range s.Perm(n)[:1+s.IntN(n)] {
		reasons[i] = reason{Code: code, Message: why}
	}
	codes := make([]string, n)
	for i, r := range reasons {
		codes[i] = r.Code
	}
	return refusal(http.StatusBadRequest, proxy.ErrorPrefix+"TransactionCanceledException",
		fmt.Sprintf("Transaction cancelled, please refer cancellation reasons for specific reasons [%s]", strings.Join(codes, ", ")),
		map[string]any{"CancellationReasons": reasons})
}

// refusal is an error as DynamoDB words it. The message says who made it up.
func refusal(status int, errorType, message string, more map[string]any) proxy.Answer {
	return proxy.Refusal(status, errorType, message+" (a fault of the plan)", more)
}

// mustMarshal encodes what was decoded, or is made of plain values.
func mustMarshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return data
}
