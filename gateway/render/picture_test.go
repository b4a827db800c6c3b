package render

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render/rendertest"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/golden"
	"github.com/ramus-dev/ramus/tasks/browser"
)

var (
	desktop = browser.View{Viewport: browser.Desktop, Verdict: browser.Pass, Reason: "3 steps and the page at the end"}
	mobile  = browser.View{Viewport: browser.Mobile, Verdict: browser.Pass, Reason: "3 steps and the page at the end"}
)

// red is a view in which a step failed.
func red(v browser.View, step int, why string) browser.View {
	v.Verdict, v.Reason, v.Steps = browser.Fail, why, nil
	for i := range step {
		v.Steps = append(v.Steps, browser.StepResult{Do: "click", Target: "#add", OK: i+1 < step})
	}
	return v
}

// inOrder names pictures as VIEWPORT/FILE of their check.
func inOrder(list []Picture) (names []string) {
	for _, p := range list {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(p.File.Name, BrowserFiles), ".png"))
	}
	return names
}

// someLooks is a run with a check that failed on a phone, one that changed, and one that is well.
func someLooks() record.Manifest {
	m := done()
	m.Head = "b2"
	m.Files = slices.DeleteFunc(m.Files, func(f record.ManifestFile) bool { return strings.HasPrefix(f.Name, "artifacts/") })
	rendertest.AddCheck(&m, "about", desktop, mobile)
	rendertest.AddComparison(&m, rendertest.AddCheck(&m, "list", desktop, mobile), 0.032, 0)
	rendertest.AddComparison(&m, rendertest.AddCheck(&m, "todo", desktop,
		red(mobile, 3, "step 3, click \"#add\": nothing matches it within 10 s")), 0.0001, 0.41)
	m.Verdict = record.VerdictFailed
	return m
}

func TestPictures(t *testing.T) {
	m := someLooks()
	shown, rest := Pictures(&m)
	want := []string{"003-todo/mobile/step-03", "002-list/desktop/triptych", "003-todo/desktop/triptych",
		"003-todo/mobile/triptych", "001-about/desktop/screenshot"}
	if got := inOrder(shown); !slices.Equal(got, want) {
		t.Errorf("shown %q, want %q", got, want)
	}
	want = []string{"001-about/mobile/screenshot", "002-list/mobile/screenshot", "002-list/desktop/screenshot",
		"003-todo/desktop/screenshot", "003-todo/mobile/screenshot"}
	if got := inOrder(rest); !slices.Equal(got, want) {
		t.Errorf("the rest is %q, want %q", got, want)
	}
	var captions []string
	for _, p := range shown {
		captions = append(captions, p.Caption(OneLine))
	}
	golden.Compare(t, "pictures-captions.txt", strings.Join(captions, "\n")+"\n")
	for i, p := range shown {
		if name := PictureName(p, i+1, "C01-1700.0001"); i == 0 && name != "todo-mobile-1__C01-1700.0001.png" {
			t.Error(name)
		}
	}
}

// TestFilms shows films where pictures leave room, those of failures first.
func TestFilms(t *testing.T) {
	m := record.Manifest{Head: "b2"}
	film := func(check int, view int, size int64) {
		v := &m.Browser[check].Views[view]
		v.Video = fmt.Sprintf("%03d/%s/video.webm", check, v.Viewport.Name)
		m.Files = append(m.Files, record.ManifestFile{Name: BrowserFiles + v.Video, Size: size, Type: "video/webm"})
	}
	rendertest.AddCheck(&m, "about", desktop)
	rendertest.AddCheck(&m, "todo", desktop, red(mobile, 1, "no"))
	film(0, 0, 1<<20)
	film(1, 0, 30<<20)
	film(1, 1, 2<<20)
	shown, _ := Pictures(&m)
	films, rest := Films(&m, shown[:2])
	if got := inOrder(films); !slices.Equal(got, []string{"001/mobile/video.webm", "000/desktop/video.webm"}) {
		t.Errorf("%d pictures and the films %q", len(shown), got)
	}
	if got := inOrder(rest); !slices.Equal(got, []string{"001/desktop/video.webm"}) {
		t.Errorf("the rest is %q", got)
	}
	if got, name := films[0].Caption(OneLine), PictureName(films[0], 4,
		"C01-1700.0001"); got != "todo at mobile (390×844): FAIL, film" || name != "todo-mobile-4__C01-1700.0001.webm" {
		t.Errorf("%q, %q", got, name)
	}
	shown = append(shown, shown...)[:5]
	if films, rest := Films(&m, shown); len(films) != 0 || len(rest) != 3 {
		t.Errorf("%d films next to %d pictures", len(films), len(shown))
	}
}

