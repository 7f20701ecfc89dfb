package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// round is one run over a stack.
type round struct {
	options
	run  string // names devices and messages
	a, b *device
	sent wire.Sent
	text string
}

// step is one thing that has to work. Each needs those before it.
type step struct {
	name string
	do   func(ctx context.Context) error
}

// check runs the steps, tells how each went, and reports whether all is well.
func check(ctx context.Context, o options, out io.Writer) bool {
	r := &round{options: o, run: "smoke-" + ulid.Make().String()}
	defer r.close()
	start := time.Now()
	for _, s := range []step{
		{"refuse a stranger", r.refuseAStranger},
		{"connect user 1", func(ctx context.Context) error { return r.connect(ctx, 1, &r.a) }},
		{"connect user 2", func(ctx context.Context) error { return r.connect(ctx, 2, &r.b) }},
		{"ping", func(ctx context.Context) error { return r.a.do(ctx, wire.ActionPing, struct{}{}, &wire.Pong{}) }},
		{"send", r.send},
		{"send again", r.sendAgain},
		{"push", r.push},
		{"sync", r.sync},
		{"answer", r.answer},
		{"receipt", r.receipt},
	} {
		began := time.Now()
		within, cancel := context.WithTimeout(ctx, o.timeout)
		err := s.do(within)
		cancel()
		took := time.Since(began).Round(100 * time.Microsecond)
		if err != nil {
			_, _ = fmt.Fprintf(out, "FAILED  %-18s %10s  %v\n", s.name, took, err)
			return false
		}
		_, _ = fmt.Fprintf(out, "ok      %-18s %10s\n", s.name, took)
	}
	_, _ = fmt.Fprintf(out, "all is well, in %s; two messages stay in %s\n", time.Since(start).Round(time.Millisecond), r.sent.ConversationID)
	return true
}

func (r *round) close() {
	for _, d := range []*device{r.a, r.b} {
		if d != nil {
			d.conn.Close()
		}
	}
}

// refuseAStranger wants a handshake without a good token to fail.
func (r *round) refuseAStranger(ctx context.Context) error {
	d, err := dial(ctx, r.socket, "no.good.token", "a stranger", r.run)
	if err == nil {
		_ = d.conn.CloseNow()
		return &fault{"a handshake with a token that is none was let in", "Anyone can connect: does the API have its authorizer, as in template.yaml?"}
	}
	var refused *statusFault
	if errors.As(err, &refused) && (refused.status == http.StatusUnauthorized || refused.status == http.StatusForbidden) {
		return nil
	}
	return err
}

func (r *round) connect(ctx context.Context, number int, to **device) error {
	token, user, err := r.token(ctx, number)
	if err != nil {
		return err
	}
	if r.a != nil && r.a.user == user {
		return fmt.Errorf("both tokens are of %s; it takes two users", user)
	}
	*to, err = dial(ctx, r.socket, token, user, r.run)
	return err
}

func (r *round) send(ctx context.Context) error {
	r.text = "smoke test " + r.run
	return r.a.do(ctx, wire.ActionSend, r.message(r.b.user, "1"), &r.sent)
}

func (r *round) message(to, suffix string) wire.Send {
	return wire.Send{To: to, ClientMsgID: r.run + "-" + suffix, MessageType: chat.TypeText, Text: r.text}
}

// sendAgain does what a device does that did not hear the answer.
func (r *round) sendAgain(ctx context.Context) error {
	var again wire.Sent
	if err := r.a.do(ctx, wire.ActionSend, r.message(r.b.user, "1"), &again); err != nil {
		return err
	}
	if again.Seq != r.sent.Seq || again.MessageID != r.sent.MessageID || !again.Duplicate {
		return &fault{fmt.Sprintf("the same clientMsgId made seq %d and seq %d", r.sent.Seq, again.Seq), "The table Idempotency: does something delete from it?"}
	}
	return nil
}

func (r *round) push(ctx context.Context) error { return pushed(ctx, r.b, r.sent, r.text) }

// pushed waits for the message at a device.
func pushed(ctx context.Context, d *device, sent wire.Sent, text string) error {
	return d.await(ctx, fmt.Sprintf("seq %d was committed and not pushed to %s", sent.Seq, d.user),
		"The fan-out: its Errors and StreamAge on the dashboard, whether its stream mapping is enabled, the queue Retries,\n"+
			"        and query \"failures\" for \"a conversation failed\".",
		func(f frame) bool {
			for _, u := range f.Updates {
				for _, m := range u.Messages {
					if f.Type == wire.TypePush && u.ConversationID == sent.ConversationID && m.MessageID == sent.MessageID && m.Text == text {
						return true
					}
				}
			}
			return false
		})
}

func (r *round) sync(ctx context.Context) error {
	after := r.sent.Seq - 1
	var page wire.Synced
	if err := r.b.do(ctx, wire.ActionSync, wire.Sync{ConversationID: r.sent.ConversationID, AfterSeq: &after}, &page); err != nil {
		return err
	}
	if len(page.Messages) == 0 || page.Messages[0].MessageID != r.sent.MessageID || page.Messages[0].Text != r.text {
		return &fault{fmt.Sprintf("sync after seq %d does not have the message of seq %d", after, r.sent.Seq), "The auditor says what is wrong with " + string(r.sent.ConversationID) + "."}
	}
	return nil
}

// answer has the second user write, as receipts are told to those who have.
func (r *round) answer(ctx context.Context) error {
	if err := r.b.do(ctx, wire.ActionSend, r.message(r.a.user, "2"), &r.sent); err != nil {
		return err
	}
	return pushed(ctx, r.a, r.sent, r.text)
}

func (r *round) receipt(ctx context.Context) error {
	if err := r.a.do(ctx, wire.ActionAck, wire.Ack{ConversationID: r.sent.ConversationID, ReadSeq: &r.sent.Seq}, &wire.Acked{}); err != nil {
		return err
	}
	return r.b.await(ctx, "the message was read, and its sender was not told",
		"The function ack: query \"failures\"; its right to execute-api:ManageConnections.",
		func(f frame) bool {
			return f.Type == wire.TypeReceipt && f.ConversationID == r.sent.ConversationID && f.UserID == r.a.user && f.ReadSeq >= r.sent.Seq
		})
}
