package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
)

const (
	// minRSABits and maxRSABits bound the modulus of an RSA key: less is not allowed
	// (RFC 7518, sections 3.3 and 3.5), and more takes too long to check.
	minRSABits = 2048
	maxRSABits = 8192

	// maxKeys is how many keys of a set are used. A token that names none is checked
	// with each of them.
	maxKeys = 100

	// maxLabelBytes is how much of a key's kid the log has.
	maxLabelBytes = 64
)

var (
	// errNoUsableKey says that a set has no key at all that a token could be checked with.
	errNoUsableKey = errors.New("the set has no usable key")

	// errOtherUse says that a key is meant for something else, which is no fault of it.
	errOtherUse = errors.New("it is not for checking signatures")
)

// key is one of the issuer's keys.
type key struct {
	kid    string   // "" if it has none
	algs   []string // of the tokens that it can check
	public crypto.PublicKey
}

// ignored is a key that is of no use, and why.
type ignored struct {
	label string // the number in the set, and the kid
	why   error
}

func (i ignored) String() string { return i.label + ": " + i.why.Error() }

// keysOf reads a JWKS document key by key: one that cannot be used must not take the
// others with it (RFC 7517, section 5). The error is errNoUsableKey, or says why the
// document is no set at all.
func keysOf(document []byte) (usable []key, others []ignored, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, nil, fmt.Errorf("the answer is no JWKS document: %w", err)
	}
	for i, raw := range set.Keys {
		k, err := keyOf(raw)
		if err == nil && len(usable) == maxKeys {
			err = fmt.Errorf("there are more than %d", maxKeys)
		}
		if err != nil {
			others = append(others, ignored{label: labelOf(i, raw), why: err})
			continue
		}
		usable = append(usable, k)
	}
	if len(usable) == 0 {
		return nil, others, errNoUsableKey
	}
	return usable, others, nil
}

// labelOf names a key that may be of any form.
func labelOf(i int, raw json.RawMessage) string {
	var named struct {
		Kid json.RawMessage `json:"kid"`
	}
	_ = json.Unmarshal(raw, &named) // then it has no name
	if named.Kid == nil {
		return fmt.Sprintf("key %d", i+1)
	}
	return fmt.Sprintf("key %d, kid %s", i+1, named.Kid[:min(len(named.Kid), maxLabelBytes)])
}

// jwk has the members of a JSON Web Key that matter here. Certificates (x5c, x5t, x5u)
// are not looked at: the key is trusted for where it was read, and many that issuers
// publish are of a kind that Go does not parse.
type jwk struct {
	Kty    string   `json:"kty"`
	Use    string   `json:"use"`
	KeyOps []string `json:"key_ops"`
	Alg    string   `json:"alg"`
	Kid    string   `json:"kid"`
	Crv    string   `json:"crv"`
	X      string   `json:"x"`
	Y      string   `json:"y"`
	N      string   `json:"n"`
	E      string   `json:"e"`
}

func keyOf(raw json.RawMessage) (key, error) {
	var j jwk
	if err := json.Unmarshal(raw, &j); err != nil {
		return key{}, err
	}
	if j.Use != "" && j.Use != "sig" {
		return key{}, fmt.Errorf("%w: its use is %q", errOtherUse, j.Use)
	}
	if j.KeyOps != nil && !slices.Contains(j.KeyOps, "verify") {
		return key{}, fmt.Errorf("%w: its key_ops are %q", errOtherUse, j.KeyOps)
	}
	public, algs, err := j.public()
	if err != nil {
		return key{}, err
	}
	if j.Alg != "" {
		if !slices.Contains(algs, j.Alg) {
			return key{}, fmt.Errorf("its alg is %q; such a key can have %v", j.Alg, algs)
		}
		algs = []string{j.Alg}
	}
	return key{kid: j.Kid, algs: algs, public: public}, nil
}

// public returns the key itself, and the algorithms there are with it.
func (j jwk) public() (crypto.PublicKey, []string, error) {
	switch j.Kty {
	case "RSA":
		return j.rsa()
	case "EC":
		return j.ec()
	case "OKP":
		return j.okp()
	default:
		return nil, nil, fmt.Errorf("its kty is %q, not RSA, EC or OKP", j.Kty)
	}
}

func (j jwk) rsa() (crypto.PublicKey, []string, error) {
	modulus, err := octets("n", j.N)
	if err != nil {
		return nil, nil, err
	}
	exponent, err := octets("e", j.E)
	if err != nil {
		return nil, nil, err
	}
	n, e := new(big.Int).SetBytes(modulus), new(big.Int).SetBytes(exponent)
	if bits := n.BitLen(); bits < minRSABits || bits > maxRSABits {
		return nil, nil, fmt.Errorf("its modulus has %d bits; it has to have from %d to %d", bits, minRSABits, maxRSABits)
	}
	if n.Bit(0) == 0 {
		return nil, nil, errors.New("its modulus is even")
	}
	if e.Cmp(big.NewInt(3)) < 0 || e.Cmp(big.NewInt(math.MaxInt32)) > 0 || e.Bit(0) == 0 {
		return nil, nil, errors.New("its exponent is not an odd number from 3 to 2^31-1")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
}

func (j jwk) ec() (crypto.PublicKey, []string, error) {
	var curve elliptic.Curve
	var alg string
	switch j.Crv {
	case "P-256":
		curve, alg = elliptic.P256(), "ES256"
	case "P-384":
		curve, alg = elliptic.P384(), "ES384"
	case "P-521":
		curve, alg = elliptic.P521(), "ES512"
	default:
		return nil, nil, fmt.Errorf("its crv is %q, not P-256, P-384 or P-521", j.Crv)
	}
	point := []byte{4} // both coordinates follow
	for _, c := range []struct{ name, text string }{{"x", j.X}, {"y", j.Y}} {
		octets, err := octets(c.name, c.text)
		if err != nil {
			return nil, nil, err
		}
		octets = bytes.TrimLeft(octets, "\x00")
		size := (curve.Params().BitSize + 7) / 8
		if len(octets) > size {
			return nil, nil, fmt.Errorf("its %s has more than %d bytes", c.name, size)
		}
		point = append(append(point, make([]byte, size-len(octets))...), octets...)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return nil, nil, fmt.Errorf("it is no point of the curve: %w", err)
	}
	return public, []string{alg}, nil
}

func (j jwk) okp() (crypto.PublicKey, []string, error) {
	if j.Crv != "Ed25519" {
		return nil, nil, fmt.Errorf("its crv is %q, not Ed25519", j.Crv)
	}
	x, err := octets("x", j.X)
	if err != nil {
		return nil, nil, err
	}
	if len(x) != ed25519.PublicKeySize {
		return nil, nil, fmt.Errorf("its x has %d bytes, not %d", len(x), ed25519.PublicKeySize)
	}
	return ed25519.PublicKey(x), []string{"EdDSA"}, nil
}

// octets decodes a member. Some issuers pad it, against RFC 7515, section 2.
func octets(name, text string) ([]byte, error) {
	if text == "" {
		return nil, fmt.Errorf("it has no %s", name)
	}
	decoded, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil, fmt.Errorf("its %s: %w", name, err)
	}
	return decoded, nil
}
