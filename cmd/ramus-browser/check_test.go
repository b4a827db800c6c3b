package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/tasks/browser"
)

const todo = `<h1>Things to do</h1><input id=new><input id=secret type=password>
<select id=when><option>today<option value=t>tomorrow</select><input id=done type=checkbox>
<button onclick="n++;show()">Add</button><p id=count>0 items</p><ul id=list hidden><li class=x>a<li class=x>b</ul>
<a href=/next>next</a>
<script>let n=0;function show(){document.getElementById('count').textContent=n+' item'+(n==1?'':'s');
document.getElementById('list').hidden=false}
document.getElementById('new').onkeydown=e=>{if(e.key=='Enter'){n++;show()}}</script>`

func TestGoodPage(t *testing.T) {
	t.Parallel()
	s := site(t, map[string]any{"/": todo, "/next": "<h1>Next</h1>"})
	sp := spec(s, "/",
		browser.Step{Do: "fill", Target: "#new", Value: "Write tests"},
		browser.Step{Do: "fill", Target: "#secret", Value: "correct horse"},
		browser.Step{Do: "select", Target: "#when", Value: "tomorrow"},
		browser.Step{Do: "check", Target: "#done"},
		browser.Step{Do: "uncheck", Target: "#done"},
		browser.Step{Do: "hover", Target: "button"},
		browser.Step{Do: "expect_hidden", Target: "#list"},
		browser.Step{Do: "click", Target: "button"},
		browser.Step{Do: "expect_text", Target: "#count", Value: "1 item"},
		browser.Step{Do: "press", Target: "Enter", In: "#new"},
		browser.Step{Do: "press", Target: "Tab"},
		browser.Step{Do: "wait_for", Target: "#list"},
		browser.Step{Do: "expect_text", Target: "#count", Value: "2 items"},
		browser.Step{Do: "expect_visible", Target: "#list"},
		browser.Step{Do: "expect_count", Target: ".x", Value: "2"},
		browser.Step{Do: "screenshot", Target: "list"},
		browser.Step{Do: "click", Target: "a"},
		browser.Step{Do: "expect_url", Target: "/next"},
		browser.Step{Do: "goto", Target: "/"},
		browser.Step{Do: "expect_title", Target: "A page"},
	)
	sp.Viewports = []browser.Viewport{browser.Desktop, browser.Mobile}
	sp.PDF = true
	o := look(t, browser.Job{Spec: sp})
	o.want(t, browser.Pass, "desktop 1440x1000 and mobile 390x844", "no errors")
	if len(o.Views) != 2 {
		t.Fatalf("%d views", len(o.Views))
	}
	for _, v := range o.Views {
		for _, name := range []string{v.Screenshot, v.Trace, v.HAR, v.Aria, v.PDF, v.Console.File} {
			if _, ok := o.files[name]; name == "" || !ok {
				t.Errorf("%s: the evidence has no %q", v.Viewport.Name, name)
			}
		}
		picture, err := png.DecodeConfig(bytes.NewReader(o.files[v.Screenshot]))
		if err != nil || picture.Width != v.Viewport.Width || picture.Height != v.Viewport.Height {
			t.Errorf("%s: picture of %dx%d, %v", v.Viewport.Name, picture.Width, picture.Height, err)
		}
		if v.Status != 200 || v.Title != "A page" || v.FinalURL != s.URL+"/" || len(v.Steps) != 20 {
			t.Errorf("%+v", v)
		}
		for i, step := range v.Steps {
			if !step.OK || step.Secret != (i == 1) || step.Do != sp.Steps[i].Do {
				t.Errorf("step %d: %+v", i+1, step)
			}
		}
		if v.Steps[1].Value != redacted || v.Steps[15].Screenshot != v.Viewport.Name+"/step-16.png" {
			t.Errorf("%+v", v.Steps)
		}
	}
	if bytes.Contains(o.files[indexFile], []byte("correct horse")) {
		t.Error("the index has a password")
	}
}

