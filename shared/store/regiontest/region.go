// Package regiontest is DynamoDB of a region as one conversation's writers meet it,
// in virtual time: in a testing/synctest bubble, a minute of contention takes a
// second, and the machine's own speed has no part in the result.
//
// What is modelled, each with its source in the Developer Guide:
//
//   - latencies of the network and of DynamoDB, see Latencies;
//   - transactions are optimistic ("Isolation levels and transaction conflicts"): one
//     holds its items from when its conditions are judged until it is committed, and
//     every other write to them is refused with TransactionConflict meanwhile; plain
//     reads are read-committed, and see its items appear one by one;
//   - a partition takes 1,000 write and 3,000 read units a second ("Partitions and
//     data distribution"), and refuses what is above. Each partition key is taken to
//     be alone in its partition, with no burst saved up and none of it split: keys
//     that grow, as seqs do, gain nothing by a split;
//   - a table's changes can be followed, as each becomes visible: one item's in order,
//     and a transaction's one by one.
//
// What is not: indexes, TTL, projections, the account's quotas. What a request asks for
// and the model does not know makes it panic.
package regiontest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/inorder-im/inorder/shared/store"
)

// Latencies are means; each wait is drawn from 0.7 to 1.3 of its own.
type Latencies struct {
	Plain   time.Duration // of a read or a write that is in no transaction
	Prepare time.Duration // of a transaction, from the call until its items are held
	Hold    time.Duration // for which a transaction of three items holds them
	Each    time.Duration // by which each further item makes that longer
	Answer  time.Duration // of a transaction, from its commit until the caller knows
}

// Usual are latencies as they are met in a region, from a function beside its table:
// 4 ms for a read, 11 ms for a transaction.
func Usual() Latencies {
	return Latencies{
		Plain: 4 * time.Millisecond, Prepare: 2 * time.Millisecond, Hold: 7 * time.Millisecond,
		Each: 150 * time.Microsecond, Answer: 2 * time.Millisecond,
	}
}

// Units that a partition takes in a second.
const (
	WriteUnits = 1000
	ReadUnits  = 3000
)

// Keys are the names of a table's partition key and sort key; Sort is "" if it has
// none.
type Keys struct{ Partition, Sort string }

// Stats are counts since the Region was made.
type Stats struct {
	Calls     map[string]int // by operation
	Committed int            // transactions of writes
	Conflicts int            // transactions refused since another one held an item
	Failed    int            // transactions refused by a condition alone
	Throttles int            // requests that met a partition's limit
	WriteWRU  float64
	ReadRRU   float64
}

// Region answers DynamoDB's requests. It is an HTTP client of the SDK.
type Region struct {
	latencies Latencies
	keys      map[string]Keys // by table

	mu     sync.Mutex
	tables map[string]map[string]map[string]item // by table, partition key, sort key
	held   map[string]bool                       // by table and key
	follow map[string]func(Change)               // by table
	writes map[string]*bucket                    // by table and partition key
	reads  map[string]*bucket
	stats  Stats
}

// New makes a region that has these tables.
func New(latencies Latencies, tables map[string]Keys) *Region {
	return &Region{
		latencies: latencies, keys: tables,
		tables: map[string]map[string]map[string]item{}, held: map[string]bool{}, follow: map[string]func(Change){},
		writes: map[string]*bucket{}, reads: map[string]*bucket{}, stats: Stats{Calls: map[string]int{}},
	}
}

// Tables are the product's tables, each by the name that template.yaml has for it.
func Tables() store.Tables {
	return store.Tables{
		Conversations: "Conversations", Messages: "Messages", Idempotency: "Idempotency",
		Members: "Members", Inboxes: "Inboxes", Connections: "Connections", Lane: "Lane",
	}
}

