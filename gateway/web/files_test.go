package web_test

import (
	"bytes"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// upload sends the form of files, as a browser without scripts does.
func (w *world) upload(path string, fields, files map[string]string) (int, string, string) {
	w.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := form.WriteField(name, fields[name]); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		in, err := form.CreateFormFile("files", name)
		if err == nil {
			_, err = io.WriteString(in, files[name])
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		w.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.server.URL+path, &body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Content-Type", form.FormDataContentType())
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location"), readAll(w.t, resp)
}

// TestFilesWithoutContainers sends forms of files that are refused. The page keeps what the person typed, and has the
// reason next to the field.
func TestFilesWithoutContainers(t *testing.T) {
	w := open(t, ada, nil)
	w.repo("app")
	w.run("otter", record.Request{Command: &record.Command{Shell: "true"}})
	for _, x := range []struct {
		name          string
		fields, files map[string]string
		status        int
		want          string
	}{
		{"no file", map[string]string{"folder": "docs"}, nil, 422, "choose a file"},
		{"a name outside", map[string]string{"folder": "docs"}, map[string]string{"../<i>x": "x"}, 422, "&lt;i&gt;x"},
		{"a folder outside", map[string]string{"folder": "../docs"}, map[string]string{"x": "x"}, 422,
			"the folder cannot be used"},
		{"no engine", map[string]string{"folder": "docs", "replace": "1"}, map[string]string{"x": "x"}, 503,
			"The upload failed."},
	} {
		t.Run(x.name, func(t *testing.T) {
			status, _, body := w.upload("/workspaces/run-otter/files", x.fields, x.files)
			if status != x.status || !strings.Contains(body, x.want) ||
				!strings.Contains(body, `value="`+x.fields["folder"]+`"`) {
				t.Errorf("status %d, want %d with %q:\n%s", status, x.status, x.want, body)
			}
			if strings.Contains(body, "<i>x") {
				t.Error("a name is markup")
			}
			if x.fields["replace"] != "" && !strings.Contains(body, `name="replace" value="1" checked`) {
				t.Error("the choice to replace is lost")
			}
			parse(t, x.name, body).check()
		})
	}
	if status, _, body := w.upload("/workspaces/run-nobody/files", nil, map[string]string{"x": "x"}); status != 404 {
		t.Errorf("status %d: %s", status, body)
	}

	status, header, body := w.get("/workspaces/run-otter/download?path=README")
	if status != 200 || body != "hello\n" || !strings.HasPrefix(header.Get("Content-Disposition"), "attachment;") ||
		!strings.Contains(header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("status %d, %q, %v", status, body, header)
	}
	for path, want := range map[string]string{"?pane=files&path=nowhere": "The branch has no such folder",
		"?pane=files&path=../..":   "The branch has no such folder",
		"?pane=files&path=%3Cb%3E": "&lt;b&gt;", "?pane=files&sent=99999": "README",
		"?pane=files&sent=2&left=1": "except 1"} {
		if status, _, body := w.get("/workspaces/run-otter" + path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: status %d without %q", path, status, want)
		}
	}
}

// TestFilesInChromium uploads by choice and by drop, and is refused without a loss.
func TestFilesInChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	b := webtest.Start(t)
	w := talker(t, "")
	w.run("otter", record.Request{Command: &record.Command{Shell: "true"}})
	p := b.Open(nil)
	p.Look(1440, 900, "light")
	p.Go(w.server.URL + "/workspaces/run-otter?pane=files")
	const button = "form[data-upload] button.primary"
	choose := func(name, content string) {
		t.Helper()
		p.Eval(`(() => {
			const d = new DataTransfer(), i = document.querySelector('#upload-files');
			d.items.add(new File([`+webtest.Quote(content)+`], `+webtest.Quote(name)+`));
			i.files = d.files;
			i.dispatchEvent(new Event('change', {bubbles: true}));
		})()`, nil)
	}
	choose("page.txt", "from a page\n")
	p.Wait(`document.querySelector('[data-part=picked]').textContent === 'page.txt · 12 B'`)
	p.Eval(`(() => {
		const d = new DataTransfer();
		d.items.add(new File(['dropped\n'], 'drop.txt'));
		document.querySelector('.files-list').dispatchEvent(new DragEvent('drop', {dataTransfer: d, bubbles: true, cancelable: true}));
		document.querySelector('form[data-upload] [name=folder]').value = '/from/page/';
	})()`, nil)
	p.Wait(`document.querySelector('[data-part=picked]').textContent.includes('page.txt, drop.txt')`)
	p.Follow(func() { p.Click(button) })
	p.Wait(`document.body.innerText.includes('2 files are in the container. The branch has them.')`)
	p.Wait(`document.querySelector('.files-list').innerText.includes('drop.txt')`)
	if got := w.content("otter", "from/page/page.txt"); got != "from a page\n" {
		t.Errorf("%q", got)
	}
	if got := w.content("otter", "from/page/drop.txt"); got != "dropped\n" {
		t.Errorf("%q", got)
	}

	// The folder is the same one, so the file is there.
	choose("page.txt", "another one\n")
	p.Click(button)
	p.Wait(`document.querySelector('.upload .wrong').innerText.includes('there is such a file')`)
	if !p.Holds(`document.querySelector('#upload-files').files.length === 1 && document.activeElement.name ` +
		`=== 'replace'`) {
		t.Error("the files are no longer chosen, or the way on has not the focus")
	}
	p.Click(`form[data-upload] [name=replace]`)
	p.Follow(func() { p.Click(button) })
	p.Wait(`document.body.innerText.includes('The file is in the container. The branch has it.')`)
	if got := w.content("otter", "from/page/page.txt"); got != "another one\n" {
		t.Errorf("%q", got)
	}

	// Too much is said before anything is sent.
	p.Eval(`(() => {
		const d = new DataTransfer(), i = document.querySelector('#upload-files');
		for (let n = 0; n < 201; n++) d.items.add(new File([''], n + '.txt'));
		i.files = d.files;
		i.dispatchEvent(new Event('change', {bubbles: true}));
	})()`, nil)
	p.Click(button)
	p.Wait(`document.querySelector('.upload .wrong').innerText.includes('These are more than 200 files')`)
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(strings.Join(faults, "; "))
	}
}

// content returns a file of the branch of a caller.
func (w *world) content(name, path string) string {
	w.t.Helper()
	r, err := w.git.Repo("app")
	if err != nil {
		w.t.Fatal(err)
	}
	in, _, err := r.OpenFile(w.t.Context(), "refs/heads/ramus/run-"+name, path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}
