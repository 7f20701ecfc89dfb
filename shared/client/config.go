package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Config says who the device is, where the server is, and how patient to be.
// Where a field may be left zero, its comment gives what that stands for.
type Config struct {
	// URL is the server's, such as wss://abc.execute-api.eu-west-1.amazonaws.com/prod.
	URL string
	// UserID is the user whose token Token gives: its sub, or what else the server takes
	// it for. It cannot be left out, for a device shows what it has and takes messages to
	// send before it has ever been connected. With another's token the client ends with
	// ErrWrongUser, which says whose it is.
	UserID string
	// DeviceID is 1 to 64 of A-Z a-z 0-9 . _ and -, and stays the same over
	// restarts. Two clients of one device throw each other out: the older one
	// ends with ErrReplaced.
	DeviceID string
	// Token returns a JWT, or whatever the server takes for one: of a token that the client
	// cannot read, the server says whose it is. It is called before each connect, so it
	// should give one that is still valid, and it has to return when its context ends.
	Token func(ctx context.Context) (string, error)

	// Store is what the device keeps; nil is a new Memory.
	Store Store
	// Log gets what a program need not act on, such as why the client is not connected,
	// which it tries to be for ever; nil is nowhere.
	Log *slog.Logger
	// HTTPClient makes the handshake; nil is one of the client's own.
	HTTPClient *http.Client

	// MaxOutbox is how many writes may wait to be sent, each of up to 32 KB; 0 is 1,000. A
	// Send, or another write, beyond it gives ErrOutboxFull.
	MaxOutbox int
	// MaxBuffered is how many early messages, of all conversations, wait for the
	// ones before them; 0 is 1,000, of up to 24 KB each. What does not fit is
	// fetched again, which Stats.Overflowed counts.
	MaxBuffered int
	// PageSize is how many messages one sync asks for, up to 500; 0 is 200. A
	// page is at most 32 KB in any case.
	PageSize int

	// StartWith is how many of the last messages a device begins with that is new to a
	// conversation of more than three times as many; 0 is 100. Nobody waits for ten
	// thousand messages to read the last ten. History has the ones before. Everything,
	// that is any negative number, fetches all.
	StartWith int

	// BackoffBase and BackoffCap bound the pause before trying again: it is
	// anywhere between nothing and a bound that starts at BackoffBase and doubles
	// with each failure up to BackoffCap ("full jitter"). 0 is 300 ms and 30 s.
	BackoffBase, BackoffCap time.Duration
	// DialTimeout bounds a handshake, RequestTimeout the wait for an answer; 0 is
	// 15 s for each.
	DialTimeout, RequestTimeout time.Duration
	// HeartbeatEvery is for how long the client is content before it asks what changed,
	// which also tells whether anyone is there; 0 is 9 and a half minutes. API Gateway
	// closes a connection that was idle for 10.
	HeartbeatEvery time.Duration
	// MaxLife is the longest that a connection lives; 0 is 115 minutes. Up to a
	// tenth is taken off at random, so that devices that came together do not
	// return together. API Gateway closes after 2 hours.
	MaxLife time.Duration
	// GapWait is how long a missing message may be late before the client asks
	// for it; 0 is 200 ms. For one of the user's own, whose number an answer
	// told, it is ten times as long.
	GapWait time.Duration
}

// Everything is the StartWith of a device that is to have every message.
const Everything = -1

// What stays as it is.
const (
	stableAfter = 5 * time.Second // a connection that lived so long, and was of use, ends a row of failures
	flushAfter  = 5 * time.Second // the outbox waits for the catch-up after a connect, but no longer
	goodbyeTime = time.Second     // for an orderly close
	probeTime   = 5 * time.Second // for a connection in doubt to show that it lives
	maxRefused  = 100             // writes that are kept, the last
	pullsAtOnce = 4
	sendsAtOnce = 4
	slowAfter   = 3 * time.Second // a write that takes longer is not counted among these
	readPage    = 100             // messages read from the store at once

	// maxBadFrames ends a connection that talks nonsense.
	maxBadFrames = 100

	// maxMessageBytes is what API Gateway lets through. The protocol promises
	// wire.MaxFrameBytes; closing the connection over a larger frame would only
	// bring the same frame again.
	maxMessageBytes = 128 * 1024

	ownWaitFactor = 10

	// lateFactor is how many times StartWith a conversation may have for a device that is
	// new to it to fetch all.
	lateFactor = 3

	// spreadPerMember spreads the pulls of those who hear of the same gap, of 500 members
	// over a second.
	spreadPerMember = 2 * time.Millisecond
)

