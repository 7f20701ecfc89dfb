// Package loopback keeps what is meant for the developer away from everyone
// else: other machines, and web pages that the developer has open.
package loopback

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// preflightSeconds is how long a browser may remember what a page may ask.
const preflightSeconds = "600"

// Guard says who is let through: programs on this machine, by a loopback address,
// and pages of some origins. The zero Guard lets no page through but one that
// was loaded from the very same address.
type Guard struct {
	host    string // besides those of the loopback, "" for none
	origins []string
}

// NewGuard makes a guard for what is served at addr, a host and port that may be
// another address of this machine. The origins are as [ParseOrigin] gives them.
func NewGuard(addr string, origins []string) Guard {
	host := hostOf(addr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "" // that is no name to call this machine by
	}
	return Guard{host: host, origins: origins}
}

// ParseOrigin gives an origin in the form in which browsers send it. The error says
// what an origin is.
func ParseOrigin(text string) (string, error) {
	u, err := url.Parse(strings.ToLower(strings.TrimSuffix(text, "/")))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.String() != u.Scheme+"://"+u.Host {
		return "", errors.New("want the origin of a page, such as http://localhost:5173")
	}
	if u.Port() == map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		u.Host = strings.TrimSuffix(u.Host, ":"+u.Port())
	}
	return u.String(), nil
}

// Protect refuses all others with 403: by their address, by the name they call
// this machine (a page on the internet can make its own name point here, but not
// ours), and by what a browser says of the page that asks. Pages that are let
// through may read the answers (CORS), and ask beforehand whether they may.
func (g Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fromThisMachine(r) || !g.isHere(r.Host) {
			http.Error(w, "only from this machine, by a loopback address", http.StatusForbidden)
			return
		}
		origin, err := g.origin(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		header := w.Header()
		header.Add("Vary", "Origin")
		if origin != "" {
			header.Set("Access-Control-Allow-Origin", origin)
			header.Set("Access-Control-Expose-Headers", "*")
			if method := r.Header.Get("Access-Control-Request-Method"); r.Method == http.MethodOptions && method != "" {
				header.Set("Access-Control-Allow-Methods", method)
				header.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
				header.Set("Access-Control-Max-Age", preflightSeconds)
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// origin gives the origin of the page that asks, "" if it is a program, or a page from
// this very address. The error says that it is any other.
func (g Guard) origin(r *http.Request) (string, error) {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		// For an image, a script or a link, browsers send no Origin; but those of
		// today say whether it is in a page from elsewhere.
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
			return "", errors.New("not for a page from elsewhere")
		}
		return "", nil
	}
	switch origin := origins[0]; {
	case len(origins) == 1 && origin == "http://"+r.Host:
		return "", nil
	case len(origins) == 1 && slices.Contains(g.origins, origin):
		return origin, nil
	default:
		return "", fmt.Errorf("not for a page of %q; let it with -allow-origin if it is yours", origins)
	}
}

func (g Guard) isHere(hostport string) bool {
	return isLoopback(hostport) || g.host != "" && hostOf(hostport) == g.host
}

// fromThisMachine reports whether the caller has an address of this machine: of the
// loopback, or the one that it called.
func fromThisMachine(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return isLoopback(r.RemoteAddr) || ok && hostOf(local.String()) == hostOf(r.RemoteAddr)
}

func isLoopback(hostport string) bool {
	host := hostOf(hostport)
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// hostOf is the host, in small letters, of a host with or without a port.
func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(host)
}
