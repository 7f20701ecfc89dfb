package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// An exchange is an action: its request beside the Header, and its result, nil for
// one that is never answered.
type exchange struct{ request, result any }

var exchanges = map[string]exchange{
	wire.ActionSend:          {wire.Send{}, wire.Sent{}},
	wire.ActionSync:          {wire.Sync{}, wire.Synced{}},
	wire.ActionHistory:       {wire.History{}, wire.HistoryPage{}},
	wire.ActionAck:           {wire.Ack{}, wire.Acked{}},
	wire.ActionTell:          {wire.Ack{}, nil},
	wire.ActionRecall:        {wire.Recall{}, wire.Sent{}},
	wire.ActionEdit:          {wire.Edit{}, wire.Edited{}},
	wire.ActionClear:         {wire.Clear{}, wire.Cleared{}},
	wire.ActionCreateGroup:   {wire.CreateGroup{}, wire.Created{}},
	wire.ActionAddMembers:    {wire.ChangeMembers{}, wire.Sent{}},
	wire.ActionRemoveMembers: {wire.ChangeMembers{}, wire.Sent{}},
	wire.ActionLeave:         {wire.ChangeGroup{}, wire.Sent{}},
	wire.ActionSetRole:       {wire.SetRole{}, wire.Sent{}},
	wire.ActionSetTitle:      {wire.SetTitle{}, wire.Sent{}},
	wire.ActionDissolve:      {wire.ChangeGroup{}, wire.Sent{}},
	wire.ActionMembers:       {wire.Members{}, wire.MembersPage{}},
	wire.ActionConversations: {wire.Conversations{}, wire.ConversationsPage{}},
	wire.ActionChanges:       {wire.Changes{}, wire.Changed{}},
	wire.ActionReceipts:      {wire.Receipts{}, wire.ReceiptsPage{}},
	wire.ActionPing:          {struct{}{}, wire.Pong{}},
}

var pushes = map[string]any{
	wire.TypePush:    wire.Push{},
	wire.TypeNotify:  wire.Notify{},
	wire.TypeReceipt: wire.Receipt{},
	wire.TypeChanged: wire.ChangedHint{},
	wire.TypeGoodbye: wire.Goodbye{},
}

// gatewayError is what API Gateway says; the package has no type for it, since
// clients are not to look into it.
type gatewayError struct {
	Message      string `json:"message"`
	ConnectionID string `json:"connectionId"`
	RequestID    string `json:"requestId"`
}

// The document, as far as there is anything to check: a word that stands in it and
// not here is an error.
type document struct {
	AsyncAPI           string    `yaml:"asyncapi"`
	Info               yaml.Node `yaml:"info"`
	DefaultContentType string    `yaml:"defaultContentType"`
	Servers            yaml.Node `yaml:"servers"`
	Channels           map[string]struct {
		Address       *string              `yaml:"address"`
		Description   string               `yaml:"description"`
		MaxFrameBytes int                  `yaml:"x-maxFrameBytes"`
		Bindings      yaml.Node            `yaml:"bindings"`
		Messages      map[string]reference `yaml:"messages"`
	} `yaml:"channels"`
	Operations map[string]operation `yaml:"operations"`
	Components struct {
		SecuritySchemes yaml.Node           `yaml:"securitySchemes"`
		CorrelationIDs  yaml.Node           `yaml:"correlationIds"`
		Messages        map[string]*message `yaml:"messages"`
		Schemas         map[string]*schema  `yaml:"schemas"`
	} `yaml:"components"`
}

type reference struct {
	Ref string `yaml:"$ref"`
}

type operation struct {
	Action   string      `yaml:"action"`
	Summary  string      `yaml:"summary"`
	Channel  reference   `yaml:"channel"`
	Messages []reference `yaml:"messages"`
	Reply    *struct {
		Channel  reference   `yaml:"channel"`
		Messages []reference `yaml:"messages"`
	} `yaml:"reply"`
}

