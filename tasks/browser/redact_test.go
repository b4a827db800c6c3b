package browser_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/redact/redacttest"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// traceOf makes a trace with these files, in order.
func traceOf(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		w, err := z.Create(files[i])
		if err == nil {
			_, err = io.WriteString(w, files[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// textOfTrace is all files of a trace, each after its name.
func textOfTrace(t testing.TB, b []byte) string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("-- " + f.Name + " --\n" + string(b) + "\n")
	}
	return text.String()
}

func redacted(t testing.TB, name, in string, secrets *redact.Secrets) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := browser.Redact(name, &out, strings.NewReader(in), secrets); err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".zip") {
		return textOfTrace(t, out.Bytes())
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func TestRedact(t *testing.T) {
	secrets, _ := redact.New(map[string]string{"API": "known-Secret-001"})
	for _, test := range []struct{ name, file, in, want string }{
		{"cookies of a HAR", "network.har",
			`{"log":{"entries":[{"request":{"cookies":[{"name":"theme","value":"dark"}],"headers":[{"name":"COOKIE","value":"theme=dark"},{"name":"Accept","value":"*/*"}]}}]}}`,
			`{"log":{"entries":[{"request":{"cookies":[{"name":"theme","value":"[redacted]"}],"headers":[{"name":"COOKIE","value":"[redacted]"},{"name":"Accept","value":"*/*"}]}}]}}`},
		{"numbers stay as they are written", "network.har", `{"a":1.50,"b":12345678901234567890,"c":1e3}`,
			`{"a":1.50,"b":12345678901234567890,"c":1e3}`},
		{"short names of credentials", "network.har", `{"otp":"1","PHPSESSID":"2","pin":"3","x-csrf-token":"4","pinned":"5"}`,
			`{"PHPSESSID":"[redacted]","otp":"[redacted]","pin":"[redacted]","pinned":"5","x-csrf-token":"[redacted]"}`},
		{"elements of passwords", "network.har", `[{"autocomplete":"One-Time-Code","value":"1"},{"type":"PASSWORD","value":"2"},{"autocomplete":"name","value":"3"}]`,
			`[{"autocomplete":"One-Time-Code","value":"[redacted]"},{"type":"PASSWORD","value":"[redacted]"},{"autocomplete":"name","value":"3"}]`},
		{"fields of a JSON body", "network.har",
			`{"postData":{"mimeType":"application/json; charset=utf-8","text":"{\"user\":\"ada\",\"newPassword\":\"x\"}"}}`,
			`{"postData":{"mimeType":"application/json; charset=utf-8","text":"{\"newPassword\":\"[redacted]\",\"user\":\"ada\"}"}}`},
		{"fields of a form", "network.har",
			`{"postData":{"mimeType":"application/x-www-form-urlencoded","text":"user=ada&pass%77ord=x+y","params":[{"name":"user","value":"ada"},{"name":"password","value":"x y"}]}}`,
			`{"postData":{"mimeType":"application/x-www-form-urlencoded","params":[{"name":"user","value":"ada"},{"name":"password","value":"[redacted]"}],"text":"user=ada&pass%77ord=[redacted]"}}`},
		{"a body in base64", "network.har", // {"token":"x"}
			`{"content":{"encoding":"base64","mimeType":"application/json","text":"eyJ0b2tlbiI6IngifQ=="}}`,
			`{"content":{"encoding":"base64","mimeType":"application/json","text":"eyJ0b2tlbiI6IltyZWRhY3RlZF0ifQ=="}}`},
		{"a URL's query", "console.jsonl",
			`{"text":"GET /a?page=2&access_token=x&b=c","url":"https://u:p@h.example/?sig=1#id_token=y"}`,
			`{"text":"GET /a?page=2&access_token=[redacted]&b=c","url":"https://[redacted]@h.example/?sig=[redacted]#id_token=[redacted]"}`},
		{"a known secret", "aria.yml", "- text: known-Secret-001 and a25vd24tU2VjcmV0LTAwMQ==",
			"- text: [secret API] and [secret API]"},
		{"headers in a log", "app.log",
			"> Authorization: Bearer abc\n> Set-Cookie: a=b; Path=/\n> Host: h\ncookies are good",
			"> Authorization: [redacted]\n> Set-Cookie: [redacted]\n> Host: h\ncookies are good"},
		{"a token by itself", "app.log", "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl, and Bearer abcdefgh",
			"got [redacted], and Bearer [redacted]"},
		{"text without any", "app.log", "GET /?page=2 200 basic information; a = b ? c : d",
			"GET /?page=2 200 basic information; a = b ? c : d"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := redacted(t, test.file, test.in, secrets); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// What a trace gives away in one place is taken out of all of it, and of the other files of
// the check by Learn.
func TestRedactLearns(t *testing.T) {
	const session = "s3ss10n-Value-of-Ada"
	trace := traceOf(t,
		"trace.network", `{"type":"resource-snapshot","snapshot":{"request":{"headers":[{"name":"Cookie","value":"theme=dark-and-light; sid=`+session+`"}]},"response":{"content":{"mimeType":"application/json","_sha1":"aa.json"}}}}`+"\n",
		"resources/aa.json", `{"access_token":"t0ken-Value-4711","name":"Ada"}`,
		"resources/bb.html", "<p>"+session+"</p><p>dark-and-light t0ken-Value-4711</p>",
		"trace.trace", `{"type":"before","callId":"call@7","class":"Frame","method":"fill","params":{"selector":"#pw","value":"short"},"title":"Fill \"short\""}
{"type":"log","callId":"call@7","message":"  locator resolved to <input id=\"pw\" type=\"password\"/>"}
{"type":"log","callId":"call@7","message":"  fill(\"short\")"}
{"type":"frame-snapshot","snapshot":{"callId":"call@7","html":["INPUT",{"type":"password","__playwright_value_":"short"}]}}
{"type":"console","messageType":"log","text":"sid is `+session+`"}
`)
	var out bytes.Buffer
	if _, err := browser.Redact("trace.zip", &out, bytes.NewReader(trace), nil); err != nil {
		t.Fatal(err)
	}
	text := textOfTrace(t, out.Bytes())
	for _, secret := range []string{session, "t0ken-Value-4711", "short"} {
		if strings.Contains(text, secret) {
			t.Errorf("the trace has %q:\n%s", secret, text)
		}
	}
	for _, kept := range []string{`"class":"Frame"`, `"method":"fill"`, "call@7", "dark-and-light",
		"-- resources/aa.json --", `"name":"Ada"`} {
		if !strings.Contains(text, kept) {
			t.Errorf("the trace lacks %q:\n%s", kept, text)
		}
	}
	values, err := browser.Learn("trace.zip", bytes.NewReader(trace), nil)
	if err != nil || values["cookie sid"] != session || len(values) != 2 {
		t.Errorf("learned %q, %v", values, err)
	}
	if got := redacted(t, "console.jsonl", `{"text":"`+session+`"}`,
		new(redact.Secrets).With(values)); got != `{"text":"[secret cookie sid]"}` {
		t.Errorf("the console has %s", got)
	}
}

// A secret in the name of a cookie must not come back in the label of the cookie's value.
// TestRedactFolders checks that a folder in a trace does not end it.
func TestRedactFolders(t *testing.T) {
	if got := redacted(t, "trace.zip", string(traceOf(t, "a/", "", "a/b.txt", "x")), nil); got != "-- a/b.txt --\nx\n" {
		t.Errorf("%q", got)
	}
}

// TestRedactFound checks which secrets are said to be in a file.
func TestRedactFound(t *testing.T) {
	secrets, _ := redact.New(map[string]string{"B": "hunter22", "A": "correct-horse", "C": "battery-staple"})
	for text, want := range map[string]string{"- text: hunter22\n- text: correct-horse hunter22\n": "A B", "- text: nothing\n": ""} {
		found, err := browser.Redact("aria.yml", io.Discard, strings.NewReader(text), secrets)
		if err != nil || strings.Join(found, " ") != want {
			t.Errorf("%q: %q, %v", text, found, err)
		}
	}
}

func TestRedactNames(t *testing.T) {
	secrets, _ := redact.New(map[string]string{"API": "known-Secret-001"})
	har := `{"cookies":[{"name":"known-Secret-001","value":"v4lue-of-the-cookie"}],"text":"v4lue-of-the-cookie"}`
	if got := redacted(t, "network.har", har, secrets); strings.Contains(got, "known-Secret") || strings.Contains(got, "v4lue") {
		t.Error(got)
	}
}

func TestRedactRefuses(t *testing.T) {
	bomb := bytes.Repeat([]byte{' '}, 9<<20)
	many := make([]string, 0, 2*(browser.MaxRedactEntries+1))
	for i := range browser.MaxRedactEntries + 1 {
		many = append(many, "resources/"+strconv.Itoa(i), "")
	}
	for _, test := range []struct {
		name, file string
		in         []byte
		want       string
	}{
		{"no zip", "trace.zip", []byte("PK no zip"), "not a valid zip"},
		{"a way out", "trace.zip", traceOf(t, "../x", "y"), "with the name"},
		{"an absolute name", "trace.zip", traceOf(t, "/etc/x", "y"), "with the name"},
		{"a backslash", "trace.zip", traceOf(t, `a\..\b`, "y"), "with the name"},
		{"one name twice", "trace.zip", traceOf(t, "a", "x", "a", "y"), "two files"},
		{"a bomb", "trace.zip", traceOf(t, "a", string(bomb)), "packed more than"},
		{"too many files", "trace.zip", traceOf(t, many...), "more than"},
		{"a broken event", "trace.zip", traceOf(t, "trace.trace", "{}\n{\n"), "line 2"},
		{"no HAR", "network.har", []byte("hello"), "not JSON"},
		{"two texts", "network.har", []byte("{} {}"), "after its end"},
		{"no lines", "console.jsonl", []byte("{}\nhello\n"), "line 2"},
		{"too deep", "network.har", bytes.Repeat([]byte{'['}, 20_000), "not JSON"},
		{"too many values", "network.har", bytes.Repeat([]byte("[],"), 1_100_000), "values"},
		{"too large", "app.log", make([]byte, browser.MaxRedactEntry+1), "larger than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := browser.Redact(test.file, io.Discard, bytes.NewReader(test.in), nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// Pictures and films are not changed.
func TestRedactMedia(t *testing.T) {
	secrets, _ := redact.New(map[string]string{"API": "known-Secret-001"})
	const picture = "\x89PNG\r\n\x1a\nknown-Secret-001"
	for _, name := range []string{"screenshot.png", "video.webm", "page.pdf"} {
		if got := redacted(t, name, picture, secrets); got != picture {
			t.Errorf("%s became %q", name, got)
		}
	}
	var out bytes.Buffer
	if _, err := browser.Redact("trace.zip", &out, bytes.NewReader(traceOf(t, "resources/x.jpeg", picture)),
		secrets); err != nil || !strings.Contains(textOfTrace(t, out.Bytes()), picture) {
		t.Errorf("a picture in a trace: %v", err)
	}
}

// No known secret is left in JSON of any shape, and nothing else is lost of it.
func TestRedactProperty(t *testing.T) {
	const secret = `s3cret "in" <quotes> é\n`
	secrets, _ := redact.New(map[string]string{"S": secret})
	rnd := rand.New(rand.NewPCG(1, 2))
	var value func(depth int) any
	text := func() string {
		parts := []string{"plain", "", "http://h/?page=2", secret, "a" + secret + "b", "日本語"}
		return parts[rnd.IntN(len(parts))]
	}
	value = func(depth int) any {
		switch n := rnd.IntN(6); {
		case n == 0 && depth < 5:
			o := map[string]any{}
			for range rnd.IntN(5) {
				o[text()] = value(depth + 1)
			}
			return o
		case n == 1 && depth < 5:
			l := []any{}
			for range rnd.IntN(5) {
				l = append(l, value(depth+1))
			}
			return l
		case n == 2:
			inner, err := json.Marshal(map[string]any{"x": text()})
			if err != nil {
				t.Fatal(err)
			}
			return string(inner)
		case n == 3:
			return rnd.Float64()
		}
		return text()
	}
	for range 500 {
		v := map[string]any{"type": "event", "all": []any{value(0), value(0), value(0)}}
		in, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got := redacted(t, "console.jsonl", string(in), secrets)
		for form, text := range redacttest.Forms(secret) {
			if strings.Contains(got, text) {
				t.Fatalf("%s has the secret as %s", got, form)
			}
		}
		// Without secrets in it, it is the same text in the encoder's own order of keys.
		if !strings.Contains(string(in), "s3cret") {
			var want bytes.Buffer
			e := json.NewEncoder(&want)
			e.SetEscapeHTML(false)
			if err := e.Encode(v); err != nil || strings.TrimSuffix(want.String(), "\n") != got {
				t.Fatalf("got %s\nof  %s", got, in)
			}
		}
	}
}

func FuzzRedact(f *testing.F) {
	names := []string{"trace.zip", "network.har", "console.jsonl", "aria.yml"}
	for i, seed := range []string{
		string(traceOf(f, "trace.trace", `{"type":"before","params":{"value":"known-Secret-001"}}`,
			"resources/a.css", "a{}")),
		`{"log":{"entries":[{"request":{"headers":[{"name":"Cookie","value":"a=b"}],"postData":{"mimeType":"application/x-www-form-urlencoded","text":"password=x&%zz=1"}}}]}}`,
		`{"t":1,"kind":"error","text":"Bearer abcdefgh https://u:p@h/?token=x known-Secret-001"}` +
			"\n[1,2,\"{\\\"password\\\":\\\"x\\\"}\"]\n",
		"- textbox \"Password\": known-Secret-001\nform-data; name=\"password\"\r\n\r\nx\r\n--\n<input type=password value='x'>",
	} {
		f.Add(i, []byte(seed))
	}
	secrets, _ := redact.New(map[string]string{"API": "known-Secret-001"})
	f.Fuzz(func(t *testing.T, kind int, in []byte) {
		name := names[uint(kind)%uint(len(names))]
		var one, two, again bytes.Buffer
		if _, err := browser.Redact(name, &one, bytes.NewReader(in), secrets); err != nil {
			return
		}
		if _, err := browser.Redact(name, &two, bytes.NewReader(in), secrets); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Fatalf("two copies differ: %v", err)
		}
		if _, err := browser.Redact(name, &again, bytes.NewReader(one.Bytes()), secrets); err != nil {
			t.Fatalf("the copy cannot be read again: %v", err)
		}
		if name != "trace.zip" && bytes.Contains(one.Bytes(), []byte("known-Secret-001")) {
			t.Fatalf("the secret is left: %q", one.String())
		}
	})
}
