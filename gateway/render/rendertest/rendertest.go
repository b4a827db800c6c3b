// Package rendertest makes manifests for tests.
package rendertest

import (
	"fmt"
	"github.com/ramus-dev/ramus/executor/record"
	"slices"
	"strings"
)

// browserFiles begins the names of the files of checks by a browser.
const browserFiles = "artifacts/" + record.BrowserFolder + "/"

// AddCheck adds a check by a browser to a manifest, with all files that it names. The files of a view have the names that
// they have in a run's evidence.
func AddCheck(m *record.Manifest, name string, views ...record.BrowserView) *record.BrowserCheck {
	dir := fmt.Sprintf("%03d-%s", len(m.Browser)+1, name)
	c := record.BrowserCheck{Name: name, Verdict: record.BrowserPass, Reason: "all is well", Commit: string(m.Head)}
	keep := func(file, media string, size int64) string {
		m.Files = append(m.Files, record.ManifestFile{Name: browserFiles + file, Size: size, Type: media})
		return file
	}
	for _, v := range views {
		at := dir + "/" + v.Viewport.Name + "/"
		v.Screenshot, v.Trace = keep(at+"screenshot.png", "image/png", 60_000),
			keep(at+"trace.zip", "application/zip", 90_000)
		keep(at+"network.har", "application/json", 5_000)
		v.Steps = slices.Clone(v.Steps)
		for i, s := range v.Steps {
			if !s.OK {
				v.Steps[i].Screenshot = keep(at+fmt.Sprintf("step-%02d.png", i+1), "image/png", 50_000)
			}
		}
		if v.Verdict != record.BrowserPass {
			c.Verdict, c.Reason = v.Verdict, v.Reason
		}
		c.Views = append(c.Views, v)
	}
	m.Browser = append(m.Browser, c)
	return &m.Browser[len(m.Browser)-1]
}

// AddComparison adds a comparison of a check with its base. changed has the share of changed pixels of each view.
func AddComparison(m *record.Manifest, c *record.BrowserCheck, changed ...float64) {
	check := *c
	check.Compare = &record.BrowserComparison{Base: "main", Verdict: record.BrowserPass}
	for i, share := range changed {
		d := record.BrowserDiff{Viewport: c.Views[i].Viewport.Name, Changed: share}
		if share > 0 {
			d.Picture = strings.TrimSuffix(c.Views[i].Screenshot, "screenshot.png") + "triptych.png"
			m.Files = append(m.Files, record.ManifestFile{Name: browserFiles + d.Picture, Size: 120_000, Type: "image/png"})
		}
		check.Compare.Views = append(check.Compare.Views, d)
	}
	*c = check
}
