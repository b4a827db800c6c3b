package web_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/seen"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// commit puts files on a branch of the repository app, and removes others.
func (w *world) commit(branch string, put []gitd.File, remove ...string) gitd.Hash {
	w.t.Helper()
	repo, err := w.git.Repo("app")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, person := w.t.Context(), gitd.Person{Name: "Ada", Email: "ada@example.org"}
	n := gitd.NewCommit{Put: put, Delete: remove, Author: person, Committer: person, When: time.Unix(1_700_000_000, 0), Message: "Change"}
	old, err := repo.Resolve(ctx, branch)
	if err != nil {
		if n.From, err = repo.Resolve(ctx, "refs/heads/main"); err != nil {
			w.t.Fatal(err)
		}
	} else {
		n.From = old
	}
	n.Parents = []gitd.Hash{n.From}
	commit, err := repo.WriteCommit(ctx, n)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := repo.Update(ctx, gitd.RefUpdate{Name: branch, New: commit}); err != nil {
		w.t.Fatal(err)
	}
	return commit
}

// otter is the branch of the workspace of these tests.
const otter = "refs/heads/ramus/run-otter"

// square returns a picture of one colour.
func square(t *testing.T, c color.Color) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 8, 8))
	for i := range 64 {
		m.Set(i%8, i/8, c)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// numbers returns lines of source code.
func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "var x%d = \"%d\" // a <b>comment</b>\n", i, i)
	}
	return b.String()
}

// reviewed has a workspace with a change of each kind.
func reviewed(t *testing.T) *world { return reviewedWith(t, func(*web.API) {}) }

// reviewedWith is reviewed with other options.
func reviewedWith(t *testing.T, change func(*web.API)) *world {
	t.Helper()
	w := open(t, ada, func(api *web.API) {
		api.Assets = built(t)
		db, err := bolt.Open(filepath.Join(t.TempDir(), "web.db"), 0o600, &bolt.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		api.Seen = &seen.Store{DB: db}
		api.Comments.Drafts = &comment.Drafts{DB: db}
		change(api)
	})
	w.repo("app")
	w.commit("refs/heads/main", []gitd.File{
		{Path: "code/x.go", Content: []byte("package code\n\n" + numbers(0, 60))},
		{Path: "old name.txt", Content: []byte(strings.Repeat("a line of the text\n", 20))},
		{Path: "gone", Content: []byte("gone\n")}, {Path: "space", Content: []byte("a b\n")},
		{Path: "tool.sh", Content: []byte("true\n")}, {Path: "dot.png", Content: square(t, color.White)},
		{Path: "blob", Content: []byte("\x00a")},
	})
	w.run("otter", record.Request{Command: &record.Command{Shell: "true"}})
	code := strings.Replace("package code\n\n"+numbers(0, 60), `var x30 = "30"`, `var x30 = "thirty"`, 1)
	w.commit(otter, []gitd.File{
		{Path: "code/x.go", Content: []byte(code)},
		{Path: "new name.txt", Content: []byte(strings.Repeat("a line of the text\n", 20) + "and <script>alert(1)</script>\u202e\n")},
		{Path: "space", Content: []byte("a  b\n")}, {Path: "tool.sh", Content: []byte("true\n"), Mode: object.ModeExecutable},
		{Path: "dot.png", Content: square(t, color.Black)}, {Path: "blob", Content: []byte("\x00b")},
		{Path: "link", Content: []byte("code/x.go"), Mode: object.ModeSymlink}, {Path: "empty", Content: nil},
		{Path: "large.go", Content: []byte("package large\n" + numbers(0, 2000))},
	}, "gone", "old name.txt")
	return w
}

// TestChanges looks at changes of each kind without scripts.
func TestChanges(t *testing.T) {
	w := reviewed(t)
	const path = "/workspaces/run-otter/changes"
	for _, query := range []string{"", "?view=split", "?file=large.go&line=1500"} {
		w.until(path+query, "chroma", true) // a busy machine shows a file without colours at first
	}
	w.until(path, `<mark><span class="s">30</span></mark>`, true)
	w.until(path, `<span class="kd">var</span>`, true)
	status, _, body := w.get(path)
	parse(t, "changes", body).check()
	for _, want := range []string{"10 files", `<mark><span class="s">30</span></mark>`, `<mark><span class="s">thirty</span></mark>`, `class="l del"`, `-L33"`, `-R33"`, "old name.txt → new name.txt",
		"file → executable file", "symbolic link", "2001 lines differ", "A binary file has no lines", "&lt;script&gt;alert(1)", "Show more of",
		`<span class="kd">var</span>`, `changes/picture?at=`, "Only its mode differs", "It is empty", "I have looked at all"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page (%d) lacks %q", status, want)
		}
	}
	if strings.ContainsRune(body, '\u202e') {
		t.Error("a character changes the order of others")
	}
	for query, want := range map[string]string{
		"?view=split": `class="patch chroma split"`, "?w=1": "Only white space differs", "?file=code%2Fx.go&context=200": "-R62",
		"?file=large.go": "line=500", "?file=large.go&line=1500": `class="patch chroma"`, "?file=large.go&line=9999": "There are no further lines",
		"?q=code": "1 of 10 files", "?q=nothing": "No path has that", "?b=main": "Nothing differs",
	} {
		status, _, body := w.get(path + query)
		parse(t, query, body).check()
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s answers %d without %q: %s", query, status, want, body)
		}
	}
	for query, want := range map[string]int{"?file=nothing": 404, "?a=nothing": 404, "?b=%00": 400, "/picture?path=blob": 404, "/picture?path=link": 404,
		"/picture?path=..%2Fx": 400, "/picture?path=dot.png&at=nothing": 404, "?page=99&line=-1&context=x": 200} {
		if status, _, body := w.get(path + query); status != want {
			t.Errorf("%s answers %d, want %d: %s", query, status, want, body)
		}
	}
	picture := link(t, body, `src="([^"]+/picture\?[^"]+)"`)
	if status, h, answer := w.get(picture); status != 200 || h.Get("Content-Type") != "image/png" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") ||
		answer != string(square(t, color.White)) {
		t.Errorf("the picture answers %d: %v", status, h)
	}
}