// WithTables makes a region that has the product's tables.
func WithTables(latencies Latencies) *Region {
	names := Tables()
	return New(latencies, map[string]Keys{
		names.Conversations: {Partition: "conversationId"},
		names.Messages:      {Partition: "conversationId", Sort: "seq"},
		names.Idempotency:   {Partition: "dedupeKey"},
		names.Members:       {Partition: "conversationId", Sort: "userId"},
		names.Inboxes:       {Partition: "userId", Sort: "conversationId"},
		names.Connections:   {Partition: "userId"},
		names.Lane:          {Partition: "laneId", Sort: "messageId"},
	})
}

// Change is what a stream of NEW_AND_OLD_IMAGES tells of one write, in DynamoDB's JSON.
// An image of what is not there is nil.
type Change struct {
	Key      string // the partition key
	Old, New json.RawMessage
}

// Follow has f told of each change of a table from now on. f must not ask the Region, nor
// take long. What a stream does with it on the way, by shards and lanes, is f's.
func (r *Region) Follow(table string, f func(Change)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follow[table] = f
}

// Client returns a client of its own for one environment of a function.
func (r *Region) Client() *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", HTTPClient: r, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	})
}

// Stats returns the counts so far.
func (r *Region) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Calls = maps.Clone(s.Calls)
	return s
}

// bucket is what is left of a partition's second.
type bucket struct {
	left float64
	at   time.Time
}

// take reports whether there is room for some units. A request that is larger than
// what a second has is let through once the bucket is full.
func take(buckets map[string]*bucket, key string, units, rate float64) bool {
	now := time.Now()
	b := buckets[key]
	if b == nil {
		b = &bucket{left: rate, at: now}
		buckets[key] = b
	}
	b.left = min(rate, b.left+now.Sub(b.at).Seconds()*rate)
	b.at = now
	if b.left < min(units, rate) {
		return false
	}
	b.left -= units
	return true
}

func pause(mean time.Duration) {
	time.Sleep(time.Duration(float64(mean) * (0.7 + 0.6*rand.Float64()))) //nolint:gosec // jitter is no secret
}

// request is what the requests that the model knows have in common.
type request struct {
	names
	TableName                           string
	Key                                 item
	Item                                item
	ConditionExpression                 string
	UpdateExpression                    string
	KeyConditionExpression              string
	FilterExpression                    string
	IndexName                           string
	ConsistentRead                      bool
	ScanIndexForward                    *bool
	Limit                               int
	ExclusiveStartKey                   item
	ReturnValues                        string
	ReturnValuesOnConditionCheckFailure string
	TransactItems                       []map[string]*request
	RequestItems                        map[string]struct {
		Keys           []item
		ConsistentRead bool
	}
}

// failure is an answer that is an error.
type failure struct {
	code    string
	item    item
	reasons []map[string]any
}

// Do answers one request.
func (r *Region) Do(req *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	var in request
	if err := json.NewDecoder(req.Body).Decode(&in); err != nil {
		return nil, fmt.Errorf("regiontest: a request to %s: %w", operation, err)
	}
	r.mu.Lock()
	r.stats.Calls[operation]++
	r.mu.Unlock()
	var out any
	var failed *failure
	switch operation {
	case "GetItem":
		out, failed = r.plain(func() (any, *failure) { return r.get(in) })
	case "BatchGetItem":
		out, failed = r.plain(func() (any, *failure) { return r.batchGet(in) })
	case "Query":
		out, failed = r.plain(func() (any, *failure) { return r.query(in) })
	case "PutItem", "UpdateItem", "DeleteItem":
		out, failed = r.plain(func() (any, *failure) { return r.write(strings.TrimSuffix(operation, "Item"), in) })
	case "TransactGetItems":
		out, failed = r.transactGet(in)
	case "TransactWriteItems":
		out, failed = r.transactWrite(in)
	default:
		panic("regiontest: the operation " + operation)
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if failed != nil {
		body := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + failed.code, "message": failed.code}
		if failed.item != nil {
			body["Item"] = failed.item
		}
		if failed.reasons != nil {
			body["CancellationReasons"] = failed.reasons
		}
		return answer(req, http.StatusBadRequest, body)
	}
	return answer(req, http.StatusOK, out)
}