type message struct {
	CorrelationID reference `yaml:"correlationId"`
	Payload       *schema   `yaml:"payload"`
	Examples      []struct {
		Payload any `yaml:"payload"`
	} `yaml:"examples"`
}

type schema struct {
	Ref         string             `yaml:"$ref"`
	Description string             `yaml:"description"`
	Type        string             `yaml:"type"`
	Const       string             `yaml:"const"`
	Enum        []string           `yaml:"enum"`
	Properties  map[string]*schema `yaml:"properties"`
	Required    []string           `yaml:"required"`
	Items       *schema            `yaml:"items"`
	AllOf       []*schema          `yaml:"allOf"`
	OneOf       []*schema          `yaml:"oneOf"`
	AnyOf       []*schema          `yaml:"anyOf"`
	Examples    []string           `yaml:"examples"`

	Bounds `yaml:",inline"`
}

// Bounds are what a schema says of a value beside its type. The last three are ours.
type Bounds struct {
	Pattern   string `yaml:"pattern"`
	Minimum   *int64 `yaml:"minimum"`
	Maximum   *int64 `yaml:"maximum"`
	Default   *int64 `yaml:"default"`
	MinLength int    `yaml:"minLength"`
	MaxLength int    `yaml:"maxLength"`
	MinItems  int    `yaml:"minItems"`
	MaxItems  int    `yaml:"maxItems"`
	Unique    bool   `yaml:"uniqueItems"`
	MaxBytes  int    `yaml:"x-maxBytes"`
	MaxDepth  int    `yaml:"x-maxDepth"`
}

func limits(least, most int64) Bounds { return Bounds{Minimum: &least, Maximum: &most} }

func pageSize(most, standard int64) Bounds {
	b := limits(1, most)
	b.Default = &standard
	return b
}

// bounds are all that stand in the document, by schema and property.
var bounds = map[string]Bounds{
	"RequestID":      {MinLength: 1, MaxLength: wire.MaxRequestIDBytes},
	"ConversationID": {Pattern: "^(single|group|system):.", MaxLength: chat.MaxConversationIDBytes},
	"UserID":         {MinLength: 1, MaxLength: chat.MaxUserIDBytes},
	"DeviceID":       {Pattern: "^[A-Za-z0-9._-]+$", MaxLength: chat.MaxDeviceIDBytes},
	"ClientMsgID":    {Pattern: "^[ -~]+$", MaxLength: chat.MaxClientMsgIDBytes},
	"MessageID":      {MinLength: 1},
	"Title":          {MinLength: 1, MaxLength: chat.MaxTitleRunes},
	"Text":           {MaxLength: chat.MaxTextRunes},
	"Data":           {MaxDepth: chat.MaxDataDepth},
	"Message":        {MaxBytes: chat.MaxMessageBytes},
	"Seq":            limits(1, chat.MaxSeq),
	"Position":       limits(0, chat.MaxSeq),
	"Version":        limits(1, chat.MaxSeq),
	"Time":           limits(0, chat.MaxSeq),

	"Sync.limit":                      pageSize(wire.MaxSyncLimit, wire.DefaultSyncLimit),
	"History.limit":                   pageSize(wire.MaxHistoryLimit, wire.DefaultHistoryLimit),
	"Conversations.limit":             pageSize(wire.MaxListLimit, wire.DefaultListLimit),
	"Synced.messages":                 {MaxItems: wire.MaxSyncLimit},
	"HistoryPage.messages":            {MaxItems: wire.MaxHistoryLimit},
	"ConversationsPage.conversations": {MaxItems: wire.MaxListLimit},
	"MembersPage.members":             {MaxItems: wire.MemberPage},
	"CreateGroup.members":             {MaxItems: chat.MaxRosterChange - 1, Unique: true},
	"ChangeMembers.members":           {MinItems: 1, MaxItems: chat.MaxRosterChange, Unique: true},
	"MessagePreview.text":             {MaxLength: chat.PreviewRunes},
	"Windows.editMs":                  {Minimum: new(int64)},
	"Windows.recallMs":                {Minimum: new(int64)},
}

