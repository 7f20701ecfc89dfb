package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// meter is a proxy in front of DynamoDB that counts requests and what they cost.
type meter struct {
	url    string
	server *http.Server
	done   chan struct{}

	mu    sync.Mutex
	usage usage
}

// usage is what DynamoDB did.
type usage struct {
	requests    map[string]int64 // by operation
	written     int64            // transactions that were committed
	conflicts   int64            // transactions that were cancelled, by a condition or another transaction
	throttled   int64            // requests of any kind that were refused for their rate
	writeUnits  float64
	readUnits   float64
	transaction float64 // write units of all committed transactions
}

func startMeter(target string) (*meter, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("metering %s: %w", target, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return nil, fmt.Errorf("metering %s: %w", target, err)
	}
	m := &meter{url: "http://" + listener.Addr().String(), done: make(chan struct{}), usage: usage{requests: map[string]int64{}}}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host
		},
		ModifyResponse: m.read,
		Transport:      &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	m.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if operationOf(r) != "" {
			askForUnits(r)
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() {
		defer close(m.done)
		_ = m.server.Serve(listener)
	}()
	return m, nil
}

func (m *meter) close() {
	_ = m.server.Close()
	<-m.done
}

// now is the usage so far.
func (m *meter) now() usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.usage
	u.requests = maps.Clone(u.requests)
	return u
}

// operationOf is the operation of a request that costs: not one to the stream,
// which Lambda reads for nothing (DynamoDB pricing, "DynamoDB Streams").
func operationOf(r *http.Request) string {
	api, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if !strings.HasPrefix(api, "DynamoDB_") {
		return ""
	}
	switch operation {
	case "GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems",
		"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems":
		return operation
	}
	return ""
}

func isRead(operation string) bool {
	switch operation {
	case "GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems":
		return true
	}
	return false
}

// askForUnits has the answer say what the request cost.
func askForUnits(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller is gone, and ReverseProxy notices too
	}
	if rest, isObject := bytes.CutPrefix(bytes.TrimSpace(body), []byte("{")); isObject && !bytes.Contains(body, []byte(`"ReturnConsumedCapacity"`)) {
		separator := ","
		if bytes.HasPrefix(bytes.TrimSpace(rest), []byte("}")) {
			separator = ""
		}
		body = append([]byte(`{"ReturnConsumedCapacity":"TOTAL"`+separator), rest...)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
}

// read takes in an answer on its way.
func (m *meter) read(resp *http.Response) error {
	operation := operationOf(resp.Request)
	if operation == "" {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return fmt.Errorf("reading an answer of DynamoDB: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if resp.StatusCode == http.StatusOK {
		m.count(operation, unitsIn(body))
	} else {
		m.countRefusal(operation, body)
	}
	return nil
}

func (m *meter) count(operation string, units float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage.requests[operation]++
	if isRead(operation) {
		m.usage.readUnits += units
		return
	}
	m.usage.writeUnits += units
	if operation == "TransactWriteItems" {
		m.usage.written++
		m.usage.transaction += units
	}
}

// countRefusal counts a request that failed. A cancelled transaction is billed as
// one that is committed, but does not say so: it is taken to cost what those do
// on average (DynamoDB Developer Guide, "Capacity management for transactions").
func (m *meter) countRefusal(operation string, body []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage.requests[operation]++
	// A transaction's reasons say ThrottlingError, other refusals ThrottlingException.
	if bytes.Contains(body, []byte("Throttling")) || bytes.Contains(body, []byte("ProvisionedThroughputExceeded")) {
		m.usage.throttled++
		return
	}
	if operation == "TransactWriteItems" {
		m.usage.conflicts++
		if m.usage.written > 0 {
			m.usage.writeUnits += m.usage.transaction / float64(m.usage.written)
		}
	}
}

// unitsIn adds up the capacity that an answer says it took: one entry, or one for
// each table.
func unitsIn(body []byte) float64 {
	type consumed struct{ CapacityUnits float64 }
	var answer struct{ ConsumedCapacity json.RawMessage }
	if json.Unmarshal(body, &answer) != nil || answer.ConsumedCapacity == nil {
		return 0
	}
	var one consumed
	if json.Unmarshal(answer.ConsumedCapacity, &one) == nil {
		return one.CapacityUnits
	}
	var several []consumed
	_ = json.Unmarshal(answer.ConsumedCapacity, &several)
	var units float64
	for _, c := range several {
		units += c.CapacityUnits
	}
	return units
}
