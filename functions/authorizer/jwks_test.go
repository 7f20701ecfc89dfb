package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// members is a JSON Web Key, of any form.
type members = map[string]any

// published is a key as an issuer publishes it, with changes; nil takes a member out.
func published(t *testing.T, public crypto.PublicKey, kid string, changes members) members {
	t.Helper()
	described, err := jwkset.NewJWKFromKey(public, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: kid}})
	require.NoError(t, err)
	raw, err := json.Marshal(described.Marshal())
	require.NoError(t, err)
	var m members
	require.NoError(t, json.Unmarshal(raw, &m))
	maps.Copy(m, changes)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

func setOf(t *testing.T, keys ...any) string {
	t.Helper()
	raw, err := json.Marshal(members{"keys": keys})
	require.NoError(t, err)
	return string(raw)
}

// rsaMembers is an RSA key with a modulus of some bits that nobody has a private key for.
func rsaMembers(bits uint, changes members) members {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	m := members{"kty": "RSA", "kid": "odd", "n": encoded(n.SetBit(n, 0, 1).Bytes()), "e": "AQAB"}
	maps.Copy(m, changes)
	return m
}

func encoded(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// oddKeys are keys that nothing can be checked with, and what the log says of them.
func oddKeys(t *testing.T) map[string]struct {
	key any
	why string
} {
	t.Helper()
	ec := func(changes members) members { return published(t, ecKey(t).Public(), "odd", changes) }
	even := new(big.Int).Lsh(big.NewInt(1), 2047)
	x := published(t, ecKey(t).Public(), "odd", nil)["x"].(string)
	return map[string]struct {
		key any
		why string
	}{
		"for encryption":              {ec(members{"use": "enc"}), `its use is \"enc\"`},
		"a use of another kind":       {ec(members{"use": "tls"}), `its use is \"tls\"`},
		"a number for use":            {ec(members{"use": 1}), "use"},
		"key_ops for other things":    {ec(members{"key_ops": []string{"sign", "deriveKey"}}), "key_ops"},
		"no key_ops at all":           {ec(members{"key_ops": []string{}}), "key_ops"},
		"a text for key_ops":          {ec(members{"key_ops": "verify"}), "key_ops"},
		"a point off the curve":       {ec(members{"y": x}), "no point of the curve"},
		"a point of another curve":    {ec(members{"crv": "P-384"}), "no point of the curve"},
		"the point at nought":         {ec(members{"x": "AA", "y": "AA"}), "no point of the curve"},
		"a coordinate that is long":   {ec(members{"x": encoded(bytes.Repeat([]byte{7}, 33))}), "more than 32 bytes"},
		"no y":                        {ec(members{"y": nil}), "it has no y"},
		"no crv":                      {ec(members{"crv": nil}), "crv"},
		"a curve of coins":            {ec(members{"crv": "secp256k1"}), `its crv is \"secp256k1\"`},
		"a number for kid":            {ec(members{"kid": 4711}), "key 1, kid 4711: "},
		"an object for kid":           {ec(members{"kid": members{"a": 1}}), "kid"},
		"an unknown kty":              {members{"kty": "AKP", "kid": "odd", "alg": "ML-DSA-44", "pub": "AAAA"}, `its kty is \"AKP\"`},
		"no kty":                      {ec(members{"kty": nil}), `its kty is \"\"`},
		"a kty in small letters":      {rsaMembers(2048, members{"kty": "rsa"}), `its kty is \"rsa\"`},
		"a secret":                    {members{"kty": "oct", "kid": "odd", "k": "c2VjcmV0"}, `its kty is \"oct\"`},
		"RSA that is short":           {rsaMembers(2047, nil), "2047 bits"},
		"RSA that is long":            {rsaMembers(8193, nil), "8193 bits"},
		"RSA with an even modulus":    {rsaMembers(2048, members{"n": encoded(even.Bytes())}), "even"},
		"RSA without a modulus":       {rsaMembers(2048, members{"n": nil}), "it has no n"},
		"RSA with a modulus of signs": {rsaMembers(2048, members{"n": "!!!!"}), "its n: illegal base64"},
		"RSA with an exponent of 1":   {rsaMembers(2048, members{"e": "AQ"}), "exponent"},
		"RSA with an even exponent":   {rsaMembers(2048, members{"e": "BA"}), "exponent"},
		"RSA with a huge exponent":    {rsaMembers(2048, members{"e": "AQAAAAAAAQAB"}), "exponent"},
		"RSA for key wrapping":        {rsaMembers(2048, members{"alg": "RSA-OAEP"}), `its alg is \"RSA-OAEP\"`},
		"RSA as a secret":             {rsaMembers(2048, members{"alg": "HS256"}), `its alg is \"HS256\"`},
		"an alg of another curve":     {ec(members{"alg": "ES512"}), `its alg is \"ES512\"`},
		"a curve for agreement":       {members{"kty": "OKP", "kid": "odd", "crv": "X25519", "x": encoded(make([]byte, 32))}, `its crv is \"X25519\"`},
		"Ed25519 that is short":       {members{"kty": "OKP", "kid": "odd", "crv": "Ed25519", "x": encoded(make([]byte, 31))}, "31 bytes"},
		"Ed25519 without x":           {members{"kty": "OKP", "kid": "odd", "crv": "Ed25519"}, "it has no x"},
		"null":                        {nil, "its kty"},
		"a text":                      {"a key", "string"},
		"a list":                      {[]any{}, "array"},
		"nothing in it":               {members{}, "its kty"},
	}
}

func TestOneUnusableKeyLocksNobodyOut(t *testing.T) {
	t.Parallel()
	good := ecKey(t)
	goodMembers := published(t, good.Public(), "good", nil)
	token := sign(t, jwt.SigningMethodES256, "good", good, claims(nil))
	unnamed := sign(t, jwt.SigningMethodES256, "", good, claims(nil))
	odd := oddKeys(t)
	require.GreaterOrEqual(t, len(odd), 24)
	all := []any{goodMembers}
	for name, tc := range odd {
		all = append(all, tc.key)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.raw = setOf(t, tc.key, goodMembers)
			a, _, log := newTestAuthorizer(t, i)
			requireAllowed(t, a, bearing(t, token))
			requireAllowed(t, a, bearing(t, unnamed))
			require.Equal(t, 1, i.readCount())
			require.Equal(t, 1, strings.Count(log.String(), "keys of the issuer that are not used"), "once a read")
			require.Contains(t, log.String(), "key 1")
			require.Contains(t, log.String(), tc.why)
		})
		t.Run(name+", alone", func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.raw = setOf(t, tc.key)
			a, _, log := newTestAuthorizer(t, i)
			_, err := a.handle(t.Context(), bearing(t, token))
			require.EqualError(t, err, "the JWKS cannot be read", "no verdict on the token")
			require.Contains(t, log.String(), "the set has no usable key")
			require.Contains(t, log.String(), tc.why)
		})
	}
	t.Run("all of them", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		i.raw = setOf(t, all...)
		a, _, log := newTestAuthorizer(t, i)
		requireAllowed(t, a, bearing(t, token))
		require.Contains(t, log.String(), fmt.Sprintf(`"count":%d`, len(odd)))
		require.Equal(t, keysMaxLogged, strings.Count(log.String(), `"key `), "a log line has an end")
	})
}