// values are the schemas of single values, each with its type if it has one of its
// own. It is the list of the type's constants, unless the type is an id's.
var values = map[string]reflect.Type{
	"RequestID": nil, "UserID": nil, "DeviceID": nil, "ClientMsgID": nil, "MessageID": nil,
	"Cursor": nil, "Title": nil, "Text": nil, "Data": nil, "Seq": nil, "Position": nil, "Version": nil, "Time": nil,
	"ConversationID": reflect.TypeFor[chat.ConversationID](),
	"Code":           reflect.TypeFor[chat.Code](),
	"Kind":           reflect.TypeFor[chat.Kind](),
	"State":          reflect.TypeFor[chat.State](),
	"Visibility":     reflect.TypeFor[chat.Visibility](),
	"Role":           reflect.TypeFor[chat.Role](),
	"SendableType":   reflect.TypeFor[chat.MessageType](),
	"MessageType":    reflect.TypeFor[chat.MessageType](),
	"Status":         reflect.TypeFor[chat.Status](),
	"EventKind":      reflect.TypeFor[chat.EventKind](),
	"GoodbyeReason":  nil,
}

func readDocument(t *testing.T) document {
	t.Helper()
	raw, err := os.ReadFile("asyncapi.yaml")
	require.NoError(t, err)
	var doc document
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	require.NoError(t, dec.Decode(&doc))
	return doc
}

// named returns the last part of a reference.
func named(ref, folder string) string {
	name, _ := strings.CutPrefix(ref, "#/"+folder+"/")
	return name
}

func refs(folder string, names ...string) []reference {
	list := make([]reference, len(names))
	for i, name := range names {
		list[i] = reference{"#/" + folder + "/" + name}
	}
	return list
}

// The document has an operation for each action and each push of the package, and no
// other; each with its messages, which stand in the one channel.
func TestAsyncAPIHasEachFrame(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	require.ElementsMatch(t, constants(t, ".", "Action"), slices.Collect(maps.Keys(exchanges)))
	require.ElementsMatch(t, append(slices.Collect(maps.Keys(pushes)), wire.TypeReply, wire.TypeError), constants(t, ".", "Type"))
	socket := doc.Channels["socket"]
	require.Len(t, doc.Channels, 1)
	require.Equal(t, wire.MaxFrameBytes, socket.MaxFrameBytes)

	wantOperations := []string{"gatewayError"}
	wantMessages := []string{"gatewayError", wire.TypeError}
	for action, e := range exchanges {
		wantOperations = append(wantOperations, action)
		wantMessages = append(wantMessages, action)
		op := doc.Operations[action]
		require.Equal(t, "receive", op.Action, action)
		require.Equal(t, refs("channels/socket/messages", action), op.Messages, action)
		if e.result == nil {
			require.Nil(t, op.Reply, action)
			continue
		}
		wantMessages = append(wantMessages, action+"Reply")
		require.NotNil(t, op.Reply, action)
		require.Equal(t, refs("channels/socket/messages", action+"Reply", wire.TypeError), op.Reply.Messages, action)
	}
	for name := range pushes {
		wantOperations = append(wantOperations, name)
		wantMessages = append(wantMessages, name)
		require.Equal(t, "send", doc.Operations[name].Action, name)
		require.Equal(t, refs("channels/socket/messages", name), doc.Operations[name].Messages, name)
		require.Nil(t, doc.Operations[name].Reply, name)
	}
	require.ElementsMatch(t, wantOperations, slices.Collect(maps.Keys(doc.Operations)))
	require.ElementsMatch(t, wantMessages, slices.Collect(maps.Keys(doc.Components.Messages)))
	require.ElementsMatch(t, wantMessages, slices.Collect(maps.Keys(socket.Messages)))
	for name, ref := range socket.Messages {
		require.Equal(t, refs("components/messages", name)[0], ref)
	}
}

