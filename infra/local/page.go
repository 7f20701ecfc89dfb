//go:build !windows

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"github.com/inorder-im/inorder/infra/local/loopback"
	"github.com/inorder-im/inorder/infra/local/page"
)

// openFolder opens the folder of a page of the developer's own, if there is one.
func (c *cloud) openFolder() (err error) {
	if c.web == "" {
		return nil
	}
	if c.folder, err = os.OpenRoot(c.web); err != nil {
		return fmt.Errorf("-web %s: there is no folder to serve: %w", c.web, err)
	}
	c.onClose(func(context.Context) { _ = c.folder.Close() })
	if _, err := c.folder.Stat(page.Index); err != nil {
		c.out.step("warning: the folder %s has no %s, so there is no page at / yet", c.web, page.Index)
	}
	return nil
}

// page serves the demo page, or a folder of one's own. It says where to connect by the
// name that it was called by, if that is one of this machine: a phone cannot connect to
// 127.0.0.1.
func (c *cloud) page(guard loopback.Guard) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page.Handler(page.Config{WebSocketURL: c.socketFor(guard, r), Folder: c.folder}).ServeHTTP(w, r)
	})
}

func (c *cloud) socketFor(guard loopback.Guard, r *http.Request) string {
	if loopback.IsLoopback(r.Host) || !guard.Knows(r) {
		return c.socket
	}
	scheme := "ws"
	if r.Header.Get("X-Forwarded-Proto") == "https" { // by a tunnel, whose pages may use no other
		scheme = "wss"
	}
	return scheme + "://" + r.Host + "/" + c.stack.API.Stage
}

// tellOthers says where others of the network find the page, if it is served to them,
// and what that means.
func (c *cloud) tellOthers() {
	addresses, _ := net.InterfaceAddrs() // without them the user has to know the address
	urls := networkURLs(c.listener.Addr(), addresses)
	for _, u := range urls {
		c.out.step("on your phone: %s", u)
	}
	if len(urls) > 0 {
		c.out.step("warning: everyone on the network can open the page and get a token for any user")
	}
}

// networkURLs are the URLs by which other machines reach what is served at an address:
// none if that is the loopback, and all of this machine's if it is unspecified. IPv6 is
// only told where there is nothing shorter.
func networkURLs(at net.Addr, addresses []net.Addr) []string {
	served, err := netip.ParseAddrPort(at.String())
	if err != nil || served.Addr().IsLoopback() {
		return nil
	}
	url := func(ip netip.Addr) string { return "http://" + netip.AddrPortFrom(ip, served.Port()).String() + "/" }
	if !served.Addr().IsUnspecified() {
		return []string{url(served.Addr().Unmap())}
	}
	var four, six []string
	for _, a := range addresses {
		text, _, _ := strings.Cut(a.String(), "/")
		ip, err := netip.ParseAddr(text)
		switch ip = ip.Unmap(); {
		case err != nil || !ip.IsGlobalUnicast():
		case ip.Is4():
			four = append(four, url(ip))
		case served.Addr().Is6():
			six = append(six, url(ip))
		}
	}
	if len(four) > 0 {
		return four
	}
	return six
}
