// Package wiretest plays the corpus: the scripts of shared/wire/testdata, which say what a
// server answers and pushes to whoever speaks the protocol. Their README has the format.
package wiretest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Script is what some devices do, and what they hear.
type Script struct {
	About   string   `json:"about"`          // one sentence: what holds
	Only    []string `json:"only,omitempty"` // the names of the servers that it is played against; none is all
	Why     string   `json:"why,omitempty"`  // not against the others
	Devices []string `json:"devices"`        // user, or user/device; they connect in this order
	Steps   []Step   `json:"steps"`
}

// Step is one thing that a device does, and what comes of it.
type Step struct {
	By         string           `json:"by"`
	Send       json.RawMessage  `json:"send,omitempty"`    // a request, or a frame as a text
	Connect    bool             `json:"connect,omitempty"` // anew, whether it is connected or not
	Disconnect bool             `json:"disconnect,omitempty"`
	Reply      any              `json:"reply,omitempty"`      // the result
	Error      any              `json:"error,omitempty"`      // the error, without its message
	Answer     any              `json:"answer,omitempty"`     // the whole frame
	Eventually bool             `json:"eventually,omitempty"` // it is sent again until the answer is this one
	Pushes     map[string][]any `json:"pushes,omitempty"`     // by devices, with commas between; in any order
}

// Load reads the scripts of a folder by their names, without ".json".
func Load(folder string) (map[string]Script, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	scripts := map[string]Script{}
	for _, path := range paths {
		raw, err := os.ReadFile(path) //nolint:gosec // the test's own
		if err != nil {
			return nil, err
		}
		var s Script
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&s); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if s.About == "" || len(s.Devices) == 0 || (len(s.Only) > 0) != (s.Why != "") {
			return nil, fmt.Errorf("reading %s: it needs about, devices, and why if there is only", path)
		}
		scripts[strings.TrimSuffix(filepath.Base(path), ".json")] = s
	}
	return scripts, nil
}

// Words are all texts in a script's frames: the actions, codes and kinds that it plays are
// among them.
func (s Script) Words() []string {
	var words []string
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case string:
			words = append(words, v)
		case []any:
			for _, item := range v {
				collect(item)
			}
		case map[string]any:
			for _, item := range v {
				collect(item)
			}
		}
	}
	for _, step := range s.Steps {
		var sent any
		_ = json.Unmarshal(step.Send, &sent) // there may be none
		for _, v := range []any{sent, step.Reply, step.Error, step.Answer} {
			collect(v)
		}
		for _, frames := range step.Pushes {
			collect(frames)
		}
	}
	return words
}

// names are what stands for the names of a script: its users, and what it met so far.
type names struct {
	user   func(name string) string
	values map[string]any
}

// userOf is the user of a device of a script.
func userOf(device string) string {
	user, _, _ := strings.Cut(device, "/")
	return user
}

// bind gives each user of the devices its name.
func (n *names) bind(devices []string) {
	n.values = map[string]any{}
	for _, d := range devices {
		n.values[userOf(d)] = n.user(userOf(d))
	}
}

var (
	nameIn   = regexp.MustCompile(`\$[A-Za-z]\w*`)
	repeatIn = regexp.MustCompile(`^\$repeat (\d+) (.+)$`)
	crowdIn  = regexp.MustCompile(`^\$([a-z]+) (\d+)-(\d+)$`)
)

// fill puts in what stands for the names in a request.
func (n *names) fill(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return n.fillText(v)
	case []any:
		list := []any{} // not null
		for _, item := range v {
			if crowd := n.crowd(item); crowd != nil {
				list = append(list, crowd...)
				continue
			}
			filled, err := n.fill(item)
			if err != nil {
				return nil, err
			}
			list = append(list, filled)
		}
		return list, nil
	case map[string]any:
		for key, item := range v {
			filled, err := n.fill(item)
			if err != nil {
				return nil, err
			}
			v[key] = filled
		}
	}
	return v, nil
}

func (n *names) fillText(s string) (any, error) {
	if m := repeatIn.FindStringSubmatch(s); m != nil {
		times, err := strconv.Atoi(m[1])
		return strings.Repeat(m[2], times), err
	}
	name, ok := strings.CutPrefix(s, "$")
	if !ok {
		return s, nil
	}
	value, known := n.values[name]
	if !known {
		return nil, fmt.Errorf("nothing is known of %s yet", s)
	}
	return value, nil
}

// crowd are the users of "$name 1-3", and nil of anything else.
func (n *names) crowd(v any) []any {
	s, _ := v.(string)
	m := crowdIn.FindStringSubmatch(s)
	if m == nil {
		return nil
	}
	from, _ := strconv.Atoi(m[2])
	to, _ := strconv.Atoi(m[3])
	var users []any
	for i := from; i <= to; i++ {
		name := m[1] + strconv.Itoa(i)
		n.values[name] = n.user(name)
		users = append(users, n.values[name])
	}
	return users
}

