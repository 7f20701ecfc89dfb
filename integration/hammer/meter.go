package main

import (
	"maps"
	"sync"

	"github.com/inorder-im/inorder/integration/proxy"
)

// meter is a proxy in front of DynamoDB that counts requests and what they cost.
type meter struct {
	*proxy.Proxy

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

// startMeter starts one that Close ends.
func startMeter(target string) (*meter, error) {
	p, err := proxy.New()
	if err != nil {
		return nil, err
	}
	if err := p.SetTarget(target); err != nil {
		p.Close()
		return nil, err
	}
	m := &meter{Proxy: p, usage: usage{requests: map[string]int64{}}}
	p.Serve(func(r proxy.Request) proxy.Answer {
		answer, spent, _ := p.Metered(r) // what does not say what it took, took nothing
		if spent != nil {
			m.count(answer.OK(), spent)
		}
		return answer
	})
	return m, nil
}

// now is the usage so far.
func (m *meter) now() usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.usage
	u.requests = maps.Clone(u.requests)
	return u
}

// count adds one request. A transaction that is cancelled is taken to cost what those
// that are committed do on average.
func (m *meter) count(ok bool, s *proxy.Spent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := &m.usage
	u.requests[s.Operation]++
	switch {
	case s.Throttled:
		u.throttled++
	case s.Cancelled && s.Operation == "TransactWriteItems":
		u.conflicts++
		if u.written > 0 {
			u.writeUnits += u.transaction / float64(u.written)
		}
	case proxy.Reads(s.Operation):
		u.readUnits += s.Units
	default:
		u.writeUnits += s.Units
		if ok && s.Operation == "TransactWriteItems" {
			u.written++
			u.transaction += s.Units
		}
	}
}
