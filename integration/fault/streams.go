package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/inorder-im/inorder/integration/proxy"
)

// maxRecords is what one GetRecords returns (API reference, "Limit").
const maxRecords = 1000

// streams gives out a stream of its own making: it reads the records of each
// shard once, in the order of the engine, mixes them, numbers them anew, and
// keeps them, all of them. So a reader that goes back to an earlier position
// finds the same records in the same order as before, as in DynamoDB.
type streams struct {
	*proxy.Proxy
	plan   *Plan
	mu     sync.Mutex
	shards []*shard
}

// shard is the records of one shard, as readers see them.
type shard struct {
	arn, id string
	number  int // in streams.shards

	mu       sync.Mutex
	records  []record
	pending  []record  // read and not given out yet
	until    time.Time // when they are
	iterator string    // of the engine; "" if one has to be asked for
	last     string    // the sequence number up to which was read
	ended    bool
}

// record is a stream record whose sequence number can be changed.
type record struct {
	fields   map[string]json.RawMessage
	dynamodb map[string]json.RawMessage
	item     string // its table is the stream's, its key is this
	sequence string
}

func newStreams(plan *Plan, p *proxy.Proxy) *streams { return &streams{Proxy: p, plan: plan} }

func (st *streams) serve(operation string, req proxy.Request) proxy.Answer {
	if s, ok := st.plan.strikes(StreamError); ok {
		return streamError(s, operation)
	}
	var err error
	var result any
	switch operation {
	case "GetShardIterator":
		result, err = st.getShardIterator(req)
	case "GetRecords":
		result, err = st.getRecords(req)
	default: // DescribeStream and ListStreams
		return st.Forward(req)
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return refused.answer
	}
	if err != nil {
		return refusal(http.StatusBadRequest, proxy.ErrorPrefix+"ValidationException", err.Error(), nil)
	}
	return proxy.Answer{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: mustMarshal(result),
	}
}

func streamError(s strike, operation string) proxy.Answer {
	kinds := []string{"", "LimitExceededException", "InternalServerError"}
	if operation == "GetRecords" {
		kinds = append(kinds, "ExpiredIteratorException")
	}
	switch kind := oneOf(s, kinds...); kind {
	case "":
		proxy.HangUp()
		return proxy.Answer{}
	case "InternalServerError":
		return internalError()
	default:
		return refusal(http.StatusBadRequest, proxy.ErrorPrefix+kind, "ask again", nil)
	}
}

// refusedError is an answer of the engine that is no success.
type refusedError struct{ answer proxy.Answer }

func (e *refusedError) Error() string {
	return fmt.Sprintf("DynamoDB answered %d: %s", e.answer.Status, e.answer.Body)
}

// ask sends a request to the engine; like is one of the reader, whose headers
// are used.
func (st *streams) ask(like proxy.Request, operation string, in, out any) error {
	like.Header = like.Header.Clone()
	api, _ := like.Operation()
	like.Header.Set("X-Amz-Target", api+"."+operation)
	like.Body = mustMarshal(in)
	a := st.Forward(like)
	if !a.OK() {
		return &refusedError{a}
	}
	if err := json.Unmarshal(a.Body, out); err != nil {
		return fmt.Errorf("reading the engine's answer to %s: %w", operation, err)
	}
	return nil
}

// The request and answer of GetShardIterator.
type (
	seekRequest struct {
		StreamArn, ShardId, ShardIteratorType string //nolint:revive // the API's name
		SequenceNumber                        string `json:",omitempty"`
	}
	seekAnswer struct{ ShardIterator string }
)

func (st *streams) getShardIterator(req proxy.Request) (seekAnswer, error) {
	var in seekRequest
	if err := json.Unmarshal(req.Body, &in); err != nil {
		return seekAnswer{}, fmt.Errorf("reading the request: %w", err)
	}
	sh := st.shard(in.StreamArn, in.ShardId)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch in.ShardIteratorType {
	case "TRIM_HORIZON":
		return sh.at(0), nil
	case "LATEST":
		_, err := st.readOn(sh, req, func() bool { return false })
		return sh.at(len(sh.records)), err
	case "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER":
	default:
		return seekAnswer{}, fmt.Errorf("there is no ShardIteratorType %q", in.ShardIteratorType)
	}
	index := -1
	found, err := st.readOn(sh, req, func() bool {
		index = slices.IndexFunc(sh.records, func(r record) bool { return r.sequence == in.SequenceNumber })
		return index >= 0
	})
	if err != nil {
		return seekAnswer{}, err
	}
	if !found {
		return seekAnswer{}, fmt.Errorf("there is no record %s in shard %s", in.SequenceNumber, in.ShardId)
	}
	if in.ShardIteratorType == "AFTER_SEQUENCE_NUMBER" {
		index++
	}
	return sh.at(index), nil
}

// shard finds a shard, or notes a new one.
func (st *streams) shard(arn, id string) *shard {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, sh := range st.shards {
		if sh.arn == arn && sh.id == id {
			return sh
		}
	}
	sh := &shard{arn: arn, id: id, number: len(st.shards)}
	st.shards = append(st.shards, sh)
	return sh
}

// iteratorPrefix begins the iterators of this proxy: fault-SHARD-INDEX.
const iteratorPrefix = "fault-"

func (sh *shard) at(index int) seekAnswer {
	return seekAnswer{ShardIterator: iteratorPrefix + strconv.Itoa(sh.number) + "-" + strconv.Itoa(index)}
}