func (c Config) complete() (Config, error) {
	if err := c.validate(); err != nil {
		return c, fmt.Errorf("configuring the client: %w", err)
	}
	if c.Store == nil {
		c.Store = NewMemory()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.MaxOutbox = cmp.Or(c.MaxOutbox, 1000)
	c.MaxBuffered = cmp.Or(c.MaxBuffered, 1000)
	c.StartWith = cmp.Or(c.StartWith, 100)
	c.PageSize = cmp.Or(c.PageSize, 200)
	c.BackoffBase = cmp.Or(c.BackoffBase, 300*time.Millisecond)
	c.BackoffCap = cmp.Or(c.BackoffCap, 30*time.Second)
	c.DialTimeout = cmp.Or(c.DialTimeout, 15*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 15*time.Second)
	c.HeartbeatEvery = cmp.Or(c.HeartbeatEvery, 9*time.Minute+30*time.Second)
	c.MaxLife = cmp.Or(c.MaxLife, 115*time.Minute)
	c.GapWait = cmp.Or(c.GapWait, 200*time.Millisecond)
	return c, nil
}

func (c Config) validate() error {
	if err := chat.ValidateUserID("UserID", c.UserID); err != nil {
		return err
	}
	if err := chat.ValidateDeviceID("DeviceID", c.DeviceID); err != nil {
		return err
	}
	if c.Token == nil {
		return errors.New("Token is missing: give a function that returns a JWT") //nolint:staticcheck // the field's name
	}
	for name, n := range map[string]int{"MaxOutbox": c.MaxOutbox, "MaxBuffered": c.MaxBuffered, "PageSize": c.PageSize} {
		if n < 0 {
			return fmt.Errorf("%s is %d; it cannot be negative", name, n)
		}
	}
	if c.PageSize > wire.MaxSyncLimit {
		return fmt.Errorf("PageSize is %d, at most %d are possible", c.PageSize, wire.MaxSyncLimit)
	}
	for name, d := range map[string]time.Duration{
		"BackoffBase": c.BackoffBase, "BackoffCap": c.BackoffCap, "DialTimeout": c.DialTimeout,
		"RequestTimeout": c.RequestTimeout, "HeartbeatEvery": c.HeartbeatEvery, "MaxLife": c.MaxLife, "GapWait": c.GapWait,
	} {
		if d < 0 {
			return fmt.Errorf("%s is %s; it cannot be negative", name, d)
		}
	}
	_, err := c.endpoint()
	return err
}

// endpoint is the URL with the device in its query.
func (c Config) endpoint() (string, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return "", fmt.Errorf("reading URL: %w", err)
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return "", fmt.Errorf("URL is %q; it starts with wss:// or ws://", c.URL)
	}
	query := u.Query()
	query.Set("device", c.DeviceID)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// jitter is the pause after so many failures in a row.
func (c Config) jitter(failures int) time.Duration {
	bound := c.BackoffCap
	if d := c.BackoffBase << min(failures, 30); d > 0 && d < bound {
		bound = d
	}
	return rand.N(bound + 1) //nolint:gosec // no secret
}

// pauseAfter is the pause after an attempt that failed, and others before it: as
// long as the server asked for, up to BackoffCap, and the jitter on top, so that
// those who were told the same do not return together.
func (c Config) pauseAfter(err error, failures int) time.Duration {
	return min(retryAfter(err), c.BackoffCap) + c.jitter(failures)
}

// sleep pauses, until sooner is closed if that comes first; it is false if ctx ended.
func sleep(ctx context.Context, d time.Duration, sooner <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-sooner:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