// Every field of every frame stands in the document, with its type, whether it has to
// be there, and its values; and nothing else does.
func TestAsyncAPIHasEachField(t *testing.T) {
	t.Parallel()
	w := walk{t: t, schemas: readDocument(t).Components.Schemas, seen: map[string]reflect.Type{}}
	messages := readDocument(t).Components.Messages
	for action, e := range exchanges {
		header := []*schema{{Ref: "#/components/schemas/Header"}}
		if request := reflect.TypeOf(e.request); request.Name() != "" {
			header = append(header, &schema{Ref: "#/components/schemas/" + request.Name()})
			w.named(request)
		}
		is := &schema{Properties: map[string]*schema{"action": {Const: action}}}
		require.Equal(t, &schema{AllOf: append(header, is)}, messages[action].Payload, action)

		if e.result == nil {
			continue
		}
		result := reflect.TypeOf(e.result)
		w.named(result)
		is = &schema{Properties: map[string]*schema{"action": {Const: action}, "result": {Ref: "#/components/schemas/" + result.Name()}}}
		require.Equal(t, &schema{AllOf: []*schema{{Ref: "#/components/schemas/Reply"}, is}}, messages[action+"Reply"].Payload, action)
	}
	w.named(reflect.TypeFor[wire.Header]())
	w.named(reflect.TypeFor[wire.Reply]())
	w.typed(wire.TypeError, wire.ErrorReply{}, messages)
	for name, frame := range pushes {
		w.typed(name, frame, messages)
	}
	w.object("GatewayError", reflect.TypeFor[gatewayError]())

	want := append(exportedStructs(t, "."), "GatewayError", "Message", "ReplyTo", "Event")
	want = slices.DeleteFunc(want, func(name string) bool { return name == "Request" }) // a frame whose fields nobody has read yet
	for name, of := range values {
		want = append(want, name)
		require.Contains(t, w.schemas, name)
		if of != nil && name != "ConversationID" {
			require.ElementsMatch(t, constantsOf(t, name, of), w.schemas[name].Enum, name)
		}
	}
	require.ElementsMatch(t, constants(t, ".", "Goodbye"), w.schemas["GoodbyeReason"].Enum)
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(w.schemas)))
}

// constantsOf are the values of a type that may stand in a schema.
func constantsOf(t *testing.T, schemaName string, of reflect.Type) []string {
	t.Helper()
	list := typedConstants(t, filepath.Join("..", "chat"), of.Name())
	if schemaName == "SendableType" {
		list = slices.DeleteFunc(list, func(v string) bool { return !chat.MessageType(v).Sendable() })
	}
	return list
}

type walk struct {
	t       *testing.T
	schemas map[string]*schema
	seen    map[string]reflect.Type
}

// typed checks a frame whose type is a constant.
func (w walk) typed(name string, frame any, messages map[string]*message) {
	w.t.Helper()
	of := reflect.TypeOf(frame)
	require.Equal(w.t, &schema{Ref: "#/components/schemas/" + of.Name()}, messages[name].Payload, name)
	w.named(of)
	require.Equal(w.t, name, w.schemas[of.Name()].Properties["type"].Const)
}

// named checks a struct against the schema of its name.
func (w walk) named(of reflect.Type) { w.object(of.Name(), of) }

func (w walk) object(name string, of reflect.Type) {
	w.t.Helper()
	if before, ok := w.seen[name]; ok {
		require.Equal(w.t, before, of, "two types are called %s", name)
		return
	}
	w.seen[name] = of
	s, ok := w.schemas[name]
	require.True(w.t, ok, "there is no schema of %s", name)
	properties, required := w.flat(s)
	for _, f := range fieldsOf(of) {
		property, ok := properties[f.name]
		require.True(w.t, ok, "%s has no %s", name, f.name)
		delete(properties, f.name)
		require.Equal(w.t, !f.optional, slices.Contains(required, f.name), "whether %s has to have %s", name, f.name)
		w.value(name+"."+f.name, property, f.of)
	}
	require.Empty(w.t, properties, "of %s, which has no such field", name)
}

