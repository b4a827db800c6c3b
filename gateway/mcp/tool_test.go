package mcp

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// TestToolPictures checks that the pictures of a result follow the text.
func TestToolPictures(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n picture")
	out, err := (toolset{}).answer(toolResult{value: map[string]string{"verdict": "FAIL"}, failed: true,
		pictures: []toolPicture{{"001-todo/mobile/screenshot.png", png}, {name: "is too large"}}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"isError":true`, `"text":"001-todo/mobile/screenshot.png"`, `"type":"image"`,
		`"mimeType":"image/png"`, `"data":"` + base64.StdEncoding.EncodeToString(png), `"text":"is too large"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
}