// TestPicturesAreBounded leaves out what is too large, what there is no file of, and what an earlier check of the
// same name took.
func TestPicturesAreBounded(t *testing.T) {
	size := func(sizes ...int64) (shown, rest int) {
		m := record.Manifest{}
		for i, n := range sizes {
			c := rendertest.AddCheck(&m, fmt.Sprint("c", i), desktop)
			for j := range m.Files {
				if m.Files[j].Name == BrowserFiles+c.Views[0].Screenshot {
					m.Files[j].Size = n
				}
			}
		}
		a, b := Pictures(&m)
		return len(a), len(b)
	}
	for _, x := range []struct {
		sizes       []int64
		shown, rest int
	}{
		{nil, 0, 0},
		{[]int64{MaxPicture, MaxPicture + 1, 0, 1}, 2, 2},
		{[]int64{MaxPicture, MaxPicture, MaxPicture, MaxPicture, 1}, 4, 1},
		{slices.Repeat([]int64{9}, 12), 5, 7},
	} {
		if shown, rest := size(x.sizes...); shown != x.shown || rest != x.rest {
			t.Errorf("%v: %d shown, %d left", x.sizes, shown, rest)
		}
	}
	m := record.Manifest{Head: "b2"}
	rendertest.AddCheck(&m, "todo", red(desktop, 1, "no"))
	rendertest.AddCheck(&m, "todo", desktop)
	m.Browser[1].Views[0].Screenshot = "../../evidence/changes.diff"
	m.Files = append(m.Files, record.ManifestFile{Name: "evidence/changes.diff", Size: 1, Type: "image/png"},
		record.ManifestFile{Name: BrowserFiles + "002-todo/desktop/page.svg", Size: 1, Type: "image/svg+xml"})
	if shown, rest := Pictures(&m); len(shown)+len(rest) != 0 {
		t.Errorf("%+v %+v", shown, rest)
	}
}

func TestLooked(t *testing.T) {
	m := record.Manifest{Head: "b2"}
	well := rendertest.AddCheck(&m, "a", desktop, mobile)
	same := *rendertest.AddCheck(&m, "b", desktop, mobile)
	rendertest.AddComparison(&m, &same, 0, 0)
	all := *rendertest.AddCheck(&m, "c", desktop, mobile)
	rendertest.AddComparison(&m, &all, 0.0321, 0.0319)
	some := *rendertest.AddCheck(&m, "d", desktop, mobile)
	rendertest.AddComparison(&m, &some, 0.5, 0.0002)
	bad := *rendertest.AddCheck(&m, "e", desktop, red(mobile, 3, "step 3 failed."))
	both := *rendertest.AddCheck(&m, "f", red(desktop, 1, "step 1 failed"), red(mobile, 1, "step 1 failed"))
	over := *rendertest.AddCheck(&m, "g", desktop)
	rendertest.AddComparison(&m, &over, 0.2)
	over.Verdict, over.Reason = browser.Fail, "20 % of the pixels changed, at most 1 % may"
	old := *rendertest.AddCheck(&m, "h", desktop)
	old.Commit = "a1"
	for _, x := range []struct {
		check browser.Check
		want  string
	}{
		{*well, "PASS at desktop and mobile"},
		{same, "PASS at desktop and mobile; nothing changed"},
		{all, "PASS at desktop and mobile; 3.2 % changed"},
		{some, "PASS at desktop and mobile; changed 50 % at desktop and less than 0.1 % at mobile"},
		{bad, "FAIL at mobile: step 3 failed; PASS at desktop"},
		{both, "FAIL at desktop and mobile: step 1 failed"},
		{over, "FAIL: 20 % of the pixels changed, at most 1 % may; PASS at desktop; 20 % changed"},
		{old, "PASS at desktop; before the last change"},
		{browser.Check{Name: "dead", Verdict: browser.Fail, Reason: "nothing listens at port 5173"},
			"FAIL: nothing listens at port 5173"},
		{browser.Check{Name: "none", Verdict: browser.Unverified}, "UNVERIFIED"},
	} {
		if got := writing(InlineText).looked(&m, x.check); got != x.want {
			t.Errorf("%s: %q, want %q", x.check.Name, got, x.want)
		}
	}
	for share, want := range map[float64]string{0: "0 %", -1: "0 %", math.NaN(): "0 %", 1e-9: "less than 0.1 %",
		0.001: "0.1 %", 0.0994: "9.9 %", 0.0996: "10 %", 0.5: "50 %", 0.9999: "99 %", 1: "100 %", math.Inf(1): "100 %"} {
		if got := Percent(share); got != want {
			t.Errorf("%v: %q, want %q", share, got, want)
		}
	}
}