// flat returns the properties of a schema and of all that it is made of.
func (w walk) flat(s *schema) (properties map[string]*schema, required []string) {
	w.t.Helper()
	properties = map[string]*schema{}
	if s.Ref != "" {
		s = w.schemas[named(s.Ref, "components/schemas")]
		require.NotNil(w.t, s)
	}
	for _, part := range s.AllOf {
		inner, needs := w.flat(part)
		maps.Copy(properties, inner)
		required = append(required, needs...)
	}
	if len(s.AllOf) == 0 {
		require.Equal(w.t, "object", s.Type)
	}
	maps.Copy(properties, s.Properties)
	return properties, append(required, s.Required...)
}

// value checks a property against the Go type of its field.
func (w walk) value(at string, s *schema, of reflect.Type) {
	w.t.Helper()
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	ref := s.Ref
	if len(s.AllOf) == 1 { // a reference with a description
		ref = s.AllOf[0].Ref
	}
	name := named(ref, "components/schemas")
	if name != "" {
		require.Contains(w.t, w.schemas, name, at)
		s = w.schemas[name]
	}
	switch {
	case of == reflect.TypeFor[json.RawMessage](), of.Kind() == reflect.Map:
		require.Equal(w.t, "object", s.Type, at)
		require.Empty(w.t, s.Properties, at)
	case of.Kind() == reflect.Interface: // the result of an action
		require.Empty(w.t, s.Type, at)
	case of.Kind() == reflect.Struct:
		require.Equal(w.t, of.Name(), name, at)
		w.named(of)
	case of.Kind() == reflect.Slice:
		require.Equal(w.t, "array", s.Type, at)
		w.value(at+"[]", s.Items, of.Elem())
	case of.Kind() == reflect.String && of.Name() != "string": // with a type of its own
		require.Contains(w.t, values, name, at)
		require.Equal(w.t, of, values[name], at)
		require.Equal(w.t, "string", s.Type, at)
	case of.Kind() == reflect.String:
		require.Nil(w.t, values[name], at)
		require.Equal(w.t, "string", s.Type, at)
	case of.Kind() == reflect.Bool:
		require.Equal(w.t, "boolean", s.Type, at)
	case of.Kind() == reflect.Int, of.Kind() == reflect.Int64:
		require.Equal(w.t, "integer", s.Type, at)
	default:
		require.Fail(w.t, "a type that no frame has had so far", "%s: %s", at, of)
	}
}

type field struct {
	name     string
	optional bool
	of       reflect.Type
}

// fieldsOf returns the fields as encoding/json writes them.
func fieldsOf(of reflect.Type) []field {
	var list []field
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Anonymous {
			list = append(list, fieldsOf(f.Type)...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		list = append(list, field{name: name, optional: options == "omitempty", of: f.Type})
	}
	return list
}

// Each bound in the document is the package's own, and none is missing.
func TestAsyncAPIHasEachBound(t *testing.T) {
	t.Parallel()
	found := map[string]Bounds{}
	var collect func(at string, s *schema)
	collect = func(at string, s *schema) {
		if s.Bounds != (Bounds{}) {
			found[at] = s.Bounds
		}
		for name, property := range s.Properties {
			collect(at+"."+name, property)
		}
		for _, part := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
			collect(at, part)
		}
		if s.Items != nil {
			collect(at+"[]", s.Items)
		}
	}
	for name, s := range readDocument(t).Components.Schemas {
		collect(name, s)
	}
	require.Equal(t, bounds, found)
}

