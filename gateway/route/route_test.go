package route

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A full disk has one kind of error, from every room.
func TestFullDisk(t *testing.T) {
	err := fmt.Errorf("cannot claim a run: %w", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	p := AsProblem(err, Who{})
	if p.Kind != KindDiskFull || p.Status != http.StatusInsufficientStorage || p.Hint == "" {
		t.Errorf("%+v", p)
	}
}

func TestQuery(t *testing.T) {
	type q struct {
		Max  int      `json:"max,omitempty"`
		Live bool     `json:"live,omitempty"`
		Path []string `json:"path,omitempty"`
		Repo string   `json:"repo,omitempty"`
	}
	for _, x := range []struct {
		query string
		ok    bool
	}{
		{"max=3&live&path=a&path=b&repo=x", true},
		{"live=0", true},
		{"max=-1", false},
		{"max=x", false},
		{"max=99999999999999999999", false},
		{"live=maybe", false},
		{"mxa=3", false},
	} {
		var got q
		c := &Call{R: httptest.NewRequest("GET", "/?"+x.query, nil)}
		if err := c.ReadQuery(&got); (err == nil) != x.ok {
			t.Errorf("%s: %v", x.query, err)
		}
	}
}

func TestBody(t *testing.T) {
	type b struct {
		Name string `json:"name"`
	}
	for body, ok := range map[string]bool{
		`{"name":"x"}`: true, `{"name":"x"} `: true, `{}`: true,
		``: false, `{"nmae":"x"}`: false, `{"name":"x"}{}`: false, `[]`: false, `{"name":1}`: false, `{`: false,
	} {
		var got b
		c := &Call{W: httptest.NewRecorder(), R: httptest.NewRequest("POST", "/", strings.NewReader(body))}
		err := c.ReadJSON(&got)
		if (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
		if err != nil && AsProblem(err, Who{}).Kind != KindInvalid {
			t.Errorf("%s: kind %s", body, AsProblem(err, Who{}).Kind)
		}
	}
}