// frame makes a step's frame. id is its id, "" if that is the script's own affair.
func (n *names) frame(send json.RawMessage, number int) (frame []byte, id, action string, err error) {
	dec := json.NewDecoder(bytes.NewReader(send))
	dec.UseNumber() // numbers go as they are written
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, "", "", err
	}
	if text, ok := v.(string); ok {
		if m := repeatIn.FindStringSubmatch(text); m != nil {
			filled, err := n.fillText(text)
			return []byte(filled.(string)), "", "", err
		}
		text = nameIn.ReplaceAllStringFunc(text, func(name string) string { return fmt.Sprint(n.values[name[1:]]) })
		return []byte(text), "", "", nil
	}
	if v, err = n.fill(v); err != nil {
		return nil, "", "", err
	}
	request := v.(map[string]any)
	id = strconv.Itoa(number)
	request["id"] = id
	action, _ = request["action"].(string)
	frame, err = encode(request)
	return frame, id, action, err
}

// encode is JSON without escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// match compares what came with what a script expects, and learns what stands for its
// new names.
func (n *names) match(want, got any) error {
	before := n.values
	n.values = copyOf(before)
	err := n.compare("", want, got)
	if err != nil {
		n.values = before
	}
	return err
}

func copyOf(values map[string]any) map[string]any {
	copied := make(map[string]any, len(values))
	for name, value := range values {
		copied[name] = value
	}
	return copied
}

func (n *names) compare(at string, want, got any) error {
	switch want := want.(type) {
	case map[string]any:
		return n.compareObjects(at, want, got)
	case []any:
		return n.compareLists(at, want, got)
	case string:
		return n.compareText(at, want, got)
	}
	if want != got {
		return fmt.Errorf("%s is %s, not %s", at, show(got), show(want))
	}
	return nil
}

func (n *names) compareText(at, want string, got any) error {
	name, isName := strings.CutPrefix(want, "$")
	value, known := n.values[name]
	switch {
	case isName && got == nil:
		return fmt.Errorf("%s is missing", at)
	case want == "$any":
		return nil
	case isName && nameIn.MatchString(want) && !strings.Contains(want, " ") && !known:
		n.values[name] = got
		return nil
	}
	if known && isName {
		if _, isText := value.(string); !isText {
			return n.compare(at, value, got)
		}
	} else {
		var err error
		if value, err = n.fillText(want); err != nil {
			return err
		}
	}
	if value != got {
		return fmt.Errorf("%s is %s, not %s, %s", at, show(got), show(want), show(value))
	}
	return nil
}

func (n *names) compareObjects(at string, want map[string]any, got any) error {
	object, ok := got.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is %s, no object", at, show(got))
	}
	for _, key := range sortedKeys(want) {
		if key == "$as" {
			continue
		}
		value, ok := object[key]
		if !ok {
			return fmt.Errorf("%s.%s is missing, not %s", at, key, show(want[key]))
		}
		if err := n.compare(at+"."+key, want[key], value); err != nil {
			return err
		}
	}
	for _, key := range sortedKeys(object) {
		if _, expected := want[key]; !expected && !isEmpty(object[key]) {
			return fmt.Errorf("%s.%s is there: %s", at, key, show(object[key]))
		}
	}
	if name, ok := want["$as"].(string); ok {
		n.values[name] = got
	}
	return nil
}

func (n *names) compareLists(at string, want []any, got any) error {
	list, ok := got.([]any)
	if !ok {
		return fmt.Errorf("%s is %s, no list", at, show(got))
	}
	list = slices.Clone(list)
	anyOrder := len(want) > 0 && want[0] == "$unordered"
	if anyOrder {
		want = want[1:]
	}
	var all []any
	for _, item := range want {
		if crowd := n.crowd(item); crowd != nil {
			all = append(all, crowd...)
		} else {
			all = append(all, item)
		}
	}
	if len(all) != len(list) {
		return fmt.Errorf("%s has %d elements, not %d: %s", at, len(list), len(all), show(got))
	}
	for i, item := range all {
		if !anyOrder {
			if err := n.compare(fmt.Sprintf("%s[%d]", at, i), item, list[i]); err != nil {
				return err
			}
			continue
		}
		found := slices.IndexFunc(list, func(one any) bool { return n.match(item, one) == nil })
		if found < 0 {
			return fmt.Errorf("%s has no %s: %s", at, show(item), show(got))
		}
		list = slices.Delete(list, found, found+1)
	}
	return nil
}

// isEmpty is what an optional field may be left out for.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return v == nil || v == "" || v == 0.0 || v == false
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// show is a value as JSON, as much of it as helps.
func show(v any) string {
	encoded, err := encode(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	const most = 2000
	if len(encoded) > most {
		return string(encoded[:most]) + "…"
	}
	return string(encoded)
}