// The patterns of ids take what the domain takes, at the bounds and beyond.
func TestAsyncAPIPatternsAreTheDomains(t *testing.T) {
	t.Parallel()
	schemas := readDocument(t).Components.Schemas
	for name, validate := range map[string]func(field, id string) error{
		"DeviceID": chat.ValidateDeviceID, "ClientMsgID": chat.ValidateClientMsgID, "ConversationID": func(field, id string) error { return chat.ValidateConversationID(field, chat.ConversationID(id)) },
	} {
		pattern := regexp.MustCompile(schemas[name].Pattern)
		var candidates []string
		for c := range rune(0x100) {
			candidates = append(candidates, string(c), "a"+string(c), "group:"+string(c))
		}
		for _, prefix := range []string{"", "single:", "group:", "system:", "other:", ":"} {
			for n := range 200 {
				candidates = append(candidates, prefix+strings.Repeat("x", n))
			}
		}
		for _, id := range candidates {
			if name == "ConversationID" && strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
				continue // no pattern says what a control character is everywhere
			}
			takes := pattern.MatchString(id) && len([]rune(id)) <= schemas[name].MaxLength
			require.Equal(t, validate("id", id) == nil, takes, "%s %q", name, id)
		}
	}
}

// The examples come back as they are from the types of the package: they have no
// field beside those, and no type has one that should be there and is not.
func TestAsyncAPIExamplesAreFrames(t *testing.T) {
	t.Parallel()
	into := map[string]any{wire.TypeError: &wire.ErrorReply{}, "gatewayError": &gatewayError{}}
	for action, e := range exchanges {
		if e.result != nil {
			into[action+"Reply"] = &wire.Reply{Result: reflect.New(reflect.TypeOf(e.result)).Interface()}
		}
		request := reflect.StructOf([]reflect.StructField{
			{Name: "Header", Type: reflect.TypeFor[wire.Header](), Anonymous: true},
			{Name: "Request", Type: reflect.TypeOf(e.request), Tag: `json:"request"`},
		})
		into[action] = reflect.New(request).Interface()
	}
	for name, frame := range pushes {
		into[name] = reflect.New(reflect.TypeOf(frame)).Interface()
	}
	for name, m := range readDocument(t).Components.Messages {
		require.NotEmpty(t, m.Examples, name)
		for i, example := range m.Examples {
			frame, ok := into[name]
			require.True(t, ok, name)
			payload := example.Payload
			if _, isRequest := exchanges[name]; isRequest {
				all := payload.(map[string]any)
				payload = map[string]any{"action": all["action"], "id": all["id"], "request": all}
				delete(all, "action")
				delete(all, "id")
			}
			want, err := json.Marshal(payload)
			require.NoError(t, err)
			fresh := reflect.New(reflect.TypeOf(frame).Elem())
			if reply, ok := frame.(*wire.Reply); ok {
				fresh.Elem().FieldByName("Result").Set(reflect.New(reflect.TypeOf(reply.Result).Elem()))
			}
			dec := json.NewDecoder(bytes.NewReader(want))
			dec.DisallowUnknownFields()
			require.NoError(t, dec.Decode(fresh.Interface()), "%s, example %d", name, i)
			got, err := wire.Encode(fresh.Interface())
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(got), "%s, example %d", name, i)
		}
	}
}

