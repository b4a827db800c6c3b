package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ReadJSON decodes the request's body, strictly. It refuses unknown fields, because a misspelt field that is ignored
// would run another command than the one asked for.
func (c *Call) ReadJSON(into any) error {
	defer c.LimitReading()()
	d := json.NewDecoder(c.R.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return NewProblem(KindInvalid, "the request has no body; want a JSON object")
		}
		return BadJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return NewProblem(KindInvalid, "the request's body goes on after its JSON object")
	}
	return nil
}

// ReadOptionalJSON is ReadJSON, except that an empty body leaves into as it is.
func (c *Call) ReadOptionalJSON(into any) error {
	b, err := c.ReadBody()
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return err
	}
	c.R.Body = io.NopCloser(bytes.NewReader(b))
	return c.ReadJSON(into)
}

// ReadBody returns the request's body as it came.
func (c *Call) ReadBody() ([]byte, error) {
	defer c.LimitReading()()
	b, err := io.ReadAll(c.R.Body)
	if err != nil {
		return nil, BadJSON(err)
	}
	return b, nil
}

// slowestBody is how long a body may take to arrive.
const slowestBody = time.Minute

// LimitReading limits the time to read the body. lift removes the limit again: a deadline that passes later would
// look like a caller that hung up.
func (c *Call) LimitReading() (lift func()) {
	rc := http.NewResponseController(c.W)
	_ = rc.SetReadDeadline(time.Now().Add(slowestBody)) // only a recorder in a test has no deadline
	return func() { _ = rc.SetReadDeadline(time.Time{}) }
}

// BadJSON returns the problem of a body that could not be decoded. It returns errors of limits as they are.
// encoding/json has no type for an unknown field, so every other error is a mistake of the sender.
func BadJSON(err error) error {
	var tooBig *http.MaxBytesError
	if errors.As(err, &tooBig) {
		return err
	}
	return NewProblem(KindInvalid, "cannot read the request's body: %v", err)
}

// ReadQuery fills a struct from the query, by the JSON names of the fields. It refuses unknown parameters, for the
// reason given at ReadJSON.
func (c *Call) ReadQuery(into any) error {
	v := reflect.ValueOf(into).Elem()
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = v.Field(i)
	}

	for name, values := range c.R.URL.Query() {
		f, ok := fields[name]
		if !ok {
			return NewProblem(KindInvalid, "unknown query parameter %q", name)
		}
		if err := setField(f, name, values); err != nil {
			return err
		}
	}
	return nil
}

// setField sets the field of a query parameter. A field that is not a list takes the last value.
func setField(f reflect.Value, name string, values []string) error {
	text := values[len(values)-1]
	switch f.Kind() {
	case reflect.String:
		f.SetString(text)
	case reflect.Bool:
		switch text {
		case "", "1", "true":
			f.SetBool(true)
		case "0", "false":
			f.SetBool(false)
		default:
			return NewProblem(KindInvalid, "query parameter %s: %q is neither 1 nor 0", name, text)
		}
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, f.Type().Bits())
		if err != nil || n < 0 {
			return NewProblem(KindInvalid, "query parameter %s: %q is no whole number", name, text)
		}
		f.SetInt(n)
	case reflect.Slice:
		f.Set(reflect.ValueOf(slices.Clone(values)))
	default:
		return fmt.Errorf("query parameter %s has a type that is not supported", name)
	}
	return nil
}
