package web_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/webbuild/bundle"
)

// measure is a measured value with its budget, in its unit.
type measure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Most  float64 `json:"most"`
	Unit  string  `json:"unit"`
}

// budgets are the measures of a run.
type budgets struct {
	t    *testing.T
	list []measure
}

func (b *budgets) add(name string, value, most float64, unit string) {
	b.t.Helper()
	sign := "  "
	if value > most {
		sign = "! "
		b.t.Errorf("%s: %.3g %s, want at most %.3g", name, value, unit, most)
	}
	b.list = append(b.list, measure{name, value, most, unit})
	fmt.Printf("%s%-58s %10.3g of %6.3g %s\n", sign, name, value, most, unit)
}

// TestWebBudgets measures the pages, and fails if one is over its budget. It runs as `make bench-web`, because its
// times mean nothing while other tests run. RAMUS_BINARY is a ramus with the scripts of its pages. bin/bench-web.json
// gets the measures.
func TestWebBudgets(t *testing.T) {
	if os.Getenv("RAMUS_BENCH") != "web" || os.Getenv("RAMUS_BINARY") == "" {
		t.Skip("only with make bench-web")
	}
	b := &budgets{t: t}
	b.files()
	w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
	w.fill(500)
	browser := webtest.Start(t)
	b.loads(w, browser)
	b.nodes(w)
	b.tabs(w)
	b.changes(open(t, ada, nil))
	b.output(talker(t, ""), browser)
	b.timeline(history(t, 1000), browser)
	s := story(t, site(t, ""))
	b.streams(s)
	b.terminal(s)
	b.long(s.Site)
	text, err := json.MarshalIndent(b.list, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "bin", "bench-web.json")
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// files measures the files that every page loads.
func (b *budgets) files() {
	out, err := bundle.Build(".")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, x := range []struct {
		name string
		most float64
	}{{"app.js", 12}, {"past.js", 5}, {"app.css", 14}, {"term.js", 110}} {
		size, ok := out.Manifest.Sizes[x.name]
		if !ok {
			b.t.Errorf("there is no %s, which has a budget", x.name)
		}
		b.add(x.name+" after gzip", float64(size)/1024, x.most, "KiB")
	}
}

// webVitals are the Web Vitals of a page. LCP is in milliseconds.
type webVitals struct{ LCP, CLS float64 }

// loads loads pages five times over a slow network, by a slow processor, without a cache.
func (b *budgets) loads(w *world, browser *webtest.Browser) {
	p := browser.Open(nil)
	p.Look(390, 844, "light")
	p.Watch(vitals)
	for _, path := range []string{"/dashboard", "/workspaces", "/workspaces/run-brave-otter",
		"/workspaces/run-brave-otter/runs/RUN"} {
		var paints, shifts []float64
		for range 5 {
			p.Throttle(4, 1_600_000, 150)
			p.Forget()
			p.Go(w.server.URL + w.path(path))
			p.Wait(`__vitals.lcp > 0 && document.documentElement.dataset.connected === 'yes'`)
			var v webVitals
			p.Eval(`__vitals`, &v)
			paints, shifts = append(paints, v.LCP/1000), append(shifts, v.CLS)
			p.Throttle(1, 0, 0)
		}
		b.add("LCP of "+path, median(paints), 1.2, "s")
		b.add("CLS of "+path, median(shifts), 0.02, "")
	}
	if faults := p.Faults(); len(faults) > 0 {
		b.t.Error(faults)
	}
}

// changes measures the pages of changes of 300 and of 5,000 files, for commits that were not compared before, and then again.
func (b *budgets) changes(w *world) {
	w.repo("app")
	w.run("otter", record.Request{Command: &record.Command{Shell: "true"}})
	for _, x := range []struct {
		files      int
		first, top float64
	}{{300, 150, 100}, {5000, 1000, 150}} {
		var put []gitd.File
		for i := range x.files {
			put = append(put, gitd.File{Path: fmt.Sprintf("d%d/f%d.go", i%20, i), Content: []byte("package x\n\n" + numbers(0, 5+i%20))})
		}
		var first, again []float64
		for i := range 5 {
			put[0].Content = fmt.Appendf(nil, "package x // %d\n", i)
			commit := w.commit(otter, put)
			for _, times := range []*[]float64{&first, &again} {
				from := time.Now()
				if status, _, body := w.get("/workspaces/run-otter/changes?b=" + string(commit)); status != 200 {
					b.t.Fatal(status, body)
				}
				*times = append(*times, time.Since(from).Seconds()*1000)
			}
		}
		b.add(fmt.Sprintf("changes of %d files, the first time", x.files), median(first), x.first, "ms")
		b.add(fmt.Sprintf("changes of %d files, again", x.files), median(again), x.top, "ms")
	}
	b.longFile(w)
}

// longFile measures a part in the middle of a file of 200,000 changed lines.
func (b *budgets) longFile(w *world) {
	commit := w.commit(otter, []gitd.File{{Path: "long.go", Content: []byte("package x\n\n" + numbers(0, 200_000))}})
	var times []float64
	for range 5 {
		from := time.Now()
		if status, _, body := w.get("/workspaces/run-otter/changes?file=long.go&line=100000&b=" + string(commit)); status != 200 ||
			!strings.Contains(body, `-R100001"`) {
			b.t.Fatal(status, body)
		}
		times = append(times, time.Since(from).Seconds()*1000)
	}
	b.add("500 lines in a file of 200,000 changed lines", median(times), 300, "ms")
}

// output measures the page of an output of 1,000,000 lines, and searches in it.
func (b *budgets) output(w *world, browser *webtest.Browser) {
	w.run("otter", record.Request{Command: &record.Command{Shell: `seq 1000000 | sed 's/$/ of a million lines of output/; s/^777777 /a needle in the /'`}})
	times := func(path, want string) float64 {
		var list []float64
		for range 5 {
			from := time.Now()
			if status, _, body := w.get(path); status != 200 || !strings.Contains(body, want) {
				b.t.Fatal(status, body)
			}
			list = append(list, time.Since(from).Seconds()*1000)
		}
		return median(list)
	}
	from := time.Now()
	for path := "/search?q=needle"; ; {
		if _, _, body := w.get(path); strings.Contains(body, "line 777777") {
			break
		}
	}
	b.add("a search that indexes 1,000,000 lines", time.Since(from).Seconds(), 10, "s")
	b.add("search of a rare word in 1,000,000 lines", times("/search?q=needle", "<mark>needle</mark>"), 100, "ms")
	b.add("search of a word of each of 1,000,000 lines", times("/search?q=million+output", "<mark>million</mark>"), 100, "ms")
	run := w.path("/workspaces/run-otter/runs/RUN")
	b.add("line 500,000 of an output of 1,000,000", times(run+"/output?step=exec&line=500000", `id="L500000" class="shown"`), 100, "ms")
	b.add("the end of an output of 1,000,000 lines", times(run+"/output?step=exec&line=last", `id="L1000000"`), 100, "ms")
	b.add("search in one output of 1,000,000 lines", times(run+"/output?step=exec&q=a+NEEDLE", `#L777777"`), 300, "ms")

	p := browser.Open(nil)
	p.Look(1440, 900, "light")
	p.Go(w.server.URL + run + "/output?step=exec&line=500000#L500000")
	p.Wait(`document.querySelector('#L500000') && scrollY > 0`)
	b.tasks(p, "output of 1,000,000 lines", func() {
		for _, to := range []int{500_700, 501_200, 501_700, 500_300, 499_300} {
			p.Wait(fmt.Sprintf(`(() => {
				const at = document.querySelector('.part').dataset.from, by = %[1]d > Number(at) + 400 ? 300 : -300;
				scrollBy(0, by);
				return document.getElementById('L%[1]d');
			})()`, to))
		}
	})
}

// timeline measures the page of a timeline of 5,000 commands, and moves through it by the slider with a slow processor.
func (b *budgets) timeline(w *world, browser *webtest.Browser) {
	const path = "/workspaces/run-otter/timeline"
	get := func(path string) (took float64, body string) {
		from := time.Now()
		status, _, body := w.get(path)
		if took = time.Since(from).Seconds() * 1000; status != 200 || !strings.Contains(body, " of 5000") {
			b.t.Fatal(status, body)
		}
		return took, body
	}
	first, _ := get(path)
	var again []float64
	most := 0
	for i := range 15 {
		took, body := get(fmt.Sprintf("%s?n=%d", path, 1+i*347))
		again, most = append(again, took), max(most, len(parse(b.t, path, body).all))
	}
	b.add("timeline of 5,000 commands, the first time", first, 1500, "ms")
	b.add("a command of a timeline of 5,000", median(again), 100, "ms")
	b.add("elements of the timeline of 5,000 commands", float64(most), 4000, "")

	p := browser.Open(nil)
	p.Look(1440, 900, "light")
	p.Go(w.server.URL + path)
	p.Wait(`document.documentElement.dataset.connected === 'yes' && document.querySelector('.scrub.on')`)
	p.Eval(`document.querySelector('#tick').focus(); 0`, nil)
	b.tasks(p, "timeline of 5,000 commands", func() {
		for _, key := range strings.Fields("Home PageDown PageDown ArrowRight ArrowRight ArrowRight End ArrowLeft ArrowLeft PageUp ArrowLeft ArrowLeft") {
			p.Press(key)
			p.Wait(`document.querySelector('.place').dataset.place === document.querySelector('#tick').value`)
		}
	})
}

// tasks calls do with a slow processor, and measures the longest task of a page meanwhile, and its elements.
func (b *budgets) tasks(p *webtest.Page, name string, do func()) {
	p.Throttle(4, 0, 0)
	longest := p.LongestTask(do)
	p.Throttle(1, 0, 0)
	b.add("longest task of the "+name+", processor 4x slower", longest.Seconds()*1000, 50, "ms")
	_, nodes := p.Heap()
	b.add("elements of the "+name+" in a browser", float64(nodes), 4000, "")
}

// TestPartOfBudgets measures the pages of changes, outputs or timelines alone.
func TestPartOfBudgets(t *testing.T) {
	switch b := (&budgets{t: t}); os.Getenv("RAMUS_BENCH") {
	case "changes":
		b.changes(open(t, ada, nil))
	case "output":
		b.output(talker(t, ""), webtest.Start(t))
	case "timeline":
		b.timeline(history(t, 1000), webtest.Start(t))
	default:
		t.Skip("only with RAMUS_BENCH=changes, RAMUS_BENCH=output or RAMUS_BENCH=timeline")
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// nodes counts the elements of all pages.
func (b *budgets) nodes(w *world) {
	most, where := 0, ""
	for _, path := range paths(500) {
		_, _, body := w.get(w.path(path))
		if n := len(parse(b.t, path, body).all); n > most {
			most, where = n, path
		}
	}
	b.add("elements of the largest page, "+where, float64(most), 4000, "")
}

// tabsOf is the number of idle tabs of each person.
const tabsOf = 25

// tabs opens 500 pages of 20 people, and measures their memory and processor time in the server while nothing happens. The pages are
// in a process of their own.
func (b *budgets) tabs(w *world) {
	const people = 20
	var servers []string
	for i := range people {
		who := ada
		who.Subject = fmt.Sprintf("github:%d", 100+i)
		server := httptest.NewServer(w.mux.Handler(w.table, &who))
		defer server.Close()
		servers = append(servers, server.URL)
	}
	used := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse+m.StackInuse) / (1 << 20)
	}
	before := used()
	cmd := exec.CommandContext(b.t.Context(), os.Args[0], "-test.run=^TestIdleTabs$")
	cmd.Env = append(os.Environ(), "RAMUS_BENCH_TABS="+strings.Join(servers, " "))
	cmd.Stderr = os.Stderr
	end, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	defer func() { end.Close(); _ = cmd.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != tabsOpen {
		b.t.Fatalf("the tabs do not open: %q %v", line, err)
	}
	b.add("memory of 500 idle tabs", used()-before, 60, "MiB")
	const rest = 10 * time.Second
	from := processor(b.t)
	time.Sleep(rest) // the measure is of a time in which nothing happens
	b.add("processor of 500 idle tabs", 100*float64(processor(b.t)-from)/float64(rest), 1, "% of a core")
}

// tabsOpen is the line that TestIdleTabs prints when all tabs are open.
const tabsOpen = "all tabs are open\n"

// TestIdleTabs is the process with the tabs of tabs. It opens them at the servers of RAMUS_BENCH_TABS, and answers
// their pings until its input ends.
func TestIdleTabs(t *testing.T) {
	servers := strings.Fields(os.Getenv("RAMUS_BENCH_TABS"))
	if len(servers) == 0 {
		t.Skip("only with make bench-web")
	}
	var reading sync.WaitGroup
	var conns []*websocket.Conn
	for _, server := range servers {
		for range tabsOf {
			conn := openTab(t, server)
			conns = append(conns, conn)
			reading.Go(func() {
				for {
					if _, _, err := conn.ReadMessage(); err != nil {
						return
					}
				}
			})
		}
	}
	fmt.Print(tabsOpen)
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, conn := range conns {
		conn.Close()
	}
	reading.Wait()
}

// openTab subscribes to the dashboard as a page does.
func openTab(t *testing.T, server string) *websocket.Conn {
	d := websocket.Dialer{Subprotocols: []string{live.Protocol}, EnableCompression: true}
	conn, resp, err := d.Dial("ws"+strings.TrimPrefix(server, "http")+"/live", http.Header{"Origin": {server}})
	if err != nil {
		t.Fatalf("%v %v", err, resp)
	}
	if err := conn.WriteJSON(map[string]any{"sub": "/dashboard", "have": map[string]string{}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.ReadMessage(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// processor returns the time of processors that this process has used.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// streams types and presses while an agent says 20 words a second, and then while nothing happens.
func (b *budgets) streams(s *webtest.Story) {
	p := s.Page
	p.Watch(vitals)
	s.SignIn()
	s.Import()
	s.Begin()
	s.Say("slowly 45 " + strings.Repeat("and one more word, ", 100))
	const said = `[...document.querySelectorAll('[data-live=talk] .entry.words')].map(e => e.textContent)
		.join(' ').split(' ').length`
	p.Wait(said + ` > 20`)
	p.Throttle(4, 0, 0)
	while := interact(p)
	var words int
	if p.Eval(said, &words); words >= 400 {
		b.t.Error("the agent was done before all was typed")
	}
	b.add(fmt.Sprintf("INP while words stream (%d interactions)", while.Count), while.INP(), 100, "ms")
	fmt.Print(while)
	p.Wait(`document.querySelector('[data-live=talk] .entry.end')`)
	rest := interact(p)
	b.add(fmt.Sprintf("INP while nothing streams (%d interactions)", rest.Count), rest.INP(), 100, "ms")
	fmt.Print(rest)
	p.Throttle(1, 0, 0)
	bytes, nodes := p.Heap()
	b.add("heap of the tab", float64(bytes)/(1<<20), 80, "MiB")
	b.add("elements of the conversation", float64(nodes), 4000, "")
}

// turn is a script that waits until the browser has done its pending work.
const turn = `() => new Promise(r => {
	const c = new MessageChannel();
	c.port1.onmessage = r;
	c.port2.postMessage(0);
})`

// echo is the time from a key to its echo in a terminal, by the 95th percentile of 60.
const echo = `(async () => {
	const all = [], turn = ` + turn + `;
	for (let i = 0; i < 60; i++) {
		const at = __term.at, from = performance.now();
		__term.type('x');
		while (__term.at === at) await turn();
		all.push(performance.now() - from);
	}
	all.sort((a, b) => a - b);
	return all[56];
})()`

// resume is the time that a viewer needs to go on after its connection is cut.
const resume = `(async () => {
	const all = [], turn = ` + turn + `;
	for (let i = 0; i < 5; i++) {
		__term.socket.close();
		while (__term.socket) await turn();
		const from = performance.now(), at = __term.at;
		await __term.open(WORKSPACE);
		__term.type('y');
		while (__term.at === at) await turn();
		all.push(performance.now() - from);
	}
	all.sort((a, b) => a - b);
	return all[2];
})()`

// terminal measures a terminal in the page of the story.
func (b *budgets) terminal(s *webtest.Story) {
	s.OpenTerminal()
	var took float64
	s.Page.Eval(echo, &took)
	b.add("key to echo, 95th percentile", took, 15, "ms")
	s.Page.Eval(strings.Replace(resume, "WORKSPACE", webtest.Quote("run-"+s.Name), 1), &took)
	b.add("terminal after a cut connection", took, 300, "ms")
}

var runLink = regexp.MustCompile(`/workspaces/run-long-heron/runs/[0-9a-z-]+`)

// long measures the page of a run with 2,000 events.
func (b *budgets) long(s *webtest.Site) {
	s.Do(s.Ramus, "agent", "long-heron", "--repo", "sample", "--agent", "coder", "--output=false", "--", "flood 2000")
	jar, err := cookiejar.New(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: time.Minute}
	get := func(url string) string {
		r, err := http.NewRequestWithContext(b.t.Context(), "GET", url, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		resp, err := client.Do(r)
		if err != nil {
			b.t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			b.t.Fatalf("%s: %s %v\n%s", url, resp.Status, err, body)
		}
		return string(body)
	}
	get(regexp.MustCompile(`http\S+`).FindString(s.Do(s.Ramus, "open")))
	path := runLink.FindString(get(s.URL + "/workspaces/run-long-heron"))
	if path == "" {
		b.t.Fatal("the workspace has no link to its run")
	}
	for _, x := range []struct{ name, path string }{{"page of a run with 2,000 events", path},
		{"page of the workspace of that run", "/workspaces/run-long-heron"}} {
		var times []float64
		body := ""
		for range 15 {
			from := time.Now()
			body = get(s.URL + x.path)
			times = append(times, time.Since(from).Seconds()*1000)
		}
		b.add(x.name, median(times), 50, "ms")
		b.add("elements of the "+x.name, float64(len(parse(b.t, x.path, body).all)), 4000, "")
	}
}
