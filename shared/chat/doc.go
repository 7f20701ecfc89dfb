// Package chat is the domain: conversations, messages, the seq rules, who may see
// and do what, what an event changes, previews, and the errors a user can meet. It
// imports no AWS package, knows no frames and does no I/O, so every rule in it can be
// read and tested by itself.
//
// A conversation is an append-only ledger. Each message (the ledger's entries
// are called messages, whether a person or the system wrote them) gets the next
// seq when it is committed; seq orders one conversation and is never compared
// with another's.
//
// # Rights in a group
//
//	                          owner  admin  member
//	send, reply                yes    yes    yes
//	recall own                 yes    yes    yes    the owner and admins at any time, others within the window
//	edit own                   yes    yes    yes    within the window
//	recall another's           yes    yes*   no     at any time
//	add members                yes    yes    no
//	remove members             yes    yes*   no
//	change the title           yes    yes    no
//	change a role              yes    no     no
//	dissolve                   yes    no     no
//	leave                      yes    yes    yes
//
// (*) an admin acts on plain members only, and nobody on the owner. When the
// owner leaves, the admin who joined first becomes owner, or if there is none
// the member who did; when the last member leaves, the group is dissolved. A
// dissolved group can be read and left, and takes nothing else.
//
// In a single conversation both may send, and recall and edit their own. A
// system conversation is read-only to its members.
package chat
