package route

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// maxActionBytes is more than any action has. A longer one is unknown and is not
// repeated in the answer.
const maxActionBytes = 64

// request is a frame, read as far as is the same for every action.
type request struct {
	id, action string
	fields     map[string]json.RawMessage
}

// readRequest reads a frame. With an error, the request has what could be read,
// for the error frame.
func readRequest(body string) (request, error) {
	var r request
	if err := json.Unmarshal([]byte(body), &r.fields); err != nil || r.fields == nil {
		return request{}, chat.Errorf(chat.CodeUnknownAction, "a frame is one JSON object with an action and an id")
	}
	idOK := json.Unmarshal(r.fields["id"], &r.id) == nil && r.id != "" && len(r.id) <= wire.MaxRequestIDBytes
	if !idOK {
		r.id = ""
	}
	if json.Unmarshal(r.fields["action"], &r.action) != nil || len(r.action) > maxActionBytes {
		r.action = ""
	}
	switch {
	case !idOK:
		return r, chat.FieldErrorf(chat.CodeBadRequest, "id", "a request has an id, a string of 1 to %d bytes", wire.MaxRequestIDBytes)
	case len(body) > wire.MaxFrameBytes:
		return r, chat.Errorf(chat.CodeTooLarge, "the frame has %d bytes, at most %d are allowed", len(body), wire.MaxFrameBytes)
	}
	return r, nil
}

// decode fills the struct that into points to. It differs from encoding/json in
// three ways: names match exactly, not in any case; null stands for an absent
// field; and a wrong field is named by its whole path. As there, unknown fields
// are ignored and of two fields of one name the last counts.
func decode(fields map[string]json.RawMessage, into any) error {
	return decodeStruct(fields, reflect.ValueOf(into).Elem(), "")
}

func decodeStruct(fields map[string]json.RawMessage, v reflect.Value, path string) error {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		raw, ok := fields[name]
		if !ok || string(raw) == "null" {
			continue
		}
		if err := decodeValue(raw, v.Field(i), path+name); err != nil {
			return err
		}
	}
	return nil
}

func decodeValue(raw json.RawMessage, v reflect.Value, path string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct {
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil {
			return wrongType(path, v.Kind())
		}
		return decodeStruct(fields, v, path+".")
	}
	if json.Unmarshal(raw, v.Addr().Interface()) != nil {
		return wrongType(path, v.Kind())
	}
	return nil
}

func wrongType(path string, wanted reflect.Kind) error {
	what := wanted.String()
	switch wanted {
	case reflect.String:
		what = "a string"
	case reflect.Int, reflect.Int64:
		what = "a whole number, written without point and exponent"
	case reflect.Bool:
		what = "true or false"
	case reflect.Struct:
		what = "an object"
	case reflect.Slice:
		what = "a list"
	}
	return chat.FieldErrorf(chat.CodeBadRequest, path, "%s is %s", path, what)
}

// DecodeEvent fills the struct that into points to from the event of a direct
// invocation, as frames are read, and refuses the fields that the struct does not
// have: no newer client writes it, so what is unknown is misspelt, and would be
// left out in silence.
//
// The errors are *chat.Error, BadRequest with the field's whole path.
func DecodeEvent(raw []byte, into any) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return chat.Errorf(chat.CodeBadRequest, "the event is one JSON object")
	}
	if err := refuseUnknown(fields, reflect.TypeOf(into).Elem(), ""); err != nil {
		return err
	}
	return decode(fields, into)
}

func refuseUnknown(fields map[string]json.RawMessage, t reflect.Type, path string) error {
	var names []string
	known := make(map[string]reflect.Type, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		known[name] = t.Field(i).Type
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		of, ok := known[name]
		if !ok {
			field := clip(path + name)
			return chat.FieldErrorf(chat.CodeBadRequest, field, "there is no field %s; in this place there are %s, spelt exactly so",
				field, strings.Join(names, ", "))
		}
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		var inner map[string]json.RawMessage
		if of.Kind() != reflect.Struct || json.Unmarshal(fields[name], &inner) != nil {
			continue // decode says what is wrong with it
		}
		if err := refuseUnknown(inner, of, path+name+"."); err != nil {
			return err
		}
	}
	return nil
}
