// Package stack says where an Inorder is, and launches the local cloud as one, as the
// program that its users start.
package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// Stack is an Inorder that is up.
type Stack struct {
	Socket string // the URL devices connect to
	Tokens string // the URL that gives out tokens
	Page   string // the URL of the demo page; "" where there is none
}

// Token gets a token for a user. query is more to ask for, such as ttl=30s of a local
// cloud.
func (s Stack) Token(ctx context.Context, user string, query url.Values) (string, error) {
	u, err := url.Parse(s.Tokens)
	if err != nil {
		return "", fmt.Errorf("getting a token: %w", err)
	}
	all := u.Query()
	for name, values := range query {
		all[name] = values
	}
	all.Set("user", user)
	u.RawQuery = all.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", fmt.Errorf("getting a token: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("getting a token: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var got struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Token == "" {
		return "", fmt.Errorf("getting a token from %s: it answered %s and no {\"token\": …}", s.Tokens, resp.Status)
	}
	return got.Token, nil
}
