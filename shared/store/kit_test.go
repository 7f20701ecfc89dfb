package store_test

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
	by              = storetest.By
	cancelledAnswer = storetest.CancelledAnswer
	chatIn          = storetest.ChatIn
	contextFor      = storetest.ContextFor
	contextOf       = storetest.ContextOf
	convKey         = storetest.ConvKey
	entryKey        = storetest.EntryKey
	hides           = storetest.Hides
	ledger          = storetest.Ledger
	lineKey         = storetest.LineKey
	newCloud        = storetest.NewCloud
	newGroup        = storetest.NewGroup
	parallel        = storetest.Parallel
	refused         = storetest.Refused
	requireCode     = storetest.RequireCode
	requireDense    = storetest.RequireDense
	rosterKey       = storetest.RosterKey
	send            = storetest.Send
	sendN           = storetest.SendN
	sendIn          = storetest.SendIn
	text            = storetest.Text
)