// someLinks make links to a run's files.
func someLinks() PictureLinks {
	return PictureLinks{File: pageOf,
		Trace: func(name string) string { return "https://ramus.example/trace/index.html?trace=" + pageOf(name) }}
}

func TestRenderPictures(t *testing.T) {
	m := someLooks()
	shown, rest := Pictures(&m)
	golden.Compare(t, "pictures-shown.txt", ShownPictures(shown, rest, Traces(&m), someLinks())+"\n")
	linked := LinkedPictures("Slack did not take the pictures.", append(shown, rest...), Traces(&m), someLinks())
	withinLimits(t, linked)
	golden.Compare(t, "pictures-linked.json", shownText(t, linked))
	result := Result{Manifest: m, Policy: through, Page: page, Links: pageOf}.Message()
	withinLimits(t, result)
	golden.Compare(t, "result-browser.json", shownText(t, result))
}

// shownText is shown, where shown are pictures.
func shownText(t *testing.T, m slack.Message) string { t.Helper(); return shown(t, m) }

// looks adds checks whose words are all of strangers.
func (s strange) looks(m *record.Manifest, text func() string) {
	m.Head = "b2"
	for range s.IntN(4) {
		d, p := desktop, red(mobile, 1+s.IntN(3), text())
		d.Viewport.Name, p.Viewport.Name = text(), text()
		c := rendertest.AddCheck(m, text(), d, p)
		rendertest.AddComparison(m, c, s.Float64(), s.Float64()/100)
		c.Reason, c.Commit = text(), text()
	}
}

// The words of pages, repositories and the browser are text.
func TestPicturesHostile(t *testing.T) {
	for seed := range 15 {
		s := strange{rand.New(rand.NewPCG(uint64(seed), 5))}
		m := s.manifest()
		s.looks(&m, s.text)
		withinLimits(t, Result{Manifest: m, Policy: through, Page: page, Links: pageOf}.Message())
		shown, rest := Pictures(&m)
		if len(shown)+len(rest)+len(Traces(&m)) == 0 {
			continue
		}
		withinLimits(t, LinkedPictures("", append(shown, rest...), Traces(&m), someLinks()))
		text := ShownPictures(shown, rest, Traces(&m), someLinks())
		if n := width(text); n > 4000 {
			t.Errorf("%d characters", n)
		}
		if left := strings.ContainsAny(linked.ReplaceAllString(text, ""), "<>"); left {
			t.Errorf("%q is markup", text)
		}
		for i, p := range shown {
			if name := PictureName(p, i, "x-1.2"); strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(name) > 120 {
				t.Errorf("%q", name)
			}
		}
	}
}