func TestFaults(t *testing.T) {
	pages := map[string]any{
		"/console": `<script>console.error("a bad thing", 7)</script>`,
		"/page":    `<script>setTimeout(()=>{undefined.x},0)</script>`,
		"/500":     `<script>fetch("/broken")</script>`,
		"/all":     `<script>console.error("a bad thing");fetch("/broken");fetch("/cut").catch(()=>{});setTimeout(()=>{undefined.x},0)</script>`,
		// What is no fault: an icon that is missing, a picture too, a request that was given up, dialogs,
		// a window, a download, threads that never rest.
		"/harmless": `<link rel=icon href=/favicon.ico><img src=/favicon.ico><img src=/none.png>
<a id=d href=/download download>x</a><script>
const c=new AbortController();fetch("/slow",{signal:c.signal}).catch(()=>{});c.abort();
alert(1);confirm(2);prompt(3);window.open('/step');document.getElementById('d').click();
for(let i=0;i<2;i++)new Worker(URL.createObjectURL(new Blob(["for(;;);"])))</script>`,
		"/loop": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) },
		"/file": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		},
		"/broken":      http.StatusInternalServerError,
		"/none.png":    http.StatusNotFound,
		"/gone":        http.StatusNotFound,
		"/slow":        func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"/cut":         func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		"/step":        todo,
		"/closes":      `<p>x<script>window.close();setTimeout(()=>{window.open('','_self');window.close()},50)</script>`,
		"/alerts":      `<script>for(;;)alert(1)</script>`,
		"/oneAlert":    `<script>alert(1);confirm(2);prompt(3)</script>`,
		"/popups":      `<script>for(let i=0;i<100;i++)window.open('/step?'+i)</script>`,
		"/lines":       `<script>for(let i=0;i<10000;i++)console.log('line '+i)</script>`,
		"/favicon.ico": http.StatusNotFound,
		"/download": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Disposition", "attachment; filename=x.bin")
			junk := make([]byte, 64<<10)
			for r.Context().Err() == nil {
				if _, err := w.Write(junk); err != nil {
					return
				}
			}
		},
	}
	s := site(t, pages)
	url := s.URL
	for _, c := range []struct {
		path    string
		verdict browser.Verdict
		words   []string
		allow   browser.Allow
		steps   []browser.Step
		also    func(*testing.T, outcome)
		full    bool // seen by tests of the whole of ramus, too: tried with RAMUS_TEST=full only
	}{
		{path: "/console", verdict: browser.Fail, words: []string{"console error: a bad thing 7"}, full: true},
		{path: "/page", verdict: browser.Fail, words: []string{"uncaught TypeError: Cannot read properties of undefined"}},
		{path: "/500", verdict: browser.Fail, words: []string{"GET " + url + "/broken answered 500"},
			also: func(t *testing.T, o outcome) {
				if v := o.Views[0]; len(v.Network) != 1 || len(v.Console.Errors) != 0 || v.Console.Counts["error"] != 1 {
					t.Errorf("told twice: %+v", v)
				}
			}},
		{path: "/harmless", verdict: browser.Pass, also: func(t *testing.T, o outcome) {
			if v := o.Views[0]; len(v.Network) != 1 || v.Network[0].Status != 404 || v.Console.Counts["dialog"] != 3 ||
				v.Console.Counts["popup"] != 1 {
				t.Errorf("%+v", v)
			}
		}},
		{path: "/all", verdict: browser.Pass, words: []string{"4 that are allowed"}, allow: browser.Allow{
			Console: []string{"^a bad"}, PageErrors: []string{"undefined"}, Requests: []string{"/broken$", "/cut"},
		}},
		{path: "/gone", verdict: browser.Fail, words: []string{url + "/gone answered 404"}, full: true},
		{path: "/loop", verdict: browser.Fail, words: []string{"redirects without end"}},
		{path: "/file", verdict: browser.Fail, words: []string{"redirects to what is no web page"}},
		{path: "/step", verdict: browser.Fail,
			words: []string{`step 2, expect_text "#count": want "2 items", got "1 item" (1s)`}, steps: []browser.Step{
				{Do: "click", Target: "button"},
				{Do: "expect_text", Target: "#count", Value: "2 items", Timeout: browser.Duration(time.Second)},
				{Do: "click", Target: "button"},
			}, also: func(t *testing.T, o outcome) {
				steps := o.Views[0].Steps
				if len(steps) != 2 || len(o.files[steps[1].Screenshot]) == 0 || steps[1].Error == "" {
					t.Errorf("%+v", steps)
				}
			}},
		{path: "/step", verdict: browser.Fail, full: true,
			words: []string{`step 1, click "#nowhere": no such element (500ms)`},
			steps: []browser.Step{{Do: "click", Target: "#nowhere", Timeout: browser.Duration(time.Second / 2)}}},
		{path: "/step", verdict: browser.Fail, words: []string{`must begin with http:// or https://`},
			steps: []browser.Step{{Do: "goto", Target: "file:///etc/passwd"}}},
		{path: "/closes", verdict: browser.Pass, full: true}, /* the browser lets no page do it that no page opened */
		{path: "/alerts", verdict: browser.Fail, words: []string{"dialogs without end"}},
		{path: "/popups", verdict: browser.Fail, words: []string{"windows without end"}, full: true},
		{path: "/lines", verdict: browser.Pass, full: true, also: func(t *testing.T, o outcome) {
			v := o.Views[0]
			lines := bytes.Count(o.files[v.Console.File], []byte("\n"))
			if v.Console.Counts["log"] != 10000 || lines != maxConsoleLines || v.Console.Dropped != 10000-maxConsoleLines {
				t.Errorf("%d lines: %+v", lines, v.Console)
			}
		}},
		{path: "/download", verdict: browser.Fail, words: []string{"download"}},
	} {
		name := strings.TrimPrefix(c.path, "/")
		if len(c.steps) > 0 {
			name += " " + c.steps[0].Do
		}
		t.Run(fmt.Sprintf("%s %s", name, c.verdict), func(t *testing.T) {
			if c.full && !full() {
				t.Skip("only with RAMUS_TEST=full")
			}
			t.Parallel()
			sp := spec(s, c.path, c.steps...)
			sp.Allow = c.allow
			o := look(t, browser.Job{Spec: sp})
			o.want(t, c.verdict, c.words...)
			if c.also != nil {
				c.also(t, o)
			}
		})
	}
}

