// Package clienttest tests programs that use the client. Its Server speaks the server's
// side of the protocol in memory, with a hook at each place where the real world fails;
// TestStore checks an implementation of client.Store.
package clienttest