// position is what an iterator stands for.
func (st *streams) position(iterator string) (sh *shard, index int, err error) {
	number, at, _ := strings.Cut(strings.TrimPrefix(iterator, iteratorPrefix), "-")
	n, err := strconv.Atoi(number)
	if err == nil {
		index, err = strconv.Atoi(at)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err != nil || n < 0 || n >= len(st.shards) || index < 0 {
		return nil, 0, fmt.Errorf("the iterator %q is not one of this proxy", iterator)
	}
	return st.shards[n], index, nil
}

type recordsAnswer struct {
	Records           []json.RawMessage
	NextShardIterator string `json:",omitempty"`
}

func (st *streams) getRecords(req proxy.Request) (recordsAnswer, error) {
	var in struct {
		ShardIterator string
		Limit         int
	}
	if err := json.Unmarshal(req.Body, &in); err != nil {
		return recordsAnswer{}, fmt.Errorf("reading the request: %w", err)
	}
	if in.Limit < 1 || in.Limit > maxRecords {
		in.Limit = maxRecords
	}
	sh, index, err := st.position(in.ShardIterator)
	if err != nil {
		return recordsAnswer{}, err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if index >= len(sh.records) {
		index = len(sh.records)
		if _, err := st.pull(sh, req); err != nil {
			return recordsAnswer{}, err
		}
		st.release(sh, false)
	}
	if from := index; from > 0 && from < len(sh.records) {
		if s, ok := st.plan.strikes(StreamRepeat); ok {
			index -= 1 + s.IntN(min(from, 10))
		}
	}
	out := recordsAnswer{Records: []json.RawMessage{}}
	for ; index < len(sh.records) && len(out.Records) < in.Limit; index++ {
		out.Records = append(out.Records, sh.records[index].encode())
	}
	if !sh.ended || len(sh.pending) > 0 || index < len(sh.records) {
		out.NextShardIterator = sh.at(index).ShardIterator
	}
	return out, nil
}

// readOn reads the shard until enough holds, or to the end of what there is.
func (st *streams) readOn(sh *shard, req proxy.Request, enough func() bool) (bool, error) {
	for {
		if enough() {
			return true, nil
		}
		n, err := st.pull(sh, req)
		if err != nil {
			return false, err
		}
		st.release(sh, true)
		if n == 0 {
			return enough(), nil
		}
	}
}

// pull reads once from the engine.
func (st *streams) pull(sh *shard, req proxy.Request) (n int, err error) {
	if sh.ended {
		return 0, nil
	}
	if sh.iterator == "" {
		seek := seekRequest{StreamArn: sh.arn, ShardId: sh.id, ShardIteratorType: "TRIM_HORIZON"}
		if sh.last != "" {
			seek.ShardIteratorType, seek.SequenceNumber = "AFTER_SEQUENCE_NUMBER", sh.last
		}
		var at seekAnswer
		if err := st.ask(req, "GetShardIterator", seek, &at); err != nil {
			return 0, err
		}
		sh.iterator = at.ShardIterator
	}
	var got recordsAnswer
	if err := st.ask(req, "GetRecords", map[string]any{"ShardIterator": sh.iterator}, &got); err != nil {
		sh.iterator = "" // it may be the iterator's fault
		return 0, err
	}
	fresh := len(sh.pending) == 0
	for _, raw := range got.Records {
		r, err := decodeRecord(raw)
		if err != nil {
			return 0, err
		}
		sh.pending = append(sh.pending, r)
		sh.last = r.sequence
	}
	sh.iterator, sh.ended = got.NextShardIterator, got.NextShardIterator == ""
	if fresh && len(sh.pending) > 0 {
		sh.until = time.Now()
		if s, ok := st.plan.strikes(StreamHold); ok {
			sh.until = sh.until.Add(s.duration())
		}
	}
	return len(got.Records), nil
}

// release gives out what is pending, mixed, when its time has come or now.
func (st *streams) release(sh *shard, now bool) {
	if len(sh.pending) == 0 || !now && st.plan.isOn() && time.Now().Before(sh.until) {
		return
	}
	if s, ok := st.plan.consider(StreamReorder); ok {
		if mix(s, sh.pending) {
			st.plan.count(StreamReorder)
		}
	}
	sh.records = append(sh.records, sh.pending...)
	sh.pending = nil
}

// mix changes the order of records across items, and numbers them anew. It
// reports false where there is only one item.
func mix(s strike, records []record) bool {
	queues := map[string][]record{}
	sequences := make([]string, len(records))
	for i, r := range records {
		queues[r.item] = append(queues[r.item], r)
		sequences[i] = r.sequence
	}
	if len(queues) < 2 {
		return false
	}
	items := slices.Sorted(maps.Keys(queues))
	for i := range records {
		n := s.IntN(len(items))
		item := items[n]
		records[i] = queues[item][0]
		records[i].sequence = sequences[i]
		if queues[item] = queues[item][1:]; len(queues[item]) == 0 {
			items = slices.Delete(items, n, n+1)
		}
	}
	return true
}

func decodeRecord(raw json.RawMessage) (record, error) {
	var r record
	err := json.Unmarshal(raw, &r.fields)
	if err == nil {
		err = json.Unmarshal(r.fields["dynamodb"], &r.dynamodb)
	}
	if err == nil {
		err = json.Unmarshal(r.dynamodb["SequenceNumber"], &r.sequence)
	}
	var keys any
	if err == nil {
		err = json.Unmarshal(r.dynamodb["Keys"], &keys)
	}
	if err != nil {
		return record{}, fmt.Errorf("a stream record that cannot be read: %w: %.200s", err, raw)
	}
	r.item = string(mustMarshal(keys)) // in the order of the attributes' names
	return r, nil
}

func (r record) encode() json.RawMessage {
	dynamodb := maps.Clone(r.dynamodb)
	dynamodb["SequenceNumber"] = mustMarshal(r.sequence)
	fields := maps.Clone(r.fields)
	fields["dynamodb"] = mustMarshal(dynamodb)
	return mustMarshal(fields)
}