// TestColoursOfPart shows a part of a file that begins in the middle of a comment. Its colours are those of the whole file.
func TestColoursOfPart(t *testing.T) {
	w := open(t, ada, nil)
	w.repo("app")
	w.run("otter", record.Request{Command: &record.Command{Shell: "true"}})
	text := "package doc\n\n/*\n" + strings.Repeat("if x := `1`\n", 90) + "*/\nvar a = 1\n"
	old := w.commit(otter, []gitd.File{{Path: "doc.go", Content: []byte(text)}})
	fresh := w.commit(otter, []gitd.File{{Path: "doc.go", Content: []byte(strings.Replace(text, "*/", "and more\n*/", 1))}})
	for _, query := range []string{"", "&context=20", "&context=20&view=split"} {
		body := w.until(fmt.Sprintf("/workspaces/run-otter/changes?file=doc.go&a=%s&b=%s%s", old, fresh, query), `<span class="cm">`, true)
		if n := strings.Count(body, `<span class="cm">if x := `); n < 3 || strings.Contains(body, `<span class="k">if`) ||
			!strings.Contains(body, `<span class="kd">var</span>`) {
			t.Errorf("%s: %d lines of the comment: %s", query, n, body)
		}
	}
}

// TestViewed marks a file as viewed. The mark goes with the next change of the file, and the page shows what is new since the last look.
func TestViewed(t *testing.T) {
	w := reviewed(t)
	const path = "/workspaces/run-otter/changes"
	_, _, body := w.get(path + "?file=space")
	key, id := link(t, body, `name="key" value="([^"]+)"`), link(t, body, `name="id" value="([^"]+)"`)
	status, h, _ := w.post(path+"/viewed", url.Values{"key": {key}, "id": {id}, "on": {"1"}, "query": {"w=1&file=space"}})
	if status != 303 || h.Get("Location") != path+"?file=space&w=1#"+id {
		t.Errorf("%d to %s", status, h.Get("Location"))
	}
	if _, _, body = w.get(path); !strings.Contains(body, "<span data-marked>1</span> of 10 here viewed") || !strings.Contains(body, "You have viewed it") {
		t.Errorf("it is not viewed: %s", body)
	}
	to := link(t, body, `name="to" value="([^"]+)"`)
	if status, _, body := w.post(path+"/looked", url.Values{"to": {"nothing"}}); status != 404 {
		t.Errorf("a commit that there is not: %d %s", status, body)
	}
	w.post(path+"/looked", url.Values{"to": {to}})
	if _, _, body = w.get(path); !strings.Contains(body, "You have looked at all") {
		t.Errorf("it is not looked at: %s", body)
	}
	w.commit(otter, []gitd.File{{Path: "space", Content: []byte("other\n")}})
	if _, _, body = w.get(path); !strings.Contains(body, "<span data-marked>0</span> of 10 here viewed") {
		t.Errorf("the changed file is viewed: %s", body)
	}
	_, _, body = w.get(link(t, body, `href="([^"]+)">Since I looked`))
	if !strings.Contains(body, "<span>1 file</span>") || !strings.Contains(body, "other") {
		t.Errorf("since the last look: %s", body)
	}
	if status, _, _ := w.post(path+"/odd", url.Values{}); status != 404 {
		t.Errorf("an unknown action answers %d", status)
	}
}

