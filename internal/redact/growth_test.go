package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestGrowth checks that the time to look for values grows with the text, also where a text is full of what is nearly a value.
func TestGrowth(t *testing.T) {
	const token = "xoxb-4711-Rm9vYmFyQmF6UXV4-s3cr3t"
	line := "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIB\n"
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat(line, 30) +
		"kq7Q0b9c1d2e3f4a5b6c7d8e9f0a1b2c\n-----END PRIVATE KEY-----\n"
	s := set(t, map[string]string{"TOKEN": token, "KEY": key, "RUN": strings.Repeat("a", 40) + "b",
		"HEX": strings.Repeat("0123456789abcdef", 4)})
	encoded := base64.StdEncoding.EncodeToString([]byte(token))
	cases := growth.Tokens(token, token[:len(token)-1], token[:9], token[:8], token[:4], token[1:], key[:len(key)-30],
		strings.TrimSuffix(line, "\n"), line,
		"a", "a\n", "a\\n", "aaaa\n", "\n", "\\", "\\n", "\r", "\r\n", "\\r\\n", "%", "=", "x", "xo", "xoxb", "xoxb\n",
		token[:8]+"\n",
		encoded[:len(encoded)-2], encoded, encoded[:5]+"\n"+encoded[5:20], encoded[:5]+"\n\n",
		hex.EncodeToString([]byte(token))[:40], "0123456789abcdef", "01234567\n",
		"{", "[", "\"", `{"a":`, `["a",`, `"\u0061`, `\u0061`, "é", "\xff", "\x00")
	for _, run := range []int{1, 2, 5, 7, 39, 40} {
		cases = append(cases, growth.Repeat(strings.Repeat("a", run)+"c"),
			growth.Repeat(strings.Join(strings.Split(strings.Repeat("a", run), ""), "\n")+"\n\n"))
	}
	cases = append(cases, growth.Case{Prefix: "[", Token: `"` + token + `",`, Suffix: `""]`},
		growth.Case{Prefix: "[", Token: `"\u0061",`, Suffix: `""]`},
		growth.Case{Prefix: "[", Token: `4711,`, Suffix: `"\u0061"]`})

	growth.Check(t, "Find", func(text []byte) { _, _ = s.Find(bytes.NewReader(text)) }, cases...)
	growth.Check(t, "Copy", func(text []byte) { _, _ = s.Copy(io.Discard, bytes.NewReader(text)) }, cases...)
	growth.Check(t, "JSON", func(text []byte) { s.JSON(text) }, cases...)
	if os.Getenv("RAMUS_CURVES") == "" {
		cases = cases[:8] // the search is the same
	}
	growth.Check(t, "String", func(text []byte) { s.String(string(text)) }, cases...)
	growth.Check(t, "Name", func(text []byte) { s.Name(string(text)) }, cases...)
	growth.Check(t, "Copy by halves",
		func(text []byte) { _, _ = s.Copy(io.Discard, iotest.HalfReader(bytes.NewReader(text))) }, cases...)
}
