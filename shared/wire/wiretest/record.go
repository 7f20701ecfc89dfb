package wiretest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/inorder-im/inorder/shared/wire"
)

// quiet is how long a server that has nothing more to push says nothing.
const quiet = 2500 * time.Millisecond

// record fills in the answer to a step and what it pushes, as this server has it. The
// script's author checks it.
func (p *player) record(ctx context.Context, number int, step *Step) error {
	d := p.devices[step.By]
	frame, id, action, err := p.names.frame(step.Send, number)
	if err != nil {
		return err
	}
	if err := d.write(ctx, frame); err != nil {
		return err
	}
	if action != wire.ActionTell {
		within, cancel := context.WithTimeout(ctx, p.server.Patience)
		defer cancel()
		got, err := d.answer(within)
		if err != nil {
			return err
		}
		if err := p.schemas.exchange(frame, got); err != nil {
			return err
		}
		answer := withoutMessage(got).(map[string]any)
		result, body := answer["result"], answer["error"]
		switch {
		case id == "" || answer["id"] != id:
			step.Answer = p.names.generalise("", answer)
		case result != nil:
			step.Reply = p.names.name(p.names.generalise("", result))
			unorder(action, step.Reply.(map[string]any))
		default:
			step.Error = p.names.generalise("", body)
		}
	}
	if slices.Contains(reads, action) {
		return nil
	}
	return p.recordPushes(ctx, step)
}

// unorder says of a whole list of conversations that it may be in any order.
func unorder(action string, reply map[string]any) {
	list, _ := reply["conversations"].([]any)
	if len(list) > 1 && (action == wire.ActionConversations || reply["full"] == true) {
		reply["conversations"] = append([]any{"$unordered"}, list...)
	}
}

// reads are the actions that push nothing.
var reads = []string{
	wire.ActionSync, wire.ActionHistory, wire.ActionChanges, wire.ActionConversations, wire.ActionMembers, wire.ActionReceipts, wire.ActionPing,
}