// TestManyChanges has 5,000 changed files. Each page has a part of them, and few elements.
func TestManyChanges(t *testing.T) {
	w := open(t, ada, nil)
	w.repo("app")
	w.run("otter", record.Request{Command: &record.Command{Shell: "true"}})
	var put []gitd.File
	for i := range 5000 {
		put = append(put, gitd.File{Path: fmt.Sprintf("folder-%d/f%d.go", i%7, i), Content: []byte("package x\n\n" + numbers(0, i%40))})
	}
	old := w.commit(otter, put)
	for i := range put {
		// Few lines differ, and many equal ones are around them.
		put[i].Content = []byte(strings.ReplaceAll(string(put[i].Content), "9\"", "nine\""))
	}
	put = append(put, gitd.File{Path: "long.go", Content: []byte("package x\n\n" + numbers(0, 3000))})
	fresh := w.commit(otter, put)
	const path = "/workspaces/run-otter/changes"
	ends := "?b=" + string(fresh)
	for _, query := range []string{ends, ends + "&page=77&view=split", ends + "&page=101", ends + "&q=folder-3", ends + "&file=long.go&view=split",
		"?view=split&context=20&a=" + string(old), "?a=" + string(old)} {
		_, _, body := w.get(path + query)
		d := parse(t, query, body)
		d.check()
		if len(d.all) > 4000 || strings.Contains(query, ends) && !strings.Contains(body, "5001 files") {
			t.Errorf("%s has %d elements", query, len(d.all))
		}
	}
}

// TestChangesAccessible looks at changes with Chromium.
func TestChangesAccessible(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		t.Skip("cannot look at it here: `npm ci` in gateway/web brings axe-core")
	}
	w := reviewed(t)
	const path = "/workspaces/run-otter/changes"
	p := webtest.Start(t).Open(nil)
	for query, l := range map[string]look{"": {1440, 900, "light"}, "?view=split": {1440, 900, "dark"}, "?view=split&w=1": {390, 844, "light"},
		"?file=large.go&line=500": {390, 844, "dark"}} {
		w.look(p, string(axe), path+query, 0, l)
	}
	if dir := os.Getenv("RAMUS_SHOTS"); dir != "" {
		for _, l := range []look{{1440, 900, "light"}, {1440, 900, "dark"}, {390, 844, "light"}, {390, 844, "dark"}} {
			for name, query := range map[string]string{"u": "", "s": "?view=split"} {
				p.Look(l.width, l.height, l.theme)
				p.Go(w.server.URL + path + query)
				p.Shot(filepath.Join(dir, fmt.Sprintf("whole-%s-%d-%s.png", name, l.width, l.theme)), true)
			}
		}
	}
	for _, query := range []string{"", "?view=split"} {
		p.Look(320, 640, "light")
		p.Go(w.server.URL + path + query)
		var wide []string
		if p.Eval(widerThanWindow, &wide); len(wide) > 0 {
			t.Errorf("it is wider than 320 px: %v", wide)
		}
	}
	p.Look(1440, 900, "light")
	p.Go(w.server.URL + path)
	for _, x := range []struct{ key, holds string }{
		{"j", `document.activeElement.closest('.dfile') === document.querySelectorAll('.dfile')[0]`},
		{"j", `document.activeElement.closest('.dfile') === document.querySelectorAll('.dfile')[1]`},
		{"x", `document.querySelectorAll('.dfile')[1].matches('.closed')`},
		{"x", `!document.querySelector('.dfile.closed')`},
		{"v", `document.querySelectorAll('.dfile')[1].querySelector('[aria-pressed=true]') && document.querySelectorAll('.dfile')[1].matches('.closed')`},
		{"v", `document.querySelector('[data-marked]').innerText === '0'`},
		{"v", `document.querySelector('[data-marked]').innerText === '1'`},
		{"n", `document.activeElement.closest('.l').matches('.add, .del')`},
		{"p", `document.activeElement.closest('.l, .dfile')`},
		{"k", `document.activeElement.closest('.dfile')`},
		{"f", `document.activeElement.matches('.dlist summary')`},
		{"?", `document.activeElement.matches('.keys[open] summary')`},
	} {
		p.Press(x.key)
		p.Wait("!!(" + x.holds + ")")
	}
	p.Eval(`[...document.querySelectorAll('a[data-open]')].find(a => a.closest('.dfile').innerText.includes('large.go')).click()`, nil)
	p.Wait(`[...document.querySelectorAll('.dfile')].find(f => f.innerText.includes('large.go')).querySelectorAll('.l').length === 500`)
	w.commit(otter, []gitd.File{{Path: "newer", Content: []byte("x\n")}})
	w.run("otter", record.Request{Command: &record.Command{Shell: "true"}})
	p.Wait(`document.querySelector('[data-live=news]').innerText.includes('newer commits')`)
	if !p.Holds(`![...document.querySelectorAll('.dfile h2')].some(h => h.innerText === 'newer')`) {
		t.Error("the page changed under its reader")
	}
	p.Press("s")
	p.Wait(`location.search.includes('view=split') && document.querySelector('.patch.split')`)
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}