func answer(req *http.Request, status int, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("regiontest: an answer: %w", err)
	}
	return &http.Response{
		StatusCode: status, Request: req, ContentLength: int64(len(raw)), Body: io.NopCloser(bytes.NewReader(raw)),
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
	}, nil
}

// plain runs what is in no transaction, in the middle of its latency.
func (r *Region) plain(do func() (any, *failure)) (any, *failure) {
	pause(r.latencies.Plain / 2)
	r.mu.Lock()
	out, failed := do()
	r.mu.Unlock()
	pause(r.latencies.Plain / 2)
	return out, failed
}

// place tells where an item is: its table, and the texts of its keys.
type place struct{ table, partition, sort string }

func (p place) String() string { return p.table + "\x00" + p.partition + "\x00" + p.sort }

func (p place) of() string { return p.table + "\x00" + p.partition }

func (r *Region) place(table string, keyed item) place {
	keys, ok := r.keys[table]
	if !ok {
		panic("regiontest: no table " + table)
	}
	p := place{table: table, partition: keyed[keys.Partition].text()}
	if keys.Sort != "" {
		p.sort = sortable(keyed[keys.Sort])
	}
	return p
}

// sortable is a sort key as a text of the same order.
func sortable(v value) string {
	if v["N"] != nil {
		return fmt.Sprintf("%024s", v.text()) // whole numbers that are not below 0
	}
	return v.text()
}

// item returns the item, or nil. r.mu is held, here and below.
func (r *Region) item(p place) item { return r.tables[p.table][p.partition][p.sort] }

func (r *Region) put(p place, it item) {
	if f := r.follow[p.table]; f != nil && !reflect.DeepEqual(r.item(p), it) {
		f(Change{Key: p.partition, Old: r.item(p).image(), New: it.image()})
	}
	if r.tables[p.table] == nil {
		r.tables[p.table] = map[string]map[string]item{}
	}
	if r.tables[p.table][p.partition] == nil {
		r.tables[p.table][p.partition] = map[string]item{}
	}
	if it == nil {
		delete(r.tables[p.table][p.partition], p.sort)
		return
	}
	r.tables[p.table][p.partition][p.sort] = it
}

func (it item) image() json.RawMessage {
	if it == nil {
		return nil
	}
	raw, err := json.Marshal(it)
	if err != nil {
		panic(err)
	}
	return raw
}

// units are what an item of this size takes, in steps of so many bytes.
func (it item) units(step int) float64 {
	size := 0
	for name, v := range it {
		size += len(name) + sizeOf(v[v.kind()])
	}
	return float64(max(1, (size+step-1)/step))
}

// sizeOf is about as long as the JSON of a value.
func sizeOf(in any) (size int) {
	switch in := in.(type) {
	case string:
		return len(in) + 2
	case []any:
		for _, v := range in {
			size += sizeOf(v) + 1
		}
	case map[string]any:
		for name, v := range in {
			size += len(name) + sizeOf(v) + 4
		}
	}
	return size + 2
}

func (r *Region) payRead(p place, units float64) *failure {
	r.stats.ReadRRU += units
	if !take(r.reads, p.of(), units, ReadUnits) {
		r.stats.Throttles++
		return &failure{code: "ProvisionedThroughputExceededException"}
	}
	return nil
}

func readFactor(consistent bool) float64 {
	if consistent {
		return 1
	}
	return 0.5
}

func (r *Region) get(in request) (any, *failure) {
	p := r.place(in.TableName, in.Key)
	it := r.item(p)
	if failed := r.payRead(p, it.units(4096)*readFactor(in.ConsistentRead)); failed != nil {
		return nil, failed
	}
	return found(it), nil
}

func found(it item) map[string]any {
	if it == nil {
		return map[string]any{}
	}
	return map[string]any{"Item": it}
}

