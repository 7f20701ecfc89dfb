package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inorder-im/inorder/infra/costs/bill"
)

// figures is what a run counts. It does not grow.
type figures struct {
	ack     *histogram // from when a send was due to its answer
	deliver *histogram // from when it was due to another device
	reach   *histogram // from when it was due until all watchers of its conversation have it

	sends, acks, failed    atomic.Int64
	busy, lost, resolved   atomic.Int64 // answers: BUSY, none, "committed before"
	duplicates             atomic.Int64 // pushed messages that the device had
	gapsFilled             atomic.Int64 // messages that came by sync
	reconnects, dialErrors atomic.Int64
	framesIn, framesOut    atomic.Int64

	mu         sync.Mutex
	began      time.Time
	ended      time.Time
	framesAt   int64 // when it began
	firstError error
}

func (f *figures) begin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = now
	f.framesAt = f.framesIn.Load() + f.framesOut.Load()
}

func (f *figures) end(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = now
}

// note keeps the first error for the summary.
func (f *figures) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.firstError == nil {
		f.firstError = err
	}
}

func (l latency) String() string { return fmt.Sprintf("%.1f/%.1f/%.1f", l.P50, l.P99, l.P999) }

// summary is a run in figures, as -json prints it.
type summary struct {
	URL           string  `json:"url"`
	Users         int     `json:"users"`
	Devices       int     `json:"devicesPerUser"`
	Inflight      int     `json:"inflightPerDevice"`
	Conversations int     `json:"conversations"`
	Members       int     `json:"membersPerConversation,omitempty"`
	Watchers      int     `json:"watchersPerConversation,omitempty"`
	Rate          float64 `json:"rate"` // 0: as fast as answers come
	Seconds       float64 `json:"seconds"`

	Sends          int64   `json:"sends"`
	SendsPerSecond float64 `json:"sendsPerSecond"`
	Acks           int64   `json:"acks"`
	AcksPerSecond  float64 `json:"acksPerSecond"`
	Ack            latency `json:"ackMs"`
	Delivered      int64   `json:"delivered"`
	Deliver        latency `json:"deliverMs"`
	Reached        int64   `json:"reached"` // messages that all watchers of their conversation have
	Reach          latency `json:"reachMs"`

	Failed             int64  `json:"failed"`   // sends given up
	Busy               int64  `json:"busy"`     // answers BUSY, all sent again
	LostAnswers        int64  `json:"lost"`     // answers that did not come, all sent again
	AckedAsDuplicate   int64  `json:"resolved"` // acks that said: committed before
	DuplicatesFiltered int64  `json:"duplicatesFiltered"`
	GapsFilled         int64  `json:"gapsFilled"`
	Missing            int64  `json:"missing"` // acked and not on a device in the end; 0 is right
	Reconnects         int64  `json:"reconnects"`
	FirstError         string `json:"firstError,omitempty"`

	DynamoDB *spent `json:"dynamoDB,omitempty"` // where it can be seen
	Frames   int64  `json:"frames"`
	Price    price  `json:"priceUSD"`
}

// ok reports whether everything was as it has to be.
func (s summary) ok() bool { return s.Missing == 0 && s.Failed == 0 && s.FirstError == "" }

// spent is what DynamoDB had to do.
type spent struct {
	TransactionsPerSend float64          `json:"transactionsPerSend"` // per acked one
	ConflictsPerSend    float64          `json:"conflictsPerSend"`
	Transactions        int64            `json:"transactions"`
	Conflicts           int64            `json:"conflicts"`
	Throttled           int64            `json:"throttled"`
	WriteUnits          float64          `json:"writeUnits"`
	ReadUnits           float64          `json:"readUnits"`
	Requests            map[string]int64 `json:"requests"`
}

// price is in US dollars. Not in it: Lambda, whose price is by time and memory,
// connection minutes, storage and traffic.
type price struct {
	DynamoDB  float64 `json:"dynamoDB"`
	WebSocket float64 `json:"webSocket"`
	Total     float64 `json:"total"`
	Million   float64 `json:"perMillionSends"`
}

// report returns the figures as they are. from is DynamoDB's usage when the load
// began, to what it is now; both nil where it is not known.
func (l *load) report(now time.Time, from, to *usage) summary {
	f := &l.figures
	f.mu.Lock()
	began, ended, framesAt, firstError := f.began, f.ended, f.framesAt, f.firstError
	f.mu.Unlock()
	if ended.IsZero() {
		ended = now
	}
	seconds := max(ended.Sub(began).Seconds(), 1e-9)
	ack, _ := f.ack.total()
	deliver, delivered := f.deliver.total()
	reach, reached := f.reach.total()
	s := summary{
		URL: l.Socket, Users: l.users, Devices: l.options.devices, Inflight: l.inflight,
		Conversations: l.options.conversations, Members: l.members, Watchers: l.watchers, Rate: l.rate, Seconds: seconds,
		Sends: f.sends.Load(), Acks: f.acks.Load(),
		Ack: ack, Delivered: delivered, Deliver: deliver, Reached: reached, Reach: reach,
		Failed: f.failed.Load(), Busy: f.busy.Load(), LostAnswers: f.lost.Load(), AckedAsDuplicate: f.resolved.Load(),
		DuplicatesFiltered: f.duplicates.Load(), GapsFilled: f.gapsFilled.Load(), Reconnects: f.reconnects.Load(),
		Frames: f.framesIn.Load() + f.framesOut.Load() - framesAt,
	}
	s.SendsPerSecond, s.AcksPerSecond = float64(s.Sends)/seconds, float64(s.Acks)/seconds
	if firstError != nil {
		s.FirstError = firstError.Error()
	}
	s.Price.WebSocket = float64(s.Frames) * bill.PerFrame
	if from != nil && to != nil {
		s.DynamoDB = spentBetween(*from, *to, s.Acks)
		s.Price.DynamoDB = s.DynamoDB.WriteUnits*bill.PerWRU + s.DynamoDB.ReadUnits*bill.PerRRU
	}
	s.Price.Total = s.Price.DynamoDB + s.Price.WebSocket
	s.Price.Million = s.Price.Total / float64(max(s.Acks, 1)) * 1e6
	return s
}

