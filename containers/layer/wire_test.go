package layer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// filled sets every field of a struct to something else than zero.
func filled(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(-int64(i) - 1)
		case reflect.Uint64, reflect.Uint8:
			f.SetUint(uint64(i) + 1)
		case reflect.String:
			f.SetString(fmt.Sprintf("\xff %d", i)) // no UTF-8: a name can be any bytes
		case reflect.Slice:
			if f.Type() == reflect.TypeFor[[]string]() {
				f.Set(reflect.ValueOf([]string{"a\xfe", "b"}))
			}
		}
	}
}

// What goes over the socket comes out as it went in, also fields that are added later.
func TestWireKeepsAll(t *testing.T) {
	over := func(v, to any) {
		t.Helper()
		m, err := encode(v, maxAnswer)
		if err == nil {
			r := newMessage(m)
			err = decode(r.length, r, maxAnswer, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var c Change
	filled(reflect.ValueOf(&c).Elem())
	var a answer
	over(answer{Changes: []wireChange{wireOf(c)}}, &a)
	if got := a.Changes[0].change(); !reflect.DeepEqual(got, c) {
		t.Errorf("got %+v, want %+v", got, c)
	}
	var b Binding
	filled(reflect.ValueOf(&b).Elem())
	var r request
	over(request{Binding: toWire(b), Files: []wireFile{{Path: []byte("\xff"), Kind: KindLink, Exec: true, Size: 3,
		Time: time.Unix(7, 8).UTC()}}}, &r)
	if got := r.Binding.binding(); !reflect.DeepEqual(got, b) {
		t.Errorf("got %+v, want %+v", got, b)
	}
	if f := r.Files[0]; string(f.Path) != "\xff" || f.Kind != KindLink || !f.Exec || f.Size != 3 || !f.Time.Equal(time.Unix(7, 8)) {
		t.Errorf("got %+v", f)
	}
}

// Errors are of the same kinds on both sides.
func TestWireErrors(t *testing.T) {
	for _, kind := range []error{ErrUnable, ErrGone, ErrTooMany, unix.ENOENT, fs.ErrNotExist, unix.ENOSPC} {
		err := fmt.Errorf("cannot: %w", kind)
		if kind == fs.ErrNotExist {
			err = fmt.Errorf("cannot: %w", &fs.PathError{Op: "open", Path: "x", Err: unix.ENOENT})
		}
		got := error(failed(err))
		if !errors.Is(got, kind) || got.Error() != err.Error() {
			t.Errorf("%v became %v", err, got)
		}
		for _, other := range []error{ErrUnable, ErrGone, ErrTooMany} {
			if errors.Is(got, other) != errors.Is(err, other) {
				t.Errorf("%v: %v", err, other)
			}
		}
	}
}

// message is an encoded message as decode takes it.
type message struct {
	length [4]byte
	rest   []byte
}

func newMessage(b []byte) *message {
	m := &message{rest: b[4:]}
	copy(m.length[:], b)
	return m
}

func (m *message) Read(b []byte) (int, error) {
	if len(m.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}
