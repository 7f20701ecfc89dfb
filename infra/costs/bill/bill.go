// Package bill says what is paid for: how much of each service something uses, and
// what that costs. The cost tests measure with it, and the calculator computes with
// what they measured, so both speak of the same units and the same prices.
package bill

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/inorder-im/inorder/shared/chat"
)

// On-demand prices in us-east-1 as of November 2026, in dollars. Free tiers are left
// out: they are an account's, not a product's.
const (
	PerFrame            = 1.00 / 1e6 // of up to 32 KB, in either direction, answers too
	PerConnectionMinute = 0.25 / 1e6
	PerCall             = 0.20 / 1e6
	PerGBSecond         = 0.0000133334 // arm64
	PerWRU              = 0.625 / 1e6
	PerRRU              = 0.125 / 1e6
	PerLogGB            = 0.50
	PerOutGB            = 0.09 // to the internet
	PerStoredGBMonth    = 0.25
	PerBackupGBMonth    = 0.20 // point-in-time recovery
)

// Lambda's reads of a DynamoDB stream cost nothing, nor does traffic between the
// services of one region.

// What a local run cannot measure: how long the functions take on AWS.
const (
	RequestGBSeconds = 0.020 * 0.25 // 20 ms of 256 MB
	FanoutGBSeconds  = 0.060 * 0.5  // 60 ms of 512 MB
)

// gb is what AWS bills as a gigabyte.
const gb = 1 << 30

// Use is how much something takes of each service.
type Use struct {
	Frames            float64 `json:"frames"`
	ConnectionMinutes float64 `json:"connectionMinutes,omitempty"`
	Calls             float64 `json:"calls"` // of functions
	GBSeconds         float64 `json:"gbSeconds"`
	WRU               float64 `json:"wru"`
	RRU               float64 `json:"rru"`
	LogBytes          float64 `json:"logBytes"`
	OutBytes          float64 `json:"outBytes"`
	StoredBytes       float64 `json:"storedBytes,omitempty"` // what stays in the tables
}

// Plus adds up.
func (u Use) Plus(o Use) Use {
	return Use{
		u.Frames + o.Frames, u.ConnectionMinutes + o.ConnectionMinutes, u.Calls + o.Calls, u.GBSeconds + o.GBSeconds,
		u.WRU + o.WRU, u.RRU + o.RRU, u.LogBytes + o.LogBytes, u.OutBytes + o.OutBytes, u.StoredBytes + o.StoredBytes,
	}
}

// Times is n of it.
func (u Use) Times(n float64) Use {
	return Use{
		u.Frames * n, u.ConnectionMinutes * n, u.Calls * n, u.GBSeconds * n,
		u.WRU * n, u.RRU * n, u.LogBytes * n, u.OutBytes * n, u.StoredBytes * n,
	}
}

// Line is one line of a bill.
type Line struct {
	What    string
	Amount  float64
	Unit    string
	Dollars float64
}

// Lines are what it costs, but for what is stored, which costs by the month.
func (u Use) Lines() []Line {
	return []Line{
		{"socket: frames", u.Frames, "frames", u.Frames * PerFrame},
		{"socket: time connected", u.ConnectionMinutes, "minutes", u.ConnectionMinutes * PerConnectionMinute},
		{"DynamoDB: writes", u.WRU, "write units", u.WRU * PerWRU},
		{"DynamoDB: reads", u.RRU, "read units", u.RRU * PerRRU},
		{"Lambda: calls", u.Calls, "calls", u.Calls * PerCall},
		{"Lambda: time, assumed", u.GBSeconds, "GB-s", u.GBSeconds * PerGBSecond},
		{"logs", u.LogBytes / gb, "GB", u.LogBytes / gb * PerLogGB},
		{"transfer out", u.OutBytes / gb, "GB", u.OutBytes / gb * PerOutGB},
	}
}

// Storage is what it costs a month to keep what it stored.
func (u Use) Storage() []Line {
	stored := u.StoredBytes / gb
	return []Line{
		{"stored", stored, "GB", stored * PerStoredGBMonth},
		{"point-in-time recovery", stored, "GB", stored * PerBackupGBMonth},
	}
}

// Dollars is what it costs in all, without Storage.
func (u Use) Dollars() float64 {
	sum := 0.0
	for _, l := range u.Lines() {
		sum += l.Dollars
	}
	return sum
}

// What is measured, by the names under which Measured has it.
const (
	Message2    = "a message of two, with receipts"
	Message20   = "a message in a group of 20, with receipts"
	Message21   = "a message in a group of 21, with receipts"
	Message40   = "a message in a group of 40, with receipts"
	Heartbeat   = "a heartbeat of an idle device"
	Reconnect   = "a reconnect of an idle device"
	DeviceMonth = "a device that is always on, a month"
)

// MonthMinutes are the minutes of a month.
const MonthMinutes = 365 * 24 * 60 / 12

// Message is what one message takes in a conversation of so many members, from 2 to
// chat.MaxGroupMembers, all of whom are online with one device and look at it. It is
// measured for 2 and 20 members, and for 21 and 40, as from there on receipts are not
// pushed and sync heads not raised; all others are on the lines through these.
func Message(measured map[string]Use, members int) Use {
	if members <= chat.InboxGroupMax {
		return between(measured[Message2], 2, measured[Message20], 20, members)
	}
	return between(measured[Message21], 21, measured[Message40], 40, members)
}

// between is the use at n, on the line through a at na and b at nb.
func between(a Use, na int, b Use, nb, n int) Use {
	share := float64(n-na) / float64(nb-na)
	return a.Times(1 - share).Plus(b.Times(share))
}

//go:embed units.json
var units []byte

// Measured is what TestCost_OfTheShippedClients measured last: it fails where this is
// not so any more, and with -units it writes it anew.
func Measured() (map[string]Use, error) {
	var measured map[string]Use
	if err := json.Unmarshal(units, &measured); err != nil {
		return nil, fmt.Errorf("reading units.json: %w", err)
	}
	return measured, nil
}
