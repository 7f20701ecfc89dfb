package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// pemType is that of a PKCS #8 key, which other tools read, too.
const pemType = "PRIVATE KEY"

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the token key: %w", err)
	}
	return key, nil
}

// keyIn reads the key in the file, or makes both. Whoever has it can sign in as
// anybody: it is kept from other users of the machine.
func keyIn(file string) (*ecdsa.PrivateKey, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return saveKey(file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the token key: %w", err)
	}
	key, err := parseKey(content)
	if err != nil {
		return nil, fmt.Errorf("the token key in %s cannot be used: %w\n"+
			"put a copy back, or remove the file: a new key is made then, and tokens given until now are refused", file, err)
	}
	if err := os.Chmod(file, 0o600); err != nil { // a copy that was put back may be open to all
		return nil, fmt.Errorf("keeping the token key to its owner: %w", err)
	}
	return key, nil
}

func parseKey(content []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(content)
	if block == nil || block.Type != pemType {
		return nil, errors.New("it is no PEM file with a " + pemType)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("it is not of the curve P-256")
	}
	return key, nil
}

// saveKey makes a key and its file, which is there as a whole or not at all.
func saveKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the token key: %w", err)
	}
	next := file + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // its mode would stay
		return nil, fmt.Errorf("keeping the token key: %w", err)
	}
	if err := os.WriteFile(next, pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: encoded}), 0o600); err != nil {
		return nil, fmt.Errorf("keeping the token key: %w", err)
	}
	if err := os.Rename(next, file); err != nil {
		return nil, fmt.Errorf("keeping the token key: %w", err)
	}
	return key, nil
}
