package forge

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCheckSignature checks which bodies count as signed.
func TestCheckSignature(t *testing.T) {
	sign := func(secret, body string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		return hex.EncodeToString(mac.Sum(nil))
	}
	large := strings.Repeat("x", MaxDelivery)
	for name, tt := range map[string]struct {
		secret, signature, body string
		ok                      bool
	}{
		"signed":                  {"s", sign("s", "{}"), "{}", true},
		"in capitals":             {"s", strings.ToUpper(sign("s", "{}")), "{}", true},
		"another body":            {"s", sign("s", "{}"), "{ }", false},
		"another secret":          {"s", sign("t", "{}"), "{}", false},
		"the beginning":           {"s", sign("s", "{}")[:32], "{}", false},
		"no signature":            {"s", "", "{}", false},
		"no hexadecimal digits":   {"s", sign("s", "{}") + "x", "{}", false},
		"no secret":               {"", sign("", "{}"), "{}", false},
		"the largest":             {"s", sign("s", large), large, true},
		"larger than the largest": {"s", sign("s", large+"x"), large + "x", false},
	} {
		if err := CheckSignature(tt.secret, tt.signature, "X-Signature", []byte(tt.body)); (err == nil) != tt.ok ||
			err != nil && !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := CheckSignature("s", "", "X-Signature", nil); err == nil || !strings.Contains(err.Error(), "X-Signature is missing") {
		t.Errorf("without a signature: %v", err)
	}
	for token, ok := range map[string]bool{"s": true, "": false, "t": false, "ss": false} {
		if err := CheckToken("s", token, "X-Token", []byte("{}")); (err == nil) != ok || err != nil && !errors.Is(err, ErrSignature) {
			t.Errorf("token %q: %v", token, err)
		}
	}
	for name, err := range map[string]error{"no secret": CheckToken("", "", "X-Token", nil),
		"too large": CheckToken("s", "s", "X-Token", []byte(large+"x"))} {
		if !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckJSON checks the headers of a delivery.
func TestCheckJSON(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, tt := range []struct {
		id, event, kind string
		ok              bool
	}{
		{"1", "push", "application/json", true},
		{"1", "push", "application/json; charset=utf-8", true},
		{long, long, "application/json", true},
		{"", "push", "application/json", false},
		{"1", "", "application/json", false},
		{long + "x", "push", "application/json", false},
		{"1", long + "x", "application/json", false},
		{"1", "push", "application/x-www-form-urlencoded", false},
		{"1", "push", "", false},
	} {
		if err := (Delivery{ID: tt.id, Event: tt.event}).CheckJSON(tt.kind); (err == nil) != tt.ok || err != nil &&
			!errors.Is(err, ErrDelivery) {
			t.Errorf("%.10s, %.10s, %s: %v", tt.id, tt.event, tt.kind, err)
		}
	}
}

// TestDigest checks which bodies are the same event.
func TestDigest(t *testing.T) {
	first, err := Digest("push", []byte(`{"a": 1, "b": {"c": 12345678901234567890}, "sender": 1}`), "sender", "missing")
	if err != nil || len(first) != 64 {
		t.Fatalf("%q, %v", first, err)
	}
	for body, same := range map[string]bool{
		`{"b":{"c":12345678901234567890},"a":1,"sender":2}`:       true,
		`{"b":{"c":12345678901234567890},"\u0061":1}`:             true,
		`{"b":{"c":12345678901234567891},"a":1}`:                  false,
		`{"b":{"c":12345678901234567890,"sender":1},"a":1}`:       false,
		`{"b":{"c":12345678901234567890},"a":1,"installation":1}`: false,
		``: false,
	} {
		got, err := Digest("push", []byte(body), "sender")
		if err != nil || (got == first) != same {
			t.Errorf("%s: %s, %v, the first is %s", body, got, err, first)
		}
	}
	if other, err := Digest("pull", []byte(`{"a": 1, "b": {"c": 12345678901234567890}}`)); err != nil || other == first {
		t.Errorf("another event: %s, %v", other, err)
	}
	for _, body := range []string{"{", "[]", "x"} {
		if got, err := Digest("push", []byte(body)); err == nil {
			t.Errorf("%q: %s", body, got)
		}
	}
}

// TestRefusedError checks the kinds of refusals and their texts.
func TestRefusedError(t *testing.T) {
	for _, tt := range []struct {
		err             RefusedError
		text            string
		notFound, token bool
	}{
		{RefusedError{Forge: "GitHub"}, "refused by GitHub", false, false},
		{RefusedError{Forge: "GitHub", Status: 422, Message: "no", Needed: "x"}, "refused by GitHub: status 422: no",
			false, false},
		{RefusedError{Forge: "GitHub", Status: http.StatusForbidden, Message: "no", Needed: "contents=write"},
			"refused by GitHub: status 403: no (needs the permission contents=write)", false, true},
		{RefusedError{Forge: "GitHub", Status: http.StatusForbidden}, "refused by GitHub: status 403", false, true},
		{RefusedError{Forge: "GitHub", Status: http.StatusUnauthorized}, "refused by GitHub: status 401", false, true},
		{RefusedError{Forge: "GitHub", Status: http.StatusNotFound}, "not found at GitHub: status 404", true, false},
		{RefusedError{Forge: "GitHub", Status: http.StatusGone}, "not found at GitHub: status 410", true, false},
	} {
		err := fmt.Errorf("at work: %w", &tt.err)
		if tt.err.Error() != tt.text || errors.Is(err, ErrNotFound) != tt.notFound ||
			errors.Is(err, ErrRefused) == tt.notFound || tt.err.OfToken() != tt.token || !Final(err) {
			t.Errorf("%+v: %q", tt.err, tt.err.Error())
		}
		if !HasStatus(err, tt.err.Status) || HasStatus(err, 999) {
			t.Errorf("%+v: status", tt.err)
		}
	}
	if Final(errors.New("timeout")) || HasStatus(errors.New("timeout"), 0) || Final(nil) {
		t.Error("another error is final")
	}
}

// TestParseName checks the name of a repository in the URL of its upstream.
func TestParseName(t *testing.T) {
	long := strings.Repeat("x", 255)
	for _, tt := range []struct {
		upstream string
		groups   int
		want     string // empty means none
	}{
		{"acme/app", 1, "acme/app"},
		{"https://github.com/acme/app", 1, "acme/app"},
		{"https://github.com/acme/app.git", 1, "acme/app"},
		{"http://localhost:3000/acme/app/", 1, "acme/app"},
		{"ssh://git@github.com/acme/app.git", 1, "acme/app"},
		{"git@github.com:acme/app.git", 1, "acme/app"},
		{"https://gitlab.com/a/b/app", 2, "a/b/app"},
		{"https://gitlab.com/a/b/app", 1, ""},
		{"a/b/c/app", 2, ""},
		{"acme_1/a-b.c", 1, "acme_1/a-b.c"},
		{long + "/" + long, 1, long + "/" + long},
		{long + "x/app", 1, ""},
		{"acme/" + long + "x", 1, ""},
		{"ftp://github.com/acme/app", 1, ""},
		{"file:///acme/app", 1, ""},
		{"https:///acme/app", 1, ""},
		{"https://[/acme/app", 1, ""},
		{"/srv/git:acme/app", 1, ""},
		{":acme/app", 1, ""},
		{"app", 1, ""},
		{"", 1, ""},
		{"/", 1, ""},
		{"acme/", 1, ""},
		{"acme//app", 2, ""},
		{"acme/.app", 1, ""},
		{"-acme/app", 1, ""},
		{"acme/..", 1, ""},
		{"acme/a b", 1, ""},
		{"acme/a%2fb", 1, ""},
		{"acme/app?x=y", 1, ""},
	} {
		got, ok := ParseName(tt.upstream, tt.groups)
		if ok != (tt.want != "") || ok && got.String() != tt.want {
			t.Errorf("%.60q: %q, %v, want %.60q", tt.upstream, got, ok, tt.want)
		}
		if ok && !got.Valid(tt.groups) {
			t.Errorf("%q is not valid", got)
		}
	}
	n := Name{"Acme", "App"}
	for other, same := range map[Name]bool{{"Acme", "App"}: true, {"acme", "APP"}: true, {"acme", "web"}: false, {"other", "App"}: false} {
		if n.Is(other) != same {
			t.Errorf("%s and %s: %v", n, other, !same)
		}
	}
	for ref, ok := range map[string]bool{"main": true, "ramus/run-a": true, "a.b": true, "": false, "a//b": false,
		"/a": false, "a/": false, "..": false, "a/.b": false} {
		if ValidRef(ref) != ok {
			t.Errorf("%q: %v", ref, !ok)
		}
	}
}

// TestLine checks the borders of titles and bodies.
func TestLine(t *testing.T) {
	for _, tt := range []struct {
		text string
		most int
		want string
	}{
		{"", 5, ""},
		{" a\n b\tc ", 5, "a b c"},
		{"äöüßx", 5, "äöüßx"},
		{"äöüßxy", 5, "äöüß…"},
		{"a\xffb", 5, "a\ufffdb"},
	} {
		if got := Line(tt.text, tt.most); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
	if got := (Status{Text: strings.Repeat("x", 141)}).Line(); utf8.RuneCountInString(got) != 140 {
		t.Errorf("%q", got)
	}
	if MaxText != 262144 {
		t.Errorf("a body of 65,536 characters may have %d bytes", MaxText)
	}
	full := strings.Repeat("x", MaxText)
	for name, tt := range map[string][2]string{"fits": {full, full}, "too long": {full + "y", full},
		"a cut character": {full[1:] + "ä", full[1:]}} {
		if got := Bounded(tt[0]); got != tt[1] {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}
	hunk := strings.Repeat("x", MaxHunk)
	for name, tt := range map[string][2]string{"fits": {hunk, hunk}, "too long": {"y\n" + hunk, hunk},
		"one line more": {"a\nb\n" + hunk[2:], hunk[2:]}, "a last line": {hunk + "\n", hunk[1:] + "\n"}} {
		if got := LastLines(tt[0]); got != tt[1] {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(tt[1]))
		}
	}
}

// TestClosing checks which parts of Markdown are open at the end of a text.
func TestClosing(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"a\nb":                           "",
		"```go\nx":                       "\n```",
		"~~~\nx":                         "\n~~~",
		"````\n```\nx":                   "\n````",
		"```\nx\n````\ny":                "",
		"```\nx\n``` y":                  "\n```",
		"``x":                            "",
		"<details>\n<details>":           "\n\n</details>\n\n</details>",
		"<details>\n</details>":          "",
		"</details>\n<details>":          "\n\n</details>",
		"```\n<details>\n```":            "",
		"<details>\n```\n</details>":     "\n```\n\n</details>",
		strings.Repeat("`", 100) + "\nx": "\n" + strings.Repeat("`", 100),
		strings.Repeat("`", 101) + "\nx": "",
		strings.Repeat("<details>", 9):   strings.Repeat("\n\n</details>", 8),
	} {
		if got := closing(text); got != want {
			t.Errorf("%.60q: %q, want %q", text, got, want)
		}
	}
	if Mark("a") == Mark("b") || !EndsWith("x\n\n"+Trailer("a")+"\n", Trailer("a")) ||
		EndsWith(Trailer("a")+"\nx", Trailer("a")) {
		t.Error("trailers")
	}
}

// TestOrExisting checks when a refusal to open a pull request is one.
func TestOrExisting(t *testing.T) {
	refused, broken := errors.New("refused"), errors.New("broken")
	for name, tt := range map[string]struct {
		found bool
		err   error
		want  []error
	}{
		"found": {true, nil, nil}, "none": {false, nil, []error{refused}},
		"unknown": {false, broken, []error{refused, broken}}, "half": {true, broken, []error{refused, broken}},
	} {
		pull, err := OrExisting(refused, func() (Pull, bool, error) { return Pull{Number: 7}, tt.found, tt.err })
		if (err == nil) != (tt.want == nil) || (pull.Number == 7) != (tt.want == nil) {
			t.Errorf("%s: %+v, %v", name, pull, err)
		}
		for _, want := range tt.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	}
}

// TestSelf checks that a forge is asked for the name of ramus until it says it.
func TestSelf(t *testing.T) {
	var s Self
	asked := 0
	for _, tt := range []struct {
		name string
		err  error
	}{{"", errors.New("down")}, {"", nil}, {"ramus[bot]", nil}, {"another", nil}} {
		got, err := s.Get(func() (string, error) { asked++; return tt.name, tt.err })
		want := tt.name
		if asked == 3 {
			want = "ramus[bot]"
		}
		if got != want || !errors.Is(err, tt.err) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}

// TestCheckFailed checks which checks of a pull request an agent has to repair.
func TestCheckFailed(t *testing.T) {
	for _, tt := range []struct {
		check Check
		want  bool
	}{
		{Check{Name: "ci", Status: "completed", Conclusion: "failure"}, true},
		{Check{Name: "ci", Status: "completed", Conclusion: "timed_out"}, true},
		{Check{Name: "ci", Status: "completed", Conclusion: "startup_failure"}, true},
		{Check{Name: "ci", Status: "in_progress", Conclusion: "failure"}, false},
		{Check{Name: "ci", Status: "completed", Conclusion: "success"}, false},
		{Check{Name: "ci", Status: "completed", Conclusion: "cancelled"}, false},
		{Check{Name: StatusName, Status: "completed", Conclusion: "failure"}, false},
	} {
		if got := tt.check.Failed(); got != tt.want {
			t.Errorf("%+v: %v", tt.check, got)
		}
	}
}
