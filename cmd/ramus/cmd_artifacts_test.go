package main

import (
	"bytes"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/tasks/browser"
)

func TestArtifactsOfABrowser(t *testing.T) {
	t.Parallel()
	m := record.Manifest{Run: "run:otter/1", Browser: []record.BrowserCheck{
		{Name: "todo", Verdict: browser.Fail, Views: []browser.View{
			{Viewport: browser.Desktop, Verdict: browser.Fail, Screenshot: "001-todo/desktop/screenshot.png"},
			{Viewport: browser.Mobile, Verdict: browser.Unverified, Reason: "the browser\x1b[2J was ended"}},
			Compare: &browser.Comparison{Views: []browser.Diff{{Viewport: "desktop", Changed: 0.031,
				Picture: "001-todo/desktop/triptych.png"}}}},
		{Name: "shop", Verdict: browser.Unverified, Reason: "nothing listened at 127.0.0.1:5173"},
	}}
	files := []record.ManifestFile{
		{Name: "artifacts/browser/001-todo/desktop/screenshot.png", Size: 61_440, Type: "image/png"},
		{Name: "artifacts/browser/001-todo/desktop/trace.zip", Size: 3 << 20, Type: "application/zip"},
	}
	var out bytes.Buffer
	e := newEnv(stdio{out: &out, err: &out}, nil)
	if err := e.showArtifacts(m, files); err != nil {
		t.Fatal(err)
	}
	const want = `VERDICT     NAME  VIEWPORT  FILE
FAIL        todo  desktop   browser/001-todo/desktop/screenshot.png
UNVERIFIED  todo  mobile    the browser�[2J was ended
3.1 %       todo  desktop   browser/001-todo/desktop/triptych.png
UNVERIFIED  shop            nothing listened at 127.0.0.1:5173

SIZE    TYPE             FILE
60 KiB  image/png        browser/001-todo/desktop/screenshot.png
3 MiB   application/zip  browser/001-todo/desktop/trace.zip
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
