// Package address reads where a server is: all flags and tools take the same.
package address

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// here is the host of an address that names none.
const here = "127.0.0.1"

// Address is the address of a server. The zero Address is none.
type Address struct{ scheme, host, port string }

// Parse reads host:port, or a URL of http or https without a path: 127.0.0.1:3000,
// localhost:3000, [::1]:3000, :3000, http://127.0.0.1:3000/, https://example.com. The
// error says what is missing and how it is written.
func Parse(text string) (Address, error) {
	a := Address{scheme: "http"}
	rest := text
	if scheme, after, isURL := strings.Cut(text, "://"); isURL {
		a.scheme, rest = strings.ToLower(scheme), strings.TrimSuffix(after, "/")
		if a.scheme != "http" && a.scheme != "https" {
			return Address{}, wrong("it begins with " + scheme + "://")
		}
		if strings.Contains(rest, "/") {
			return Address{}, wrong("it has a path")
		}
		if u, err := url.Parse(a.scheme + "://" + rest); err != nil || u.Host != rest || u.Host == "" {
			return Address{}, wrong("")
		} else if u.Port() == "" {
			rest = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[a.scheme])
		}
	}
	var err error
	if a.host, a.port, err = net.SplitHostPort(rest); err != nil {
		if _, err := strconv.ParseUint(rest, 10, 16); err == nil {
			return Address{}, wrong("there is only a number; a port follows a colon")
		}
		return Address{}, wrong("the port is missing, or the brackets around an IPv6 address")
	}
	if _, err := strconv.ParseUint(a.port, 10, 16); err != nil {
		return Address{}, wrong("the port is no number from 0 to 65535")
	}
	if strings.Trim(a.host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") != "" {
		if ip, err := netip.ParseAddr(a.host); err != nil || !ip.Is6() || ip.Zone() != "" {
			return Address{}, wrong("the host is no name and no address")
		}
	}
	return a, nil
}

func wrong(why string) error {
	if why != "" {
		why = ": " + why
	}
	return errors.New("want an address such as 127.0.0.1:3000 or http://127.0.0.1:3000" + why)
}

// Set is [Parse] for package flag.
func (a *Address) Set(text string) (err error) {
	*a, err = Parse(text)
	return err
}

// String is [Address.URL].
func (a Address) String() string { return a.URL() }

// IsZero reports whether it is none.
func (a Address) IsZero() bool { return a == Address{} }

// IsSecure reports whether it is reached by https.
func (a Address) IsSecure() bool { return a.scheme == "https" }

// Listen is the host and port to listen on; without a host that is every address of
// this machine.
func (a Address) Listen() string { return net.JoinHostPort(a.host, a.port) }

// Host is the host and port to call: of this machine if the address names no other.
func (a Address) Host() string {
	host := a.host
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = here
	}
	return net.JoinHostPort(host, a.port)
}

// URL is how the server is called, such as http://127.0.0.1:3000, and "" of none. A
// port that the scheme implies is left out.
func (a Address) URL() string {
	if a.IsZero() {
		return ""
	}
	host := a.Host()
	if a.port == map[string]string{"http": "80", "https": "443"}[a.scheme] {
		host = strings.TrimSuffix(host, ":"+a.port)
	}
	return a.scheme + "://" + host
}
