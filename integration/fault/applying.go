package fault

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/inorder-im/inorder/integration/proxy"
)

// applying knows the transactions whose new items do not show yet.
type applying struct {
	mu           sync.Mutex
	transactions map[*transaction]struct{}

	// committed is what transactions created, so that one that is repeated, after
	// its answer got lost, does not hide again what was seen. The newest are kept.
	committed map[uint64]struct{}
	order     []uint64
}

// rememberedCreations is as many as a client can still be repeating.
const rememberedCreations = 1 << 14

// transaction is one that is being applied.
type transaction struct {
	created []creation
	settled chan struct{} // closed when it is known whether it is committed
	done    bool          // whether it is; read after settled is closed
}

// creation is a Put of a transaction that does not replace an item.
type creation struct {
	table string
	item  map[string]any
	hash  uint64 // of table and item
}

func newApplying() *applying {
	return &applying{transactions: map[*transaction]struct{}{}, committed: map[uint64]struct{}{}}
}

// creations finds the items that a TransactWriteItems makes. A Put without the
// condition that there is no such item may replace one, which then must not
// vanish.
func creations(body []byte) []creation {
	var request struct {
		TransactItems []struct {
			Put *struct {
				TableName           string
				Item                map[string]any
				ConditionExpression string
			}
		}
	}
	if json.Unmarshal(body, &request) != nil {
		return nil
	}
	var found []creation
	for _, item := range request.TransactItems {
		if item.Put == nil || !strings.HasPrefix(item.Put.ConditionExpression, "attribute_not_exists(") {
			continue
		}
		found = append(found, creation{
			table: item.Put.TableName, item: item.Put.Item,
			hash: hashOf(item.Put.TableName, mustMarshal(item.Put.Item)),
		})
	}
	return found
}

// begin hides what a transaction is about to create. It has to be known before
// the commit: what was seen once may not vanish again.
func (h *applying) begin(created []creation) *transaction {
	tx := &transaction{settled: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range created {
		if _, seen := h.committed[c.hash]; !seen {
			tx.created = append(tx.created, c)
		}
	}
	h.transactions[tx] = struct{}{}
	return tx
}

// settle tells whether the transaction was committed.
func (tx *transaction) settle(committed bool) {
	tx.done = committed
	close(tx.settled)
}

// end lets everything show.
func (h *applying) end(tx *transaction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.transactions, tx)
	if tx.done {
		h.rememberLocked(tx.created)
	}
}

// remember notes what was created and showed at once.
func (h *applying) remember(created []creation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rememberLocked(created)
}

func (h *applying) rememberLocked(created []creation) {
	for _, c := range created {
		if _, known := h.committed[c.hash]; known {
			continue
		}
		h.committed[c.hash] = struct{}{}
		if h.order = append(h.order, c.hash); len(h.order) > rememberedCreations {
			delete(h.committed, h.order[0])
			h.order = h.order[1:]
		}
	}
}

func hashOf(table string, item []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(table))
	_, _ = h.Write(item)
	return h.Sum64()
}

func (h *applying) current() []*transaction {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.transactions))
}

// hides reports whether an item is of a transaction that is being applied. It
// waits for one that is not settled, which may fail after all: the item that
// looks the same is then another's, and shows.
func hides(transactions []*transaction, table string, raw json.RawMessage) bool {
	var item map[string]any
	if json.Unmarshal(raw, &item) != nil {
		return false
	}
	for _, tx := range transactions {
		for _, c := range tx.created {
			if c.table != table || !shows(item, c.item) {
				continue
			}
			if <-tx.settled; tx.done {
				return true
			}
		}
	}
	return false
}

// shows reports whether an item, or a projection of one, is the one created.
func shows(item, created map[string]any) bool {
	for name, value := range item {
		if !reflect.DeepEqual(value, created[name]) {
			return false
		}
	}
	return len(item) > 0
}

// hide takes the items that do not show yet out of the answer to a Query or Scan.
func (h *applying) hide(req proxy.Request, a proxy.Answer) proxy.Answer {
	transactions := h.current()
	var of struct{ TableName string }
	var fields map[string]json.RawMessage
	var items []json.RawMessage
	if len(transactions) == 0 || !a.OK() || json.Unmarshal(req.Body, &of) != nil ||
		json.Unmarshal(a.Body, &fields) != nil || json.Unmarshal(fields["Items"], &items) != nil {
		return a
	}
	shown := slices.DeleteFunc(items, func(raw json.RawMessage) bool { return hides(transactions, of.TableName, raw) })
	fields["Items"] = mustMarshal(shown)
	fields["Count"] = mustMarshal(len(shown))
	a.Body = mustMarshal(fields)
	return a
}

// hideInBatch does the same for a BatchGetItem.
func (h *applying) hideInBatch(a proxy.Answer) proxy.Answer {
	transactions := h.current()
	var fields map[string]json.RawMessage
	var tables map[string][]json.RawMessage
	if len(transactions) == 0 || !a.OK() || json.Unmarshal(a.Body, &fields) != nil || json.Unmarshal(fields["Responses"], &tables) != nil {
		return a
	}
	for table, items := range tables {
		tables[table] = slices.DeleteFunc(items, func(raw json.RawMessage) bool { return hides(transactions, table, raw) })
	}
	fields["Responses"] = mustMarshal(tables)
	a.Body = mustMarshal(fields)
	return a
}
