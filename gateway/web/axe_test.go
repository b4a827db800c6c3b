package web_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// axeFile is the script of axe-core, which `npm ci` installs.
const axeFile = "node_modules/axe-core/axe.min.js"

// runAxe runs axe by the rules of WCAG 2.2 AA, and returns its violations as texts.
const runAxe = `axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']}).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ': ' + n.target.join(' ') + ': ' + n.failureSummary)))`

// TestAccessible looks at each page with Chromium: by axe, for violations of the policy, and for sideways scrolling at 320 px. With
// RAMUS_SHOTS=DIR it writes a picture of each.
func TestAccessible(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("cannot run here: `npm ci` in gateway/web brings axe-core")
	}
	b := webtest.Start(t)
	sizes, themes, states := [][2]int{{1440, 900}, {390, 844}}, []string{"light", "dark"}, []int{-1, 0}
	if os.Getenv("RAMUS_TEST") == "full" {
		states = append(states, 60)
	}
	for _, rows := range states {
		w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
		if rows >= 0 {
			w.fill(rows)
		}
		p := b.Open(map[string]string{"Accept": "text/html"})
		for _, path := range paths(rows) {
			for _, size := range sizes {
				for _, theme := range themes {
					name := fmt.Sprintf("%d rows, %s, %d px, %s", rows, path, size[0], theme)
					p.Look(size[0], size[1], theme)
					p.Go(w.server.URL + w.path(path))
					if faults := p.Faults(); len(faults) > 0 {
						t.Errorf("%s: %s", name, strings.Join(faults, "; "))
					}
					if dir := os.Getenv("RAMUS_SHOTS"); dir != "" {
						p.Shot(filepath.Join(dir, strings.NewReplacer("/", "_", "?", "_", "RUN", "run").Replace(fmt.Sprintf("%d%s-%d-%s.png", rows, path, size[0], theme))), false)
					}
					var found []string
					p.Eval(string(axe)+"\n;0", nil)
					p.Eval(runAxe, &found)
					for _, v := range found {
						t.Errorf("%s: %s", name, v)
					}
				}
			}
			p.Look(320, 640, "light")
			p.Go(w.server.URL + w.path(path))
			var wide []string
			p.Eval(`document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map(e => e.tagName + '.' + e.className)`, &wide)
			if len(wide) > 0 {
				t.Errorf("%d rows, %s is wider than 320 px: %v", rows, path, wide)
			}
		}
	}
}