func (r *Region) batchGet(in request) (any, *failure) {
	responses, unprocessed := map[string][]item{}, map[string]any{}
	for table, asked := range in.RequestItems {
		var left []item
		var throttled *failure
		for _, key := range asked.Keys {
			p := r.place(table, key)
			it := r.item(p)
			if failed := r.payRead(p, it.units(4096)*readFactor(asked.ConsistentRead)); failed != nil {
				left, throttled = append(left, key), failed
			} else if it != nil {
				responses[table] = append(responses[table], it)
			}
		}
		if len(left) == len(asked.Keys) { // only where nothing of it could be read
			return nil, throttled
		}
		if left != nil {
			unprocessed[table] = map[string]any{"Keys": left, "ConsistentRead": asked.ConsistentRead}
		}
	}
	return map[string]any{"Responses": responses, "UnprocessedKeys": unprocessed}, nil
}

func (r *Region) query(in request) (any, *failure) {
	if in.IndexName != "" {
		panic("regiontest: a Query of an index")
	}
	e := in.over(in.KeyConditionExpression, nil)
	if name := e.path()[0]; name != r.keys[in.TableName].Partition {
		panic("regiontest: a key condition that begins with " + name)
	}
	e.want("=")
	at := e.operand().text()
	partition := r.tables[in.TableName][at]
	sorts := slices.Sorted(maps.Keys(partition))
	if in.ScanIndexForward != nil && !*in.ScanIndexForward {
		slices.Reverse(sorts)
	}
	after := ""
	if in.ExclusiveStartKey != nil {
		after = r.place(in.TableName, in.ExclusiveStartKey).sort
	}
	items, last, units := []item{}, item(nil), 0.0
	for _, s := range sorts {
		it := partition[s]
		if after != "" {
			if s == after {
				after = ""
			}
			continue
		}
		if !in.holds(in.KeyConditionExpression, it) {
			continue
		}
		if in.Limit > 0 && len(items) == in.Limit {
			last = items[len(items)-1]
			break
		}
		items = append(items, it)
		units += it.units(1) / 4096
	}
	p := place{table: in.TableName, partition: at}
	if failed := r.payRead(p, float64(max(1, int(units+0.999)))*readFactor(in.ConsistentRead)); failed != nil {
		return nil, failed
	}
	items = slices.DeleteFunc(items, func(it item) bool { return !in.holds(in.FilterExpression, it) })
	out := map[string]any{"Items": items, "Count": len(items)}
	if last != nil {
		keys := r.keys[in.TableName]
		out["LastEvaluatedKey"] = item{keys.Partition: last[keys.Partition], keys.Sort: last[keys.Sort]}
	}
	return out, nil
}

// after is the item that a write leaves, and whether its condition holds.
func (r *Region) after(kind string, in request) (p place, after item, ok bool) {
	keyed := in.Key
	if kind == "Put" {
		keyed = in.Item
	}
	p = r.place(in.TableName, keyed)
	before := r.item(p)
	if !in.holds(in.ConditionExpression, before) {
		return p, before, false
	}
	switch kind {
	case "Put":
		return p, in.Item, true
	case "Update":
		after = in.updated(in.UpdateExpression, before)
		for name, v := range in.Key {
			after[name] = v
		}
		return p, after, true
	case "Delete":
		return p, nil, true
	case "ConditionCheck":
		return p, before, true
	}
	panic("regiontest: the write " + kind)
}

// payWrite takes the units of a write from its partition.
func (r *Region) payWrite(p place, it item, times float64) bool {
	units := max(it.units(1024), r.item(p).units(1024)) * times
	r.stats.WriteWRU += units
	if !take(r.writes, p.of(), units, WriteUnits) {
		r.stats.Throttles++
		return false
	}
	return true
}

func (r *Region) write(kind string, in request) (any, *failure) {
	p, after, ok := r.after(kind, in)
	if r.held[p.String()] {
		r.stats.Conflicts++
		return nil, &failure{code: "TransactionConflictException"}
	}
	if !r.payWrite(p, after, 1) {
		return nil, &failure{code: "ProvisionedThroughputExceededException"}
	}
	if !ok {
		failed := &failure{code: "ConditionalCheckFailedException"}
		if in.ReturnValuesOnConditionCheckFailure == "ALL_OLD" {
			failed.item = after
		}
		return nil, failed
	}
	before := r.item(p)
	r.put(p, after)
	switch in.ReturnValues {
	case "", "NONE":
		return map[string]any{}, nil
	case "ALL_OLD":
		return map[string]any{"Attributes": before}, nil
	case "ALL_NEW":
		return map[string]any{"Attributes": after}, nil
	case "UPDATED_NEW":
		return map[string]any{"Attributes": changed(before, after)}, nil
	}
	panic("regiontest: the return values " + in.ReturnValues)
}