// The protocol in words names the same: each action with its fields and whether they
// may be left out, each push, each error and whether it is worth a retry.
func TestProtocolInWordsHasEachFrame(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("README.md")
	require.NoError(t, err)
	readme := string(raw)

	actions := tableRows(readme, "action")
	rowOf := map[string][]string{} // for those that are as another
	described := map[string]bool{}
	for _, row := range actions {
		for _, action := range inWords(row[0]) {
			e, ok := exchanges[action.name]
			require.True(t, ok, "no action %s", action.name)
			described[action.name] = true
			rowOf[action.name] = row
			if like, ok := strings.CutPrefix(row[1], "as "); ok {
				row[1] = rowOf[inWords(like)[0].name][1]
			}
			require.Subset(t, fieldsInWords(row[1], reflect.TypeOf(e.request)), fieldsOfWords(reflect.TypeOf(e.request)), "%s: %s", action.name, row[1])
			require.Empty(t, strangersIn(row[1], reflect.TypeOf(e.request)), "request of %s", action.name)
			if e.result == nil {
				require.Equal(t, "none, not even an error", row[2], action.name)
				continue
			}
			result := strings.Replace(row[2], "as `send`", rowOf[wire.ActionSend][2], 1)
			if result == "the conversation, `duplicate`" {
				continue // its fields are in the types alone
			}
			require.Subset(t, fieldsInWords(result, reflect.TypeOf(e.result)), fieldsOfWords(reflect.TypeOf(e.result)), "%s: %s", action.name, result)
			require.Empty(t, strangersIn(result, reflect.TypeOf(e.result)), "result of %s", action.name)
		}
	}
	require.Len(t, described, len(exchanges))

	described = map[string]bool{}
	for _, row := range tableRows(readme, "type") {
		name := inWords(row[0])[0].name
		frame, ok := pushes[name]
		require.True(t, ok, "no push %s", name)
		described[name] = true
		of := fieldsOfWords(reflect.TypeOf(frame))
		require.Subset(t, fieldsInWords(row[1], reflect.TypeOf(frame)), slices.DeleteFunc(of, func(w word) bool { return w.name == "type" }), name)
		require.Empty(t, strangersIn(row[1], reflect.TypeOf(frame)), name)
	}
	require.Len(t, described, len(pushes))

	var codes, reasons []string
	for _, row := range tableRows(readme, "code") {
		code := chat.Code(inWords(row[0])[0].name)
		codes = append(codes, string(code))
		require.Equal(t, code.Retryable(), row[1] == "yes", code)
	}
	require.ElementsMatch(t, typedConstants(t, "../chat", "Code"), codes)
	for _, row := range tableRows(readme, "`goodbye` because of") {
		for _, reason := range inWords(row[0]) {
			reasons = append(reasons, reason.name)
		}
	}
	require.ElementsMatch(t, constants(t, ".", "Goodbye"), reasons)

	for action, size := range map[string]string{
		wire.ActionSync:          fmt.Sprintf("1–%d, %d", wire.MaxSyncLimit, wire.DefaultSyncLimit),
		wire.ActionHistory:       fmt.Sprintf("1–%d, %d", wire.MaxHistoryLimit, wire.DefaultHistoryLimit),
		wire.ActionConversations: fmt.Sprintf("1–%d, %d", wire.MaxListLimit, wire.DefaultListLimit),
	} {
		i := slices.IndexFunc(actions, func(row []string) bool { return row[0] == "`"+action+"`" })
		require.Contains(t, actions[i][1], "("+size+")", action)
	}
	of := reflect.TypeFor[gatewayError]()
	require.Contains(t, readme, fmt.Sprintf("`{\"%s\": \"Internal server error\", \"%s\", \"%s\"}`",
		fieldsOf(of)[0].name, fieldsOf(of)[1].name, fieldsOf(of)[2].name))
}

// tableRows are the cells of the rows below a head whose first cell is this one.
func tableRows(document, first string) [][]string {
	var rows [][]string
	inside := false
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case cells[0] == first:
			inside = true
		case inside && !strings.HasPrefix(line, "|---"):
			rows = append(rows, cells)
		}
	}
	return rows
}

// A word is a name in a table, and whether it may be absent.
type word struct {
	name     string
	optional bool
}

var (
	codeSpan = regexp.MustCompile("`([^`]*)`(\\?)?( or)?")
	wordIn   = regexp.MustCompile(`([A-Za-z_]\w*)(\?)?`)
)

