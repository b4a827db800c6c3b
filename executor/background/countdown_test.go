package background

import (
	"bytes"
	"testing"
)

// TestCountdown copies two streams. The copy ends when both have their bytes, and gets no more of either.
func TestCountdown(t *testing.T) {
	ended := 0
	left := &countdown{stdout: 4, stderr: 2, done: func() { ended++ }}
	var out bytes.Buffer
	stdout, stderr := left.writer(&out, &left.stdout), left.writer(nil, &left.stderr)
	for _, x := range []struct {
		to    string
		text  string
		ended bool
	}{
		{"stdout", "abc", false},
		{"stderr", "1", false},
		{"stdout", "def", false},
		{"stderr", "23", true},
		{"stdout", "ghi", true},
	} {
		w := stdout
		if x.to == "stderr" {
			w = stderr
		}
		if n, err := w.Write([]byte(x.text)); n != len(x.text) || err != nil {
			t.Errorf("%s to %s: %d, %v", x.text, x.to, n, err)
		}
		if (ended > 0) != x.ended {
			t.Errorf("after %s to %s it ended %d times", x.text, x.to, ended)
		}
	}
	if out.String() != "abcd" {
		t.Errorf("got %q", &out)
	}
}