// changed returns the attributes that are others than before.
func changed(before, after item) item {
	updated := item{}
	for name, v := range after {
		if !reflect.DeepEqual(before[name], v) {
			updated[name] = v
		}
	}
	return updated
}

func (r *Region) transactGet(in request) (any, *failure) {
	pause(r.latencies.Prepare)
	r.mu.Lock()
	reasons, responses := []map[string]any{}, []any{}
	refused := false
	for _, asked := range in.TransactItems {
		p := r.place(asked["Get"].TableName, asked["Get"].Key)
		code := "None"
		switch {
		case r.held[p.String()]:
			code = "TransactionConflict"
		case r.payRead(p, 2*r.item(p).units(4096)) != nil:
			code = "ProvisionedThroughputExceeded"
		}
		refused = refused || code != "None"
		reasons = append(reasons, map[string]any{"Code": code})
		responses = append(responses, found(r.item(p)))
	}
	if refused {
		r.stats.Conflicts++
	}
	r.mu.Unlock()
	pause(r.latencies.Plain / 2)
	if refused {
		return nil, &failure{code: "TransactionCanceledException", reasons: reasons}
	}
	return map[string]any{"Responses": responses}, nil
}

// transactWrite judges all conditions at one moment, holds the items, and lets them
// appear one by one, in no order that anyone could count on.
func (r *Region) transactWrite(in request) (any, *failure) {
	pause(r.latencies.Prepare)
	changes, failed := r.prepare(in)
	if failed != nil {
		pause(r.latencies.Hold/3 + r.latencies.Answer)
		return nil, failed
	}
	hold := r.latencies.Hold + time.Duration(max(0, len(changes)-3))*r.latencies.Each
	pause(hold / 2)
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.shuffled, b.shuffled) })
	for _, c := range changes {
		r.mu.Lock()
		r.put(c.place, c.after)
		r.mu.Unlock()
		pause(hold / 2 / time.Duration(len(changes)))
	}
	r.mu.Lock()
	for _, c := range changes {
		delete(r.held, c.place.String())
	}
	r.stats.Committed++
	r.mu.Unlock()
	pause(r.latencies.Answer)
	return map[string]any{}, nil
}

type change struct {
	place    place
	after    item
	shuffled uint64
}

// prepare judges a transaction and holds its items.
func (r *Region) prepare(in request) ([]change, *failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var changes []change
	var reasons []map[string]any
	conflict, refused := false, false
	for _, part := range in.TransactItems {
		for kind, asked := range part {
			p, after, ok := r.after(kind, *asked)
			reason := map[string]any{"Code": "None"}
			switch {
			case r.held[p.String()]:
				reason["Code"] = "TransactionConflict"
				conflict = true
			case !r.payWrite(p, after, 2):
				reason["Code"] = "ThrottlingError"
			case !ok:
				reason["Code"] = "ConditionalCheckFailed"
				if asked.ReturnValuesOnConditionCheckFailure == "ALL_OLD" && after != nil {
					reason["Item"] = after
				}
			}
			refused = refused || reason["Code"] != "None"
			reasons = append(reasons, reason)
			changes = append(changes, change{place: p, after: after, shuffled: rand.Uint64()}) //nolint:gosec // no secret
		}
	}
	if !refused {
		for _, c := range changes {
			r.held[c.place.String()] = true
		}
		return changes, nil
	}
	if conflict {
		r.stats.Conflicts++
	} else {
		r.stats.Failed++
	}
	return nil, &failure{code: "TransactionCanceledException", reasons: reasons}
}
