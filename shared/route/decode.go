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
	return wire.Decode(fields, into)
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
