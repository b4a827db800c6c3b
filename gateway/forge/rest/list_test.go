package rest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge"
)

// answers makes the answer to request n, from 1.
type answers func(n int) string

// client returns a client of a forge with these answers, and the number of its requests.
func (a answers) client() (*Client, *int) {
	n := new(int)
	return &Client{Site: "Forge", URL: "http://forge.example", Authorize: func(*http.Request) {},
		HTTP: &http.Client{Transport: transport(func(r *http.Request) *http.Response {
			*n++
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r,
				Body: io.NopCloser(strings.NewReader(a(*n)))}
		})}}, n
}

type transport func(*http.Request) *http.Response

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r), nil }

// TestListValues reads lists to their end, and refuses those that have none.
func TestListValues(t *testing.T) {
	next := func(values, address string) string {
		return fmt.Sprintf(`{"values":[%s],"next":%q}`, values, "http://forge.example/"+address)
	}
	for name, c := range map[string]struct {
		answers answers
		items   int // of the list; -1 means that it is refused
		asked   int // most requests
	}{
		"two pages": {func(n int) string {
			if n == 1 {
				return next("1,2", "2")
			}
			return `{"values":[3]}`
		}, 3, 2},
		"a circle":         {func(int) string { return next("1", "again") }, 2, 2},
		"too many items":   {func(n int) string { return next("1"+strings.Repeat(",1", 999), fmt.Sprint(n)) }, -1, 6},
		"pages of nothing": {func(n int) string { return next("", fmt.Sprint(n)) }, -1, maxItems + 1},
		"a long address":   {func(int) string { return next("1", strings.Repeat("x", maxAddress)) }, -1, 1},
	} {
		client, asked := c.answers.client()
		items, err := ListValues[int](t.Context(), client, Request{What: "list", Path: "/list"})
		var refused *forge.RefusedError
		if got := len(items); c.items < 0 != errors.As(err, &refused) || err == nil && got != c.items || *asked > c.asked {
			t.Errorf("%s: %d items after %d requests, %v", name, got, *asked, err)
		}
	}
}
