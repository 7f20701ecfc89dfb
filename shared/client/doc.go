// Package client is one device of one user: it keeps every conversation complete
// and in order, and all that the user writes until the server has answered
// for it. Pushes make it fast; sync makes it right.
//
// # What a program does
//
// [Dial] starts a client; it connects, reconnects and catches up by itself until
// [Client.Close]. [Client.Send] returns when the message is committed.
// [Client.Messages] gives a conversation's messages strictly by seq, each once,
// and waits for new ones. [Client.Changes] tells what else is different now.
// [Client.Conversations] lists what the device knows, connected or not. A bot loops over
// [Client.Incoming].
//
// # The life of an arriving message
//
// A push may be lost, repeated or early. A message whose seq is the next one is
// stored together with the conversation's position, in one commit of the
// [Store]. One that is early waits in the reorder buffer, a stretch of the store
// above the position; when the missing one has not come after Config.GapWait,
// the client asks for it by sync from the position. A sync answer is believed
// only if it accounts for each seq that it passes.
//
// After each connect, and as its heartbeat, the client asks what changed since its
// cursor, pulls that, and stores the new cursor last: were it stored before the
// messages, a crash in between would hide them for ever.
//
// # A server that has lost messages
//
// A server may be restored to an earlier time, or begun anew, and go on with seqs that
// this device has as other messages. The client then looks for the last message that
// both have and starts over from there. What only the device still has is set aside:
// [StartedOver] tells of it, and [Client.Orphans] has it.
//
// # The life of a write
//
// A message that is sent, and any other write (an edit, a recall, a new group, a change of
// one, a Clear), is stored in the outbox before the first attempt and sent until the server
// answers, over reconnects and restarts, always with the same clientMsgId, so the
// server commits it once. One write per conversation is on its way at a time, which keeps
// the user's own order, and four of all, for a server limits how fast one may write; one
// that is slow to be answered does not count. It leaves the outbox in the commit that
// stores the answer. A call that stops waiting before gives a [PendingError]; [Settled]
// then tells of the end. What the server refuses leaves the outbox and is the call's error;
// if no call waits any more, [Client.Refused] keeps it, for [Client.Retry] or
// [Client.Discard].
//
// Only Ack is not kept: the next one says the same and more.
//
// # Recalled and edited messages
//
// A recall or an edit is a message of its own, of [chat.TypeEvent], and changes
// its target. The store always holds the target's last state. An event whose
// target is not there stays as its tombstone: what [Client.History] brings later
// is shown as the event left it.
package client
