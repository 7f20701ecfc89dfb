package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/inorder-im/inorder/shared/chat"
)

// maxActionBytes is more than any action has. A longer one is unknown and is not
// repeated in the answer.
const maxActionBytes = 64

// Request is a frame, read as far as is the same for every action.
type Request struct {
	Header
	Fields map[string]json.RawMessage // what Decode takes
}

// ReadRequest reads a frame. With an error, a *chat.Error, the request has what could
// be read, for the error frame.
func ReadRequest(body []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(body, &r.Fields); err != nil || r.Fields == nil {
		return Request{}, chat.Errorf(chat.CodeUnknownAction, "a frame is one JSON object with an action and an id")
	}
	idOK := json.Unmarshal(r.Fields["id"], &r.ID) == nil && r.ID != "" && len(r.ID) <= MaxRequestIDBytes
	if !idOK {
		r.ID = ""
	}
	if json.Unmarshal(r.Fields["action"], &r.Action) != nil || len(r.Action) > maxActionBytes {
		r.Action = ""
	}
	switch {
	case !idOK:
		return r, chat.FieldErrorf(chat.CodeBadRequest, "id", "a request has an id, a string of 1 to %d bytes", MaxRequestIDBytes)
	case len(body) > MaxFrameBytes:
		return r, chat.Errorf(chat.CodeTooLarge, "the frame has %d bytes, at most %d are allowed", len(body), MaxFrameBytes)
	}
	return r, nil
}

// Decode fills the struct that into points to, such as a Send, and refuses it if its
// Validate does. It differs from encoding/json in four ways: names match exactly, not
// in any case; null stands for an absent field; a wrong field is named by its whole
// path; and what stays JSON, as data, loses the spaces between its parts: no frame has
// them, so they would be kept, and paid for at each reading, without being counted as
// part of the message. As there, unknown fields are ignored and of two fields of one
// name the last counts. The errors are *chat.Errors, BadRequest with the field.
func Decode(fields map[string]json.RawMessage, into any) error {
	if err := decodeStruct(fields, reflect.ValueOf(into).Elem(), ""); err != nil {
		return err
	}
	if checked, ok := into.(interface{ Validate() error }); ok {
		return checked.Validate()
	}
	return nil
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
	into := v.Addr().Interface()
	if kept, ok := into.(*json.RawMessage); ok {
		var b bytes.Buffer
		err := json.Compact(&b, raw)
		*kept = b.Bytes()
		return err
	}
	if json.Unmarshal(raw, into) != nil {
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