// recordPushes takes down what is pushed until nothing is any more.
func (p *player) recordPushes(ctx context.Context, step *Step) error {
	for before := -1; before != p.heardSoFar(); {
		before = p.heardSoFar()
		select {
		case <-time.After(quiet):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	by := map[string][]string{} // devices, by what they heard
	for _, name := range sortedDevices(p.devices) {
		d := p.devices[name]
		d.mu.Lock()
		var all []string
		for _, push := range d.pushes {
			one, err := encode(p.names.generalise("", push))
			if err != nil {
				return err
			}
			if !slices.Contains(all, string(one)) {
				all = append(all, string(one))
			}
		}
		d.heard, d.pushes = append(d.heard, d.pushes...), nil
		wrong := d.wrong
		d.mu.Unlock()
		if wrong != nil {
			return wrong
		}
		if len(all) > 0 {
			key := "[" + strings.Join(all, ",") + "]"
			by[key] = append(by[key], name)
		}
	}
	groups := map[string]string{}
	for pushes, names := range by {
		groups[strings.Join(names, ", ")] = pushes
	}
	for _, names := range slices.Sorted(maps.Keys(groups)) {
		var list []any
		if err := json.Unmarshal([]byte(groups[names]), &list); err != nil {
			return err
		}
		if step.Pushes == nil {
			step.Pushes = map[string][]any{}
		}
		step.Pushes[names] = p.names.name(list).([]any)
	}
	return nil
}

func (p *player) heardSoFar() int {
	sum := 0
	for _, d := range p.devices {
		d.mu.Lock()
		sum += len(d.pushes)
		d.mu.Unlock()
	}
	return sum
}

func sortedDevices(devices map[string]*device) []string {
	var names []string
	for name := range devices {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// newNames are how values are called that come up first in these fields. Those of the
// second list are never the same as another.
var (
	newNames = map[string]string{
		"conversationId": "c", "messageId": "m", "targetMessageId": "m", "serverTime": "t", "updatedAt": "t", "joinedAt": "t",
	}
	freshNames = map[string]string{"syncCursor": "v", "headsCursor": "h", "cursor": "p"}
)

// generalise puts names where a value is another the next time.
func (n *names) generalise(field string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		object := map[string]any{}
		for _, key := range sortedKeys(v) {
			object[key] = n.generalise(key, v[key])
		}
		if object["windows"] != nil {
			object["windows"] = "$any" // the operator's affair
		}
		return object
	case []any:
		var list []any
		for _, item := range v {
			list = append(list, n.generalise(field, item))
		}
		return shorten(list)
	}
	if text, ok := v.(string); ok && field != "messageId" {
		if n, c := repetition(text); n > 99 {
			return fmt.Sprintf("$repeat %d %c", n, c)
		}
	}
	if name := freshNames[field]; name != "" {
		return n.learn(name, v)
	}
	_, isText := v.(string)
	for name, value := range n.values {
		if _, isObject := value.(map[string]any); isObject {
			continue
		}
		if value == v && (isText || strings.HasPrefix(name, newNames[field]) && newNames[field] != "") {
			return "$" + name
		}
	}
	if name := newNames[field]; name != "" {
		return n.learn(name, v)
	}
	return v
}

// name gives a message a name where it comes up first, and puts that name where it comes
// again.
func (n *names) name(v any) any {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			v[i] = n.name(item)
		}
	case map[string]any:
		if v["clientMsgId"] == nil || v["status"] == nil {
			for key, item := range v {
				v[key] = n.name(item)
			}
			return v
		}
		for name, value := range n.values {
			if strings.HasPrefix(name, "M") && reflect.DeepEqual(value, any(v)) {
				return "$" + name
			}
		}
		named := copyOf(v)
		named["$as"] = n.learn("M", any(v))[1:]
		return named
	}
	return v
}

// repetition is how often a text has its first character, 0 if it has another one.
func repetition(text string) (times int, c rune) {
	for i, r := range text {
		if i == 0 {
			c = r
		}
		if r != c {
			return 0, c
		}
		times++
	}
	return times, c
}

func (n *names) learn(prefix string, v any) string {
	for i := 1; ; i++ {
		name := fmt.Sprintf("%s%d", prefix, i)
		if _, taken := n.values[name]; !taken {
			n.values[name] = v
			return "$" + name
		}
	}
}

var numbered = regexp.MustCompile(`^\$([a-z]{2,}?)(\d+)$`)

// shorten writes the members of a crowd as one.
func shorten(list []any) []any {
	short := []any{}
	for i := 0; i < len(list); {
		end := i
		m := numbered.FindStringSubmatch(fmt.Sprint(list[i]))
		for n := 0; m != nil && end < len(list); n, end = n+1, end+1 {
			var first int
			_, _ = fmt.Sscan(m[2], &first)
			if list[end] != fmt.Sprintf("$%s%d", m[1], first+n) {
				break
			}
		}
		if end > i+1 {
			last := numbered.FindStringSubmatch(list[end-1].(string))
			short = append(short, fmt.Sprintf("$%s %s-%s", m[1], m[2], last[2]))
			i = end
			continue
		}
		short = append(short, list[i])
		i++
	}
	return short
}

// format writes a script, with what is sent and what comes on lines of their own.
func format(s Script) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"about\": %s,\n", show(s.About))
	if len(s.Only) > 0 {
		fmt.Fprintf(&b, "  \"only\": %s,\n  \"why\": %s,\n", spaced(s.Only), show(s.Why))
	}
	fmt.Fprintf(&b, "  \"devices\": %s,\n  \"steps\": [\n", spaced(s.Devices))
	for i, step := range s.Steps {
		var fields []string
		add := func(name string, there bool, v any) {
			if there {
				fields = append(fields, fmt.Sprintf("      \"%s\": %s", name, spaced(v)))
			}
		}
		add("connect", step.Connect, true)
		add("disconnect", step.Disconnect, true)
		add("send", step.Send != nil, step.Send)
		add("reply", step.Reply != nil, step.Reply)
		add("error", step.Error != nil, step.Error)
		add("answer", step.Answer != nil, step.Answer)
		add("eventually", step.Eventually, true)
		if len(step.Pushes) > 0 {
			var pushes []string
			for _, names := range sortedPushes(step.Pushes) {
				var frames []string
				for _, frame := range step.Pushes[names] {
					frames = append(frames, "          "+spaced(frame))
				}
				pushes = append(pushes, fmt.Sprintf("        %q: [\n%s\n        ]", names, strings.Join(frames, ",\n")))
			}
			fields = append(fields, "      \"pushes\": {\n"+strings.Join(pushes, ",\n")+"\n      }")
		}
		fmt.Fprintf(&b, "    {\n      \"by\": %q,\n%s\n    }", step.By, strings.Join(fields, ",\n"))
		if i < len(s.Steps)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("  ]\n}\n")
	return b.Bytes()
}

// spaced is JSON on one line, with a space after each colon and comma.
func spaced(v any) string {
	encoded, err := encode(v)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	inText, escaped := false, false
	for _, c := range string(encoded) {
		b.WriteRune(c)
		switch {
		case escaped:
			escaped = false
		case inText && c == '\\':
			escaped = true
		case c == '"':
			inText = !inText
		case !inText && (c == ',' || c == ':'):
			b.WriteByte(' ')
		}
	}
	return b.String()
}
