// Package chat is the domain: conversations, messages, the seq rules and the
// errors a user can meet. It imports no AWS package and does no I/O, so every
// rule in it can be read and tested by itself.
//
// A conversation is an append-only ledger. Each message (the ledger's entries
// are called messages, whether a person or the system wrote them) gets the next
// seq when it is committed; seq orders one conversation and is never compared
// with another's.
package chat
