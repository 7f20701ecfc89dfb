package regiontest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"text/scanner"
)

// value is an attribute value in DynamoDB's JSON: one key, its type.
type value map[string]any

type item map[string]value

// names are what stands for # and : in a request's expressions.
type names struct {
	Names  map[string]string `json:"ExpressionAttributeNames"`
	Values map[string]value  `json:"ExpressionAttributeValues"`
}

// expression reads one expression from left to right, and judges or applies it to
// an item as it goes. It knows what the store's expressions use, and panics at
// anything else: a model that guesses is worse than none.
type expression struct {
	scanner scanner.Scanner
	token   string
	names
	item item
}

func (n names) over(text string, it item) *expression {
	e := &expression{names: n, item: it}
	e.scanner.Init(strings.NewReader(text))
	e.scanner.Mode = scanner.ScanIdents | scanner.ScanInts
	e.scanner.IsIdentRune = func(r rune, i int) bool {
		return r == '_' || r == '#' && i == 0 || r == ':' && i == 0 || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' && i > 0
	}
	e.next()
	return e
}

func (e *expression) next() {
	e.scanner.Scan()
	e.token = e.scanner.TokenText()
	if (e.token == "<" || e.token == ">") && (e.scanner.Peek() == '=' || e.scanner.Peek() == '>') {
		e.token += string(e.scanner.Next())
	}
}

func (e *expression) is(word string) bool {
	if !strings.EqualFold(e.token, word) {
		return false
	}
	e.next()
	return true
}

func (e *expression) want(word string) {
	if !e.is(word) {
		panic(fmt.Sprintf("regiontest: %q where %q was to be", e.token, word))
	}
}

// holds judges a condition. No condition holds.
func (n names) holds(condition string, it item) bool {
	if condition == "" {
		return true
	}
	e := n.over(condition, it)
	ok := e.or()
	if e.token != "" {
		panic(fmt.Sprintf("regiontest: %q in the condition %s", e.token, condition))
	}
	return ok
}

func (e *expression) or() bool {
	ok := e.and()
	for e.is("OR") {
		ok = e.and() || ok
	}
	return ok
}

func (e *expression) and() bool {
	ok := e.not()
	for e.is("AND") {
		ok = e.not() && ok
	}
	return ok
}

func (e *expression) not() bool {
	if e.is("NOT") {
		return !e.not()
	}
	if e.is("(") {
		ok := e.or()
		e.want(")")
		return ok
	}
	return e.judged()
}

func (e *expression) judged() bool {
	switch {
	case e.is("attribute_exists"):
		return e.argument() != nil
	case e.is("attribute_not_exists"):
		return e.argument() == nil
	case e.is("contains"):
		return e.pair(func(a, b value) bool {
			return slices.Contains(a.set(), b.text()) || a["S"] != nil && strings.Contains(a.text(), b.text())
		})
	case e.is("begins_with"):
		return e.pair(func(a, b value) bool { return a["S"] != nil && strings.HasPrefix(a.text(), b.text()) })
	}
	left := e.operand()
	operator := e.token
	e.next()
	switch strings.ToUpper(operator) {
	case "BETWEEN":
		low := e.operand()
		e.want("AND")
		high := e.operand()
		return compare(low, left, "<=") && compare(left, high, "<=")
	case "IN":
		e.want("(")
		found := compare(left, e.operand(), "=")
		for e.is(",") {
			found = compare(left, e.operand(), "=") || found
		}
		e.want(")")
		return found
	}
	return compare(left, e.operand(), operator)
}

func (e *expression) argument() value {
	e.want("(")
	v := e.operand()
	e.want(")")
	return v
}

func (e *expression) pair(judge func(a, b value) bool) bool {
	e.want("(")
	a := e.operand()
	e.want(",")
	b := e.operand()
	e.want(")")
	return a != nil && b != nil && judge(a, b)
}

// operand is a value, a path, a function of them, or a sum. What is not there is nil.
func (e *expression) operand() value {
	v := e.term()
	for e.token == "+" || e.token == "-" {
		minus := e.token == "-"
		e.next()
		other := e.term()
		if minus {
			other = other.negative()
		}
		v = sum(v, other)
	}
	return v
}

func (e *expression) term() value {
	switch {
	case e.is("if_not_exists"):
		e.want("(")
		v := e.operand()
		e.want(",")
		otherwise := e.operand()
		e.want(")")
		if v == nil {
			return otherwise
		}
		return v
	case e.is("list_append"):
		e.want("(")
		a := e.operand()
		e.want(",")
		b := e.operand()
		e.want(")")
		return value{"L": slices.Concat(a["L"].([]any), b["L"].([]any))}
	case e.is("size"):
		return e.argument().size()
	case strings.HasPrefix(e.token, ":"):
		v, ok := e.Values[e.token]
		if !ok {
			panic("regiontest: no value for " + e.token)
		}
		e.next()
		return v
	}
	path := e.path()
	v := e.item[path[0]]
	for _, name := range path[1:] {
		m, ok := v["M"].(map[string]any)
		if !ok || m[name] == nil {
			return nil
		}
		v = m[name].(map[string]any)
	}
	return v
}

