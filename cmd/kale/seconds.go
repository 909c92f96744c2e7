package main

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
)

// printJSON prints v as one line of JSON for scripts: as encoding/json has it, save that durations are seconds, under names that end in _s, and that a zero which is
// not known is left out.
// What is kept on disk and what schedulers and commands say to each other has them in nanoseconds, by the names that are in the types.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	if err := writeJSON(&b, reflect.ValueOf(v)); err != nil {
		return fmt.Errorf("print the result as JSON: %w", err)
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	jsonType     = reflect.TypeFor[json.Marshaler]()
	textType     = reflect.TypeFor[encoding.TextMarshaler]()
)

func writeJSON(b *bytes.Buffer, v reflect.Value) error {
	if !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil() {
		b.WriteString("null")
		return nil
	}
	if v.Type() == durationType {
		return writeLeaf(b, time.Duration(v.Int()).Seconds())
	}
	if own, ok := speaksForItself(v); ok {
		return writeLeaf(b, own)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return writeJSON(b, v.Elem())
	case reflect.Struct:
		return writeObject(b, fieldsOf(v))
	case reflect.Map:
		return writeMap(b, v)
	case reflect.Slice, reflect.Array:
		return writeList(b, v)
	}
	return writeLeaf(b, v.Interface())
}

func writeLeaf(b *bytes.Buffer, v any) error {
	raw, err := json.Marshal(v)
	b.Write(raw)
	return err
}

// speaksForItself gives a value that encoding/json is to write: one whose type says how.
func speaksForItself(v reflect.Value) (own any, ok bool) {
	t := v.Type()
	switch {
	case t.Implements(jsonType), t.Implements(textType):
		return v.Interface(), true
	case v.CanAddr() && (reflect.PointerTo(t).Implements(jsonType) || reflect.PointerTo(t).Implements(textType)):
		return v.Addr().Interface(), true
	}
	return nil, false
}

func writeList(b *bytes.Buffer, v reflect.Value) error {
	if v.Kind() == reflect.Slice && (v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8) {
		return writeLeaf(b, v.Interface())
	}
	b.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeJSON(b, v.Index(i)); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

func writeMap(b *bytes.Buffer, v reflect.Value) error {
	if v.IsNil() {
		b.WriteString("null")
		return nil
	}
	var fields []field
	for _, key := range v.MapKeys() {
		name := fmt.Sprint(key.Interface())
		if text, ok := key.Interface().(encoding.TextMarshaler); ok {
			raw, err := text.MarshalText()
			if err != nil {
				return err
			}
			name = string(raw)
		}
		fields = append(fields, field{name, v.MapIndex(key)})
	}
	slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.name, b.name) })
	return writeObject(b, fields)
}

// field is a name of an object with its value.
type field struct {
	name  string
	value reflect.Value
}

func writeObject(b *bytes.Buffer, fields []field) error {
	b.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeLeaf(b, f.name); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := writeJSON(b, f.value); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// fieldsOf are a struct's, by the rules of encoding/json, with those of structs in it that have no name.
func fieldsOf(v reflect.Value) []field {
	var out []field
	for i := range v.NumField() {
		name, shown := jsonName(v.Type().Field(i))
		f := v.Field(i)
		switch {
		case !shown:
		case name == "" && f.Kind() == reflect.Pointer:
			if !f.IsNil() {
				out = append(out, fieldsOf(f.Elem())...)
			}
		case name == "":
			out = append(out, fieldsOf(f)...)
		case !omitted(v.Type().Field(i), f) && !unknown(v, i):
			out = append(out, field{name, f})
		}
	}
	return out
}

// jsonName is a field's name as it is printed, "" of a struct whose fields stand among the others.
func jsonName(f reflect.StructField) (name string, shown bool) {
	tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if tag == "-" || !f.IsExported() && !f.Anonymous {
		return "", false
	}
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if f.Anonymous && tag == "" && t.Kind() == reflect.Struct {
		return "", true
	}
	if !f.IsExported() {
		return "", false
	}
	name = cmp.Or(tag, f.Name)
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t == durationType {
		name += "_s"
	}
	return name, true
}

// unknown says that a struct's field i is a zero of which the field that its tag names (known:"LagKnown") says that it is not known: that is no value.
func unknown(v reflect.Value, i int) bool {
	flag := v.Type().Field(i).Tag.Get("known")
	return flag != "" && v.Field(i).IsZero() && !v.FieldByName(flag).Bool()
}

// omitted says whether a field's tag leaves it out.
func omitted(f reflect.StructField, v reflect.Value) bool {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			switch v.Kind() {
			case reflect.Struct:
			case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
				if v.Len() == 0 {
					return true
				}
			default:
				if v.IsZero() {
					return true
				}
			}
		case "omitzero":
			if z, ok := v.Interface().(interface{ IsZero() bool }); ok && z.IsZero() || !ok && v.IsZero() {
				return true
			}
		}
	}
	return false
}
