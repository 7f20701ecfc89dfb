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

// Config is what the developer allows. The zero Config allows nothing.
type Config struct {
	// Addr is where it is served, a host and port. If that is not the loopback, other
	// machines of the network are let to what [Guard.Welcome] and [Guard.Show] protect.
	Addr string
	// Origins of pages that may ask and read, as [ParseOrigin] returns them.
	Origins []string
	// Hosts by which a page may call this machine, as [ParseHost] returns them: names of
	// the network, or of a tunnel.
	Hosts []string
}

// Guard says who is let through: programs on this machine, by a loopback address,
// and pages of some origins. The zero Guard lets no page through but one that
// was loaded from the very same address.
type Guard struct {
	host    string // besides those of the loopback, "" for none
	network bool   // other machines come, too
	origins []string
	names   []string
}

// NewGuard makes a guard of what the developer allows.
func NewGuard(cfg Config) Guard {
	g := Guard{host: hostOf(cfg.Addr), network: cfg.Addr != "" && !IsLoopback(cfg.Addr), origins: cfg.Origins, names: cfg.Hosts}
	if ip, err := netip.ParseAddr(g.host); err == nil && ip.IsUnspecified() {
		g.host = "" // that is no name to call this machine by
	}
	return g
}

// ParseOrigin returns an origin in the form in which browsers send it. The error says
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

// ParseHost returns a host in the form in which it is compared: a name or an address
// without a port, which may be any. The error says what a host is.
func ParseHost(text string) (string, error) {
	host := strings.ToLower(strings.TrimSuffix(text, "."))
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		if ip.IsUnspecified() || ip.Zone() != "" {
			return "", errors.New("want an address of this machine, such as 192.168.1.5")
		}
		return ip.Unmap().String(), nil
	}
	if host == "" || host[0] == '.' || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" {
		return "", errors.New("want the name of a host, without scheme and port and each in full, such as box.local")
	}
	return host, nil
}

// Protect is for what programs on this machine use. It refuses all others with 403:
// by their address, by the name they call this machine (a page on the internet can
// make its own name point here, but not ours), and by what a browser says of the page
// that asks. Pages that are let through may read the answers (CORS), and ask
// beforehand whether they may.
func (g Guard) Protect(next http.Handler) http.Handler {
	return g.guarded(next, func(r *http.Request) error {
		if !fromThisMachine(r) || !g.isHere(r.Host) {
			return errors.New("only from this machine, by a loopback address")
		}
		return g.refusal(r)
	})
}

// Welcome is [Guard.Protect] for what a page of the developer's uses: also from other
// machines if they are served, by the address that they call, and by the hosts that
// are allowed.
func (g Guard) Welcome(next http.Handler) http.Handler {
	return g.guarded(next, func(r *http.Request) error {
		if err := g.stranger(r); err != nil {
			return err
		}
		return g.refusal(r)
	})
}

// Show is [Guard.Welcome] for files of the developer's: links to them may be in any
// page.
func (g Guard) Show(next http.Handler) http.Handler {
	return g.guarded(next, func(r *http.Request) error {
		if err := g.stranger(r); err != nil {
			return err
		}
		if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Mode") == "navigate" {
			return nil
		}
		return g.refusal(r)
	})
}

// Open lets everybody through. Of pages from elsewhere those that the developer
// allows may read the answers.
func (g Guard) Open(next http.Handler) http.Handler {
	return g.guarded(next, func(*http.Request) error { return nil })
}

// guarded refuses what refuse does, and tells a browser what a page of another origin
// may.
func (g Guard) guarded(next http.Handler, refuse func(*http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Add("Vary", "Origin")
		if err := refuse(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if origin := r.Header.Values("Origin"); len(origin) == 1 && slices.Contains(g.origins, origin[0]) {
			header.Set("Access-Control-Allow-Origin", origin[0])
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

// stranger refuses machines that are not served, and names that are not ours.
func (g Guard) stranger(r *http.Request) error {
	switch {
	case !g.network && !fromThisMachine(r):
		return errors.New("only from this machine; -addr 0.0.0.0:3000 serves others of the network, too")
	case !g.Knows(r):
		return fmt.Errorf("%q is no address of this machine; allow it with -allow-host if it is yours", hostOf(r.Host))
	}
	return nil
}

// refusal refuses pages from elsewhere, but those that are allowed.
func (g Guard) refusal(r *http.Request) error {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		// For an image, a script or a link, browsers send no Origin; but those of
		// today say whether it is in a page from elsewhere.
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
			return errors.New("not for a page from elsewhere")
		}
		return nil
	}
	if len(origins) == 1 && (slices.Contains(g.origins, origins[0]) || g.isOf(origins[0], r.Host)) {
		return nil
	}
	return fmt.Errorf("not for a page of %q; let it with -allow-origin if it is yours", origins)
}

// isOf reports whether it is the origin of what is served under this host. By an
// allowed name that may be https, of a tunnel.
func (g Guard) isOf(origin, host string) bool {
	return origin == "http://"+host || origin == "https://"+host && slices.Contains(g.names, hostOf(host))
}

// Knows reports whether a request calls this machine by what [Guard.Welcome] takes as
// its name.
func (g Guard) Knows(r *http.Request) bool {
	host := hostOf(r.Host)
	if g.isHere(r.Host) || slices.Contains(g.names, host) {
		return true
	}
	// A page cannot make an address point here, other than a name.
	called, err := netip.ParseAddr(host)
	return g.network && err == nil && called.Unmap() == calledAt(r)
}

func (g Guard) isHere(hostport string) bool {
	return IsLoopback(hostport) || g.host != "" && hostOf(hostport) == g.host
}

// fromThisMachine reports whether the caller has an address of this machine: of the
// loopback, or the one that it called.
func fromThisMachine(r *http.Request) bool {
	from, err := netip.ParseAddr(hostOf(r.RemoteAddr))
	return err == nil && (from.Unmap().IsLoopback() || from.Unmap() == calledAt(r))
}

// calledAt is the address of this machine that a request came in at, and none if that
// is not known.
func calledAt(r *http.Request) netip.Addr {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.Addr{}
	}
	addr, _ := netip.ParseAddr(hostOf(local.String())) // the zero Addr is none
	return addr.Unmap()
}

// IsLoopback reports whether a host, with or without a port, is this machine for
// itself: localhost, or an address of the loopback.
func IsLoopback(hostport string) bool {
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
