package browser_test

import (
	"archive/zip"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/redact"
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

// textOfTrace is all files of a trace, each behind its name.
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
		{"numbers stay as they are written", "network.har", `{"a":1.50,"b":12345678901234567890,"c":1e3}`, `{"a":1.50,"b":12345678901234567890,"c":1e3}`},
		{"fields of a JSON body", "network.har",
			`{"postData":{"mimeType":"application/json; charset=utf-8","text":"{\"user\":\"ada\",\"newPassword\":\"x\"}"}}`,
			`{"postData":{"mimeType":"application/json; charset=utf-8","text":"{\"newPassword\":\"[redacted]\",\"user\":\"ada\"}"}}`},
		{"fields of a form", "network.har",
			`{"postData":{"mimeType":"application/x-www-form-urlencoded","text":"user=ada&pass%77ord=x+y","params":[{"name":"user","value":"ada"},{"name":"password","value":"x y"}]}}`,
			`{"postData":{"mimeType":"application/x-www-form-urlencoded","params":[{"name":"user","value":"ada"},{"name":"password","value":"[redacted]"}],"text":"user=ada&pass%77ord=[redacted]"}}`},
		{"a body in base64", "network.har", // {"token":"x"}
			`{"content":{"encoding":"base64","mimeType":"application/json","text":"eyJ0b2tlbiI6IngifQ=="}}`,
			`{"content":{"encoding":"base64","mimeType":"application/json","text":"eyJ0b2tlbiI6IltyZWRhY3RlZF0ifQ=="}}`},
		{"a URL's query", "console.jsonl", `{"text":"GET /a?page=2&access_token=x&b=c","url":"https://u:p@h.example/?sig=1#id_token=y"}`,
			`{"text":"GET /a?page=2&access_token=[redacted]&b=c","url":"https://[redacted]@h.example/?sig=[redacted]#id_token=[redacted]"}`},
		{"a known secret", "aria.yml", "- text: known-Secret-001 and a25vd24tU2VjcmV0LTAwMQ==", "- text: [secret API] and [secret API]"},
		{"headers in a log", "app.log", "> Authorization: Bearer abc\n> Set-Cookie: a=b; Path=/\n> Host: h\ncookies are good",
			"> Authorization: [redacted]\n> Set-Cookie: [redacted]\n> Host: h\ncookies are good"},
		{"a token by itself", "app.log", "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl, and Bearer abcdefgh", "got [redacted], and Bearer [redacted]"},
		{"text without any", "app.log", "GET /?page=2 200 basic information; a = b ? c : d", "GET /?page=2 200 basic information; a = b ? c : d"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := redacted(t, test.file, test.in, secrets); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
