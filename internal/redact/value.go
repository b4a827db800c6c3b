package redact

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
)

var (
	textType   = reflect.TypeFor[string]()
	rawType    = reflect.TypeFor[json.RawMessage]()
	numberType = reflect.TypeFor[json.Number]()
)

// Clean returns v without secrets in any string, key or byte slice inside, and in numbers of dynamic type. It does not
// change strings of a named type. These are hashes and words of closed lists, which a secret that is a common word must
// not change. It does not change values without exported fields either. v itself is not changed, and is returned if
// there is no secret.
func Clean[T any](s *Secrets, v T) T {
	if s.Empty() {
		return v
	}
	if clean, changed := s.clean(reflect.ValueOf(&v).Elem()); changed {
		reflect.ValueOf(&v).Elem().Set(clean)
	}
	return v
}

func (s *Secrets) clean(v reflect.Value) (_ reflect.Value, changed bool) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == textType {
			if clean := s.String(v.String()); clean != v.String() {
				return reflect.ValueOf(clean), true
			}
		}
	case reflect.Interface:
		if v.IsNil() {
			break
		}
		if text, ok := number(v.Elem()); ok && v.NumMethod() == 0 {
			if clean := s.String(text); clean != text {
				return reflect.ValueOf(clean), true
			}
			break
		}
		return s.clean(v.Elem())
	case reflect.Pointer:
		if v.IsNil() {
			break
		}
		if clean, changed := s.clean(v.Elem()); changed {
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(clean)
			return p, true
		}
	case reflect.Struct:
		out := v
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			if clean, c := s.clean(v.Field(i)); c {
				if !changed {
					out, changed = reflect.New(v.Type()).Elem(), true
					out.Set(v)
				}
				out.Field(i).Set(clean)
			}
		}
		return out, changed
	case reflect.Slice:
		return s.cleanSlice(v)
	case reflect.Map:
		return s.cleanMap(v)
	}
	return v, false
}

func (s *Secrets) cleanSlice(v reflect.Value) (out reflect.Value, changed bool) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		clean := s.Bytes
		if v.Type() == rawType {
			clean = s.JSON
		}
		b := clean(v.Bytes())
		if len(b) == v.Len() && (len(b) == 0 || &b[0] == &v.Bytes()[0]) {
			return v, false
		}
		return reflect.ValueOf(b).Convert(v.Type()), true
	}
	out = v
	for i := range v.Len() {
		if clean, c := s.clean(v.Index(i)); c {
			if !changed {
				out, changed = reflect.MakeSlice(v.Type(), v.Len(), v.Len()), true
				reflect.Copy(out, v)
			}
			out.Index(i).Set(clean)
		}
	}
	return out, changed
}

func (s *Secrets) cleanMap(v reflect.Value) (_ reflect.Value, changed bool) {
	if v.IsNil() {
		return v, false
	}
	out := reflect.MakeMapWithSize(v.Type(), v.Len())
	for it := v.MapRange(); it.Next(); {
		key, k := s.clean(it.Key())
		value, c := s.clean(it.Value())
		changed = changed || k || c
		out.SetMapIndex(key, value)
	}
	if !changed {
		return v, false
	}
	return out, true
}

// number returns the digits of a number.
func number(v reflect.Value) (text string, ok bool) {
	switch {
	case v.Type() == numberType:
		return v.String(), true
	case v.CanInt(), v.CanUint():
		return fmt.Sprint(v.Interface()), true
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'f', -1, 64), true
	}
	return "", false
}