func (e *expression) path() []string {
	var path []string
	for {
		name := e.token
		if strings.HasPrefix(name, "#") {
			name = e.Names[e.token]
		}
		if name == "" {
			panic(fmt.Sprintf("regiontest: no name for %q", e.token))
		}
		path = append(path, name)
		e.next()
		if !e.is(".") {
			return path
		}
	}
}

// updated returns the item after an update expression. All of its operands are of the
// item before.
func (n names) updated(update string, before item) item {
	e := n.over(update, before)
	after := before.clone()
	for e.token != "" {
		clause := strings.ToUpper(e.token)
		e.next()
		for {
			path := e.path()
			switch clause {
			case "SET":
				e.want("=")
				after.put(path, e.operand())
			case "REMOVE":
				after.put(path, nil)
			case "ADD":
				after.put(path, added(before.at(path), e.operand()))
			case "DELETE":
				after.put(path, without(before.at(path), e.operand()))
			default:
				panic("regiontest: the update clause " + clause)
			}
			if !e.is(",") {
				break
			}
		}
	}
	return after
}

// clone copies the maps, in which put writes; the rest is never written.
func (it item) clone() item {
	after := make(item, len(it))
	for name, v := range it {
		after[name] = cloned(v)
	}
	return after
}

func cloned(v value) value {
	m, ok := v["M"].(map[string]any)
	if !ok {
		return v
	}
	after := make(map[string]any, len(m))
	for name, v := range m {
		after[name] = map[string]any(cloned(v.(map[string]any)))
	}
	return value{"M": after}
}

func (it item) at(path []string) value {
	v := it[path[0]]
	for _, name := range path[1:] {
		m, _ := v["M"].(map[string]any)
		next, _ := m[name].(map[string]any)
		v = next
	}
	return v
}

// put writes at a path; nil removes. A map on the way that is not there is an error
// in DynamoDB, and here.
func (it item) put(path []string, v value) {
	if len(path) == 1 {
		if v == nil {
			delete(it, path[0])
			return
		}
		it[path[0]] = v
		return
	}
	parent := it.at(path[:len(path)-1])
	m, ok := parent["M"].(map[string]any)
	if !ok {
		panic("regiontest: no map at " + strings.Join(path, "."))
	}
	name := path[len(path)-1]
	if v == nil {
		delete(m, name)
		return
	}
	m[name] = map[string]any(v)
}

func added(v, more value) value {
	if v == nil {
		return more
	}
	if more["N"] != nil {
		return sum(v, more)
	}
	return setOf(more, slices.Concat(v.set(), more.set()))
}

func without(v, less value) value {
	left := slices.DeleteFunc(slices.Clone(v.set()), func(s string) bool { return slices.Contains(less.set(), s) })
	if len(left) == 0 {
		return nil
	}
	return setOf(less, left)
}

func setOf(like value, members []string) value {
	slices.Sort(members)
	var all []any
	for _, s := range slices.Compact(members) {
		all = append(all, s)
	}
	return value{like.kind(): all}
}

func (v value) kind() string {
	for kind := range maps.Keys(v) {
		return kind
	}
	return ""
}

func (v value) text() string {
	for _, kind := range []string{"S", "N", "B"} {
		if s, ok := v[kind].(string); ok {
			return s
		}
	}
	return ""
}

func (v value) set() []string {
	var members []string
	for _, kind := range []string{"SS", "NS", "BS"} {
		all, _ := v[kind].([]any)
		for _, m := range all {
			members = append(members, m.(string))
		}
	}
	return members
}

func (v value) size() value {
	n := 0
	switch all := v[v.kind()].(type) {
	case nil:
		return nil
	case string:
		n = len(all)
	case []any:
		n = len(all)
	case map[string]any:
		n = len(all)
	}
	return value{"N": fmt.Sprint(n)}
}

func (v value) number() *big.Float {
	f, _, err := big.ParseFloat(v.text(), 10, 150, big.ToNearestEven) // DynamoDB keeps 38 digits
	if err != nil {
		panic(fmt.Sprintf("regiontest: %v is no number", v))
	}
	return f
}

func (v value) negative() value {
	return value{"N": new(big.Float).Neg(v.number()).Text('f', -1)}
}

func sum(a, b value) value {
	return value{"N": new(big.Float).Add(a.number(), b.number()).Text('f', -1)}
}

// compare is false where one is not there or they are of different types; only <> is
// then true.
func compare(a, b value, operator string) bool {
	if a == nil || b == nil || a.kind() != b.kind() {
		return operator == "<>"
	}
	order := strings.Compare(a.text(), b.text())
	switch a.kind() {
	case "N":
		order = a.number().Cmp(b.number())
	case "S", "B":
	default:
		if operator != "=" && operator != "<>" {
			return false
		}
		x, _ := json.Marshal(a) //nolint:errchkjson // it came from JSON
		y, _ := json.Marshal(b) //nolint:errchkjson // it came from JSON
		order = strings.Compare(string(x), string(y))
	}
	switch operator {
	case "=":
		return order == 0
	case "<>":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	}
	panic("regiontest: the comparison " + operator)
}
