package operate_test

import "github.com/inorder-im/inorder/shared/store/internal/storetest"

// The kit of the store's tests, which two packages share, by the short names that stand
// in nearly every test.
type (
	cloud  = storetest.Cloud
	fault  = storetest.Fault
	values = storetest.Values
	wire   = storetest.Wire
)

const (
	conflicting = storetest.Conflicting
	days        = storetest.Days
	dropped     = storetest.Dropped
	none        = storetest.None
	throttled   = storetest.Throttled
	unanswered  = storetest.Unanswered
)

var (
	by          = storetest.By
	chatIn      = storetest.ChatIn
	contextFor  = storetest.ContextFor
	convKey     = storetest.ConvKey
	entryKey    = storetest.EntryKey
	hides       = storetest.Hides
	ledger      = storetest.Ledger
	lineKey     = storetest.LineKey
	newCloud    = storetest.NewCloud
	newGroup    = storetest.NewGroup
	recordKey   = storetest.RecordKey
	requireCode = storetest.RequireCode
	rosterKey   = storetest.RosterKey
	send        = storetest.Send
	sendN       = storetest.SendN
	sendIn      = storetest.SendIn
	text        = storetest.Text
)
