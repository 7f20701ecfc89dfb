// Package issuer signs tokens for trying the product out, as a login service
// would. Its public key is a JWKS document like any other, so an authorizer
// needs no special case for it.
package issuer

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
)

const (
	// TokenPath mints a token: ?user=alice, and for testing how a bad token is
	// refused, ttl (a duration such as 10m, or -1m for an expired one), iss and aud.
	TokenPath = "/dev/token"
	// KeysPath serves the JWKS document.
	KeysPath = "/dev/jwks.json"

	defaultTTL = 12 * time.Hour
	keyID      = "local"
)

// Issuer holds a key.
type Issuer struct {
	name, audience string
	key            *ecdsa.PrivateKey
	keys           json.RawMessage // the JWKS document
}

// New makes an Issuer with a fresh key. name and audience are the iss and aud of
// its tokens.
func New(name, audience string) (*Issuer, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return withKey(name, audience, key)
}

// Open is New with the key in a file, which is made if it is not there. Tokens stay
// good as long as the file does. The error for a file without a key names it.
func Open(name, audience, file string) (*Issuer, error) {
	key, err := keyIn(file)
	if err != nil {
		return nil, err
	}
	return withKey(name, audience, key)
}

func withKey(name, audience string, key *ecdsa.PrivateKey) (*Issuer, error) {
	public, err := jwkset.NewJWKFromKey(key.Public(), jwkset.JWKOptions{
		Metadata: jwkset.JWKMetadataOptions{KID: keyID, ALG: jwkset.AlgES256, USE: jwkset.UseSig},
	})
	if err != nil {
		return nil, fmt.Errorf("describing the token key: %w", err)
	}
	keys, err := json.Marshal(jwkset.JWKSMarshal{Keys: []jwkset.JWKMarshal{public.Marshal()}})
	if err != nil {
		return nil, fmt.Errorf("encoding the key set: %w", err)
	}
	return &Issuer{name: name, audience: audience, key: key, keys: keys}, nil
}

// Handler serves TokenPath and KeysPath. Who can ask for a token can be anyone, so
// not everybody may: the caller sees to that.
func (i *Issuer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+TokenPath, i.serveToken)
	mux.HandleFunc("GET "+KeysPath, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, i.keys)
	})
	return mux
}

func (i *Issuer) serveToken(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	user := q.Get("user")
	if user == "" {
		http.Error(w, "say for whom: "+TokenPath+"?user=alice", http.StatusBadRequest)
		return
	}
	ttl := defaultTTL
	if q.Has("ttl") {
		var err error
		if ttl, err = time.ParseDuration(q.Get("ttl")); err != nil {
			http.Error(w, "ttl is a duration such as 10m or -1m", http.StatusBadRequest)
			return
		}
	}
	now := time.Now()
	claims := jwt.RegisteredClaims{
		Subject:   user,
		Issuer:    i.name,
		Audience:  jwt.ClaimStrings{i.audience},
		IssuedAt:  jwt.NewNumericDate(now.Add(min(0, ttl))),
		ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
	}
	if q.Has("iss") {
		claims.Issuer = q.Get("iss")
	}
	if q.Has("aud") {
		claims.Audience = jwt.ClaimStrings{q.Get("aud")}
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	token.Header["kid"] = keyID
	signed, err := token.SignedString(i.key)
	if err != nil {
		http.Error(w, "signing the token: "+err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, map[string]any{"token": signed, "expiresAt": claims.ExpiresAt.UnixMilli()})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // the caller went away
}