// What is odd about these does not matter.
func TestOddKeysThatAreOfUse(t *testing.T) {
	t.Parallel()
	ec := ecKey(t)
	for published(t, ec.Public(), "k", nil)["x"].(string)[:2] != "AA" { // its x begins with a zero byte
		ec = ecKey(t)
	}
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	require.NoError(t, err)
	edPublic, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	x := published(t, ec.Public(), "k", nil)["x"].(string)
	xBytes, err := base64.RawURLEncoding.DecodeString(x)
	require.NoError(t, err)
	es256 := sign(t, jwt.SigningMethodES256, "k", ec, claims(nil))

	for name, tc := range map[string]struct {
		keys  []any
		token string
	}{
		"a certificate that is none":      {[]any{published(t, ec.Public(), "k", members{"x5c": []string{"MIIB"}})}, es256},
		"a number for certificates":       {[]any{published(t, ec.Public(), "k", members{"x5c": 7})}, es256},
		"a certificate to be fetched":     {[]any{published(t, ec.Public(), "k", members{"x5u": "http://elsewhere.example"})}, es256},
		"a thumbprint of something else":  {[]any{published(t, ec.Public(), "k", members{"x5t": "AAAA", "x5t#S256": 1})}, es256},
		"members that nobody knows":       {[]any{published(t, ec.Public(), "k", members{"exp": 1, "issuer": members{}})}, es256},
		"for several things":              {[]any{published(t, ec.Public(), "k", members{"use": "sig", "key_ops": []string{"sign", "verify"}})}, es256},
		"padded":                          {[]any{published(t, ec.Public(), "k", members{"x": x + "="})}, es256},
		"a coordinate without its zeroes": {[]any{published(t, ec.Public(), "k", members{"x": encoded(xBytes[1:])})}, es256},
		"one with its private half":       {[]any{published(t, ec.Public(), "k", members{"d": "AAAA"})}, es256},
		"no kid, and a token that has none": {[]any{published(t, ec.Public(), "", nil)},
			sign(t, jwt.SigningMethodES256, "", ec, claims(nil))},
		"one kid for keys of two kinds": {[]any{published(t, p521.Public(), "k", nil), published(t, edPublic, "k", nil), published(t, ec.Public(), "k", nil)}, es256},
		"one kid for two of a kind":     {[]any{published(t, ecKey(t).Public(), "k", nil), published(t, ec.Public(), "k", nil)}, es256},
		"P-521":                         {[]any{published(t, p521.Public(), "k", members{"alg": "ES512"})}, sign(t, jwt.SigningMethodES512, "k", p521, claims(nil))},
		"Ed25519":                       {[]any{published(t, edPublic, "k", nil)}, sign(t, jwt.SigningMethodEdDSA, "k", ed, claims(nil))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.raw = setOf(t, tc.keys...)
			a, _, _ := newTestAuthorizer(t, i)
			requireAllowed(t, a, bearing(t, tc.token))
		})
	}
}