func TestNothingListens(t *testing.T) {
	t.Parallel()
	const dead = "http://127.0.0.1:1" // a port that is given to nobody who does not ask for it
	o := look(t, browser.Job{Spec: browser.Spec{URL: dead + "/app", Wait: browser.Duration(300 * time.Millisecond)}})
	o.want(t, browser.Fail, "nothing answers at "+dead+"/app")
}

// A server that takes the connection and says nothing.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	s := site(t, map[string]any{"/": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }})
	sp := spec(s, "/")
	sp.Timeout = browser.Duration(2 * time.Second)
	look(t, browser.Job{Spec: sp}).want(t, browser.Unverified, "before the page answered")
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	s := site(t, map[string]any{
		"/busy": `<p>hello</p><script>setTimeout(()=>{for(;;);},300)</script>`,
		// The same without the machine's time: its thread waits.
		"/held":  `<p>hello</p><script>setTimeout(()=>{const r=new XMLHttpRequest();r.open('GET','/never',false);r.send()},300)</script>`,
		"/never": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"/half": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "<!doctype html><p>half")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	})
	for _, path := range []string{"/held", "/busy", "/half"} {
		t.Run(path[1:], func(t *testing.T) {
			if path != "/held" && !full() {
				t.Skip("only with RAMUS_TEST=full")
			}
			t.Parallel()
			sp := spec(s, path, browser.Step{Do: "click", Target: "#none"})
			sp.Viewports = []browser.Viewport{small, {Name: "other", Width: 300, Height: 300}}
			sp.Timeout = browser.Duration(10 * time.Second)
			o := look(t, browser.Job{Spec: sp})
			o.want(t, browser.Fail, "took longer than", "other: not looked at")
			if o.Views[1].Verdict != browser.Unverified {
				t.Errorf("%+v", o.Views[1])
			}
		})
	}
}

func TestBrokenJobs(t *testing.T) {
	t.Parallel()
	good := browser.Spec{URL: "http://127.0.0.1:1/"}
	for name, change := range map[string]func(*browser.Job){
		"file":      func(j *browser.Job) { j.Spec.URL = "file:///etc/passwd" },
		"pattern":   func(j *browser.Job) { j.Spec.Allow.Console = []string{"("} },
		"viewport":  func(j *browser.Job) { j.Spec.Viewports = []browser.Viewport{{Name: "../x", Width: 1, Height: 1}} },
		"twice":     func(j *browser.Job) { j.Spec.Viewports = []browser.Viewport{small, small} },
		"proxy":     func(j *browser.Job) { j.Proxy = "http://a:b@127.0.0.1:7070" },
		"state":     func(j *browser.Job) { j.State = json.RawMessage(`{"cookies":"x"}`) },
		"clock":     func(j *browser.Job) { j.Spec.Clock = "yesterday" },
		"no length": func(j *browser.Job) { j.Spec.Viewports = []browser.Viewport{{Name: "x"}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := browser.Job{Spec: good}
			change(&j)
			look(t, j).want(t, browser.Unverified)
		})
	}
}

// TestSamePicture: an unchanged page gives the very same bytes, also when it moves at first and shows the time.
func TestSamePicture(t *testing.T) {
	t.Parallel()
	s := site(t, map[string]any{"/": `<style>@keyframes k{from{left:0}to{left:300px}}
#a{position:relative;width:50px;height:50px;background:linear-gradient(45deg,red,blue);animation:k 1s infinite alternate}
#b{transition:width 2s;width:10px;height:10px;background:green;border-radius:3px}</style>
<h1>Ägypten, “quotes” and 1½</h1><div id=a></div><div id=b></div><input autofocus value=x><p id=t></p><p id=clock></p>
<script>document.getElementById('t').textContent=new Date().toString();
document.getElementById('clock').textContent=performance.timeOrigin;
setTimeout(()=>document.getElementById('b').style.width='200px',100)</script>`})
	sp := spec(s, "/")
	sp.Clock = "2026-01-02T03:04:05Z"
	sp.Screenshot.Mask = []string{"#clock"}
	names := []string{"a", "b"}
	if full() {
		names = []string{"a", "b", "c", "d", "e"}
	}
	for _, name := range names {
		again := small
		again.Name = name
		sp.Viewports = append(sp.Viewports, again)
	}
	var first []byte
	for range 2 {
		o := look(t, browser.Job{Spec: sp})
		o.want(t, browser.Pass)
		for _, v := range o.Views {
			picture := o.files[v.Screenshot]
			if first == nil {
				first = picture
			}
			if len(picture) == 0 || !bytes.Equal(first, picture) {
				t.Fatalf("the picture %q, of %d bytes, is not like the first", v.Screenshot, len(picture))
			}
		}
	}
}