func spentBetween(from, to usage, acks int64) *spent {
	s := &spent{
		Transactions: to.requests["TransactWriteItems"] - from.requests["TransactWriteItems"],
		Conflicts:    to.conflicts - from.conflicts,
		Throttled:    to.throttled - from.throttled,
		WriteUnits:   to.writeUnits - from.writeUnits,
		ReadUnits:    to.readUnits - from.readUnits,
		Requests:     map[string]int64{},
	}
	for operation, n := range to.requests {
		if n -= from.requests[operation]; n > 0 {
			s.Requests[operation] = n
		}
	}
	s.TransactionsPerSend = float64(s.Transactions) / float64(max(acks, 1))
	s.ConflictsPerSend = float64(s.Conflicts) / float64(max(acks, 1))
	return s
}

// live is what the last second was like.
type live struct {
	load  *load
	at    time.Time
	sends int64
	acks  int64
}

// line returns the figures since the last one, and the sums since the beginning.
func (v *live) line(now time.Time, s summary) string {
	f := &v.load.figures
	seconds := max(now.Sub(v.at).Seconds(), 1e-9)
	var b strings.Builder
	fmt.Fprintf(&b, "%4.0f s  %.0f sends/s  %.0f acks/s  ack %s  deliver %s ms p50/p99/p999",
		s.Seconds, float64(s.Sends-v.sends)/seconds, float64(s.Acks-v.acks)/seconds,
		f.ack.sinceLast(), f.deliver.sinceLast())
	if s.Watchers > 0 {
		fmt.Fprintf(&b, "  reach %s", f.reach.sinceLast())
	}
	if s.DynamoDB != nil {
		fmt.Fprintf(&b, "  %.2f tx/send  %.2f conflicts/send  %.0f write + %.0f read units",
			s.DynamoDB.TransactionsPerSend, s.DynamoDB.ConflictsPerSend, s.DynamoDB.WriteUnits, s.DynamoDB.ReadUnits)
	}
	fmt.Fprintf(&b, "  dup %d  gaps %d  $%.4f", s.DuplicatesFiltered, s.GapsFilled, s.Price.Total)
	if troubles := s.Busy + s.LostAnswers + s.Failed; troubles > 0 {
		fmt.Fprintf(&b, "  busy %d lost %d failed %d", s.Busy, s.LostAnswers, s.Failed)
	}
	v.at, v.sends, v.acks = now, s.Sends, s.Acks
	return b.String()
}

// print writes the summary for people.
func (s summary) print(w io.Writer) {
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	line("load", "%d users with %d devices in %d conversations, %.1f s", s.Users, s.Devices, s.Conversations, s.Seconds)
	line("sends", "%d, %.1f/s; acked %d, %.1f/s; given up %d", s.Sends, s.SendsPerSecond, s.Acks, s.AcksPerSecond, s.Failed)
	line("ack", "p50 %.1f  p99 %.1f  p999 %.1f  max %.1f ms", s.Ack.P50, s.Ack.P99, s.Ack.P999, s.Ack.Max)
	line("deliver", "p50 %.1f  p99 %.1f  p999 %.1f  max %.1f ms; %d deliveries", s.Deliver.P50, s.Deliver.P99, s.Deliver.P999, s.Deliver.Max, s.Delivered)
	if s.Watchers > 0 {
		line("reach", "p50 %.1f  p99 %.1f  p999 %.1f  max %.1f ms, until all %d devices that watch have a message; %d messages",
			s.Reach.P50, s.Reach.P99, s.Reach.P999, s.Reach.Max, s.Watchers*s.Devices, s.Reached)
	}
	line("resent", "%d after BUSY, %d without an answer; %d acks for what was committed before", s.Busy, s.LostAnswers, s.AckedAsDuplicate)
	line("devices", "%d duplicates filtered, %d messages by sync, %d reconnects, %d missing in the end", s.DuplicatesFiltered, s.GapsFilled, s.Reconnects, s.Missing)
	if d := s.DynamoDB; d != nil {
		line("dynamodb", "%.2f transactions and %.2f conflicts per acked send, %d throttled; %.0f write and %.0f read units, %.1f and %.1f each",
			d.TransactionsPerSend, d.ConflictsPerSend, d.Throttled, d.WriteUnits, d.ReadUnits, d.WriteUnits/float64(max(s.Acks, 1)), d.ReadUnits/float64(max(s.Acks, 1)))
	}
	line("price", "$%.4f (DynamoDB $%.4f, %d frames $%.4f), $%.2f per million sends; without Lambda and connection time",
		s.Price.Total, s.Price.DynamoDB, s.Frames, s.Price.WebSocket, s.Price.Million)
	if s.FirstError != "" {
		line("first error", "%s", s.FirstError)
	}
}

// isOver reports whether the time to send is over.
func (f *figures) isOver() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.ended.IsZero()
}