func TestAKeyIsForItsOwnAlgorithm(t *testing.T) {
	t.Parallel()
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	i := newIssuer(t)
	i.raw = setOf(t, published(t, p384.Public(), "k", nil))
	a, _, _ := newTestAuthorizer(t, i)
	requireAllowed(t, a, bearing(t, sign(t, jwt.SigningMethodES384, "k", p384, claims(nil))))
	// The same curve under the name of another: a signature of the shorter hash.
	for _, kid := range []string{"k", ""} {
		forged := jwt.NewWithClaims(&jwt.SigningMethodECDSA{Name: "ES256", Hash: crypto.SHA256, KeySize: 48, CurveBits: 384}, claims(nil))
		if kid != "" {
			forged.Header["kid"] = kid
		}
		token, err := forged.SignedString(p384)
		require.NoError(t, err)
		_, err = a.handle(t.Context(), bearing(t, token))
		require.EqualError(t, err, "Unauthorized")
	}
}

func TestSetsThatAreNone(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{
		"no JSON":             "<html>",
		"half a JSON":         `{"keys":[`,
		"a list":              `[]`,
		"no keys":             `{}`,
		"null for keys":       `{"keys":null}`,
		"an object for keys":  `{"keys":{}}`,
		"an empty set":        `{"keys":[]}`,
		"something behind it": `{"keys":[]} {"keys":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.raw = document
			a, _, log := newTestAuthorizer(t, i)
			_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, "k", ecKey(t), claims(nil))))
			require.EqualError(t, err, "the JWKS cannot be read")
			require.Contains(t, log.String(), "reading the issuer's keys")
			require.Contains(t, log.String(), `"reason":"keys cannot be read"`)
		})
	}
}

// A token that names no key is checked with each: their number has an end.
func TestAHundredKeysAreUsed(t *testing.T) {
	t.Parallel()
	last, beyond := ecKey(t), ecKey(t)
	other := published(t, ecKey(t).Public(), "other", nil)
	keys := make([]any, maxKeys-1)
	for i := range keys {
		keys[i] = other
	}
	keys = append(keys, published(t, last.Public(), "last", nil), published(t, beyond.Public(), "beyond", nil))
	i := newIssuer(t)
	i.raw = setOf(t, keys...)
	a, _, log := newTestAuthorizer(t, i)
	requireAllowed(t, a, bearing(t, sign(t, jwt.SigningMethodES256, "last", last, claims(nil))))
	requireAllowed(t, a, bearing(t, sign(t, jwt.SigningMethodES256, "", last, claims(nil))))
	_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, "beyond", beyond, claims(nil))))
	require.EqualError(t, err, "Unauthorized")
	require.Contains(t, log.String(), `key 101, kid \"beyond\": there are more than 100`)
}
