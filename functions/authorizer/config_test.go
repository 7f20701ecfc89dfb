package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhereKeysMayBe(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"https://login.example.com/jwks":       true,
		"https://login.example.com:8443/jwks":  true,
		"http://127.0.0.1:3000/dev/jwks.json":  true,
		"http://127.9.9.9/jwks":                true,
		"http://localhost:8080/jwks":           true,
		"http://[::1]:8080/jwks":               true,
		"http://login.example.com/jwks":        false,
		"http://10.0.0.1/jwks":                 false,
		"http://localhost.example.com/jwks":    false,
		"http://127.0.0.1.example.com/jwks":    false,
		"http://127.0.0.1@login.example.com/j": false,
		"https://me:secret@login.example.com/": false,
		"ftp://127.0.0.1/jwks":                 false,
		"https:///jwks":                        false,
		"login.example.com":                    false,
		"https://login.example.com:port/":      false,
	} {
		env := map[string]string{"JWKS_URL": address, "JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}
		_, err := configFromEnv(func(name string) string { return env[name] })
		if good {
			require.NoError(t, err, address)
		} else {
			require.ErrorContains(t, err, "JWKS_URL", address)
		}
	}
}
