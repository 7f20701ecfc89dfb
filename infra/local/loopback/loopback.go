// Package loopback keeps what is meant for the developer away from everyone
// else: other machines, and web pages that the developer has open.
package loopback

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
)

// Only refuses callers from elsewhere with 403: by their address, by the name
// they call this machine (a page on the internet can make its own name point
// here, but not ours), and by the origin that a browser says a page is from.
func Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.RemoteAddr) || !isLoopback(r.Host) || !fromHere(r.Header.Get("Origin")) {
			http.Error(w, "only from this machine, by a loopback address", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

func fromHere(origin string) bool {
	if origin == "" {
		return true // no browser, or a page of our own
	}
	u, err := url.Parse(origin)
	return err == nil && isLoopback(u.Host)
}
