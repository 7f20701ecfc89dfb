package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// invokeAction is the action that lets a client use a route.
const invokeAction = "execute-api:Invoke"

// policy is the part of an IAM policy document that an authorizer's answer is judged by.
type policy struct {
	Statement oneOrMany[statement]
}

type statement struct {
	Effect      string
	Action      oneOrMany[string]
	Resource    oneOrMany[string]
	NotAction   json.RawMessage
	NotResource json.RawMessage
	Condition   json.RawMessage
}

// oneOrMany reads what IAM lets people write either as a list or, for one element,
// without it.
type oneOrMany[T any] []T

func (l *oneOrMany[T]) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		return json.Unmarshal(data, (*[]T)(l))
	}
	var one T
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	*l = []T{one}
	return nil
}

// allows judges as IAM does: at least one statement must allow, and none may deny. It
// is an error when the policy uses what is not evaluated here, since guessing could let
// someone in.
func (p policy) allows(action, resource string) (bool, error) {
	allowed, denied := false, false
	for i, s := range p.Statement {
		if s.NotAction != nil || s.NotResource != nil || len(s.Condition) > 0 && !emptyObject(s.Condition) {
			return false, fmt.Errorf("statement %d of its policy has NotAction, NotResource or Condition, which are not evaluated here", i)
		}
		if s.Effect != "Allow" && s.Effect != "Deny" {
			return false, fmt.Errorf("statement %d of its policy has the effect %q; use Allow or Deny", i, s.Effect)
		}
		if !matchesAny(lower(s.Action), strings.ToLower(action)) || !matchesAny(s.Resource, resource) {
			continue
		}
		allowed = allowed || s.Effect == "Allow"
		denied = denied || s.Effect == "Deny"
	}
	if len(p.Statement) == 0 {
		return false, errors.New("its policy has no statement")
	}
	return allowed && !denied, nil
}

func emptyObject(raw json.RawMessage) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(raw, &object) == nil && len(object) == 0
}

// lower makes actions comparable: IAM ignores their case.
func lower(names []string) []string {
	lowered := make([]string, len(names))
	for i, name := range names {
		lowered[i] = strings.ToLower(name)
	}
	return lowered
}

func matchesAny(patterns []string, s string) bool {
	for _, pattern := range patterns {
		if matches(pattern, s) {
			return true
		}
	}
	return false
}

// matches reports whether s is what pattern describes, where * stands for any
// characters, slashes and colons too, and ? for exactly one. On a mismatch it goes back
// to the last star only, so the time is at most len(pattern) × len(s).
func matches(pattern, s string) bool {
	p, i := 0, 0
	star, from := -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			from++
			p, i = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