// inWords reads the names in a cell. A question mark, in a span or after it, is of the
// name before; of names joined by "or" either may be absent.
func inWords(cell string) []word {
	var list []word
	alternative := false
	for _, span := range codeSpan.FindAllStringSubmatch(cell, -1) {
		names := wordIn.FindAllStringSubmatch(span[1], -1)
		for i, name := range names {
			last := i == len(names)-1
			list = append(list, word{name[1], name[2] != "" || alternative || last && (span[2] != "" || span[3] != "")})
		}
		alternative = span[3] != ""
	}
	return list
}

// fieldsInWords are the words that are fields of the struct itself.
func fieldsInWords(cell string, of reflect.Type) []word {
	return slices.DeleteFunc(inWords(cell), func(w word) bool {
		return !slices.ContainsFunc(fieldsOf(of), func(f field) bool { return f.name == w.name })
	})
}

func fieldsOfWords(of reflect.Type) []word {
	var list []word
	for _, f := range fieldsOf(of) {
		list = append(list, word{f.name, f.optional})
	}
	return list
}

// strangersIn are the words that are no field of the struct or of one below it, and
// no value of a field.
func strangersIn(cell string, of reflect.Type) []word {
	known := map[string]bool{}
	var add func(of reflect.Type)
	add = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() == reflect.String {
			for name, constants := range values {
				if constants == of && of.Name() != "string" {
					known["@"+name] = true
				}
			}
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for _, f := range fieldsOf(of) {
			known[f.name] = true
			if f.of != of {
				add(f.of)
			}
		}
	}
	add(of)
	for action := range exchanges { // it may say what to ask, or what it is about
		known[action] = true
	}
	return slices.DeleteFunc(inWords(cell), func(w word) bool {
		return known[w.name] || known["@SendableType"] && chat.MessageType(w.name).Sendable() ||
			known["@Visibility"] && slices.Contains([]chat.Visibility{chat.VisibleAll, chat.VisibleSinceJoin}, chat.Visibility(w.name)) ||
			known["@Role"] && slices.Contains([]chat.Role{chat.RoleOwner, chat.RoleAdmin, chat.RolePlain}, chat.Role(w.name))
	})
}

// declarations are those of a package's files, without tests.
func declarations(t *testing.T, folder string) []ast.Spec {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	var specs []ast.Spec
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if general, ok := decl.(*ast.GenDecl); ok {
				specs = append(specs, general.Specs...)
			}
		}
	}
	require.NotEmpty(t, specs)
	return specs
}

func exportedStructs(t *testing.T, folder string) []string {
	t.Helper()
	var names []string
	for _, spec := range declarations(t, folder) {
		if of, ok := spec.(*ast.TypeSpec); ok && of.Name.IsExported() {
			_, isStruct := of.Type.(*ast.StructType)
			require.True(t, isStruct || of.Assign.IsValid(), "%s is no struct, nor one of package chat", of.Name)
			names = append(names, of.Name.Name)
		}
	}
	return names
}

// constants are the values of the constants whose names begin so.
func constants(t *testing.T, folder, prefix string) []string {
	t.Helper()
	return stringConstants(t, folder, func(name string, _ ast.Expr) bool { return strings.HasPrefix(name, prefix) })
}

// typedConstants are the values of the constants of a type.
func typedConstants(t *testing.T, folder, typeName string) []string {
	t.Helper()
	return stringConstants(t, folder, func(_ string, of ast.Expr) bool {
		id, ok := of.(*ast.Ident)
		return ok && id.Name == typeName
	})
}

func stringConstants(t *testing.T, folder string, wanted func(name string, of ast.Expr) bool) []string {
	t.Helper()
	var list []string
	for _, spec := range declarations(t, folder) {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || len(value.Names) != 1 || len(value.Values) != 1 || !wanted(value.Names[0].Name, value.Type) {
			continue
		}
		literal, ok := value.Values[0].(*ast.BasicLit)
		require.True(t, ok, value.Names[0].Name)
		text, err := strconv.Unquote(literal.Value)
		require.NoError(t, err)
		list = append(list, text)
	}
	require.NotEmpty(t, list)
	return list
}
