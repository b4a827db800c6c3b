package gateway

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
)

// browserFiles is what the names of files of checks by a browser begin with in a
// manifest; the names in the checks are relative to it.
const browserFiles = "artifacts/browser/"

// Bounds of the pictures that are shown in a thread or on a pull request: more
// than a reader looks at would hide the ones that matter.
const (
	maxPictures      = 5
	maxPicture       = 8 << 20
	maxPicturesBytes = 25 << 20 // together
)

// picture is a picture of a page that a check by a browser took. Its words come
// from the repository and from the page: they are strangers'.
type picture struct {
	file     record.ManifestFile
	check    string
	viewport string
	width    int
	height   int
	verdict  string
	step     int     // of a step: its number from 1; 0: the page at the end
	triptych bool    // before, after and what differs, side by side
	changed  float64 // of a triptych: the share of pixels
}

// caption says what a picture shows, on one line. show writes words of strangers.
func (p picture) caption(show writing) string {
	at := fmt.Sprintf("%s at %s (%d×%d): ", show(p.check, 80), show(p.viewport, 40), p.width, p.height)
	switch {
	case p.triptych:
		return at + "before and after, " + percent(p.changed) + " changed"
	case p.step > 0:
		return at + fmt.Sprintf("%s, step %d", p.verdict, p.step)
	}
	return at + p.verdict
}

// What a picture is, in the order in which pictures are shown: what is wrong, what
// is new, what is well, and what another picture shows already.
const (
	rankFailed = iota
	rankTriptych
	rankWell
	rankElse
)

// pictures chooses which pictures of a run are shown where there is room for a
// few, in which order; the rest is for links. Of a check that ran several times
// the last run counts; what the pictures of earlier ones show is not so any more, and they are
// in neither list. A picture that is too large to be shown is in the rest.
func pictures(m *record.Manifest) (shown, rest []picture) {
	type ranked struct {
		picture
		rank, size int // wide windows before phones
	}
	var all []ranked
	files := make(map[string]record.ManifestFile)
	for _, f := range m.Files {
		if strings.HasPrefix(f.Name, browserFiles) && strings.HasPrefix(showable(f.Type), "image/") {
			files[f.Name] = f
		}
	}
	add := func(rank, size int, name string, p picture) {
		f, ok := files[browserFiles+name]
		if !ok || name == "" {
			return
		}
		delete(files, f.Name) // each once
		p.file = f
		all = append(all, ranked{p, rank, size})
	}
	for _, c := range lastLooks(m) {
		diffs := map[string]record.BrowserDiff{}
		if c.Compare != nil {
			for _, d := range c.Compare.Views {
				diffs[d.Viewport] = d
			}
		}
		for _, v := range c.Views {
			at := picture{check: c.Name, viewport: v.Viewport.Name, width: v.Viewport.Width, height: v.Viewport.Height, verdict: string(v.Verdict)}
			size := 0
			if v.Viewport.Mobile {
				size = 1
			}
			end := rankElse
			if v.Verdict != record.BrowserPass {
				end = rankFailed
			}
			for i, s := range v.Steps {
				p := at
				p.step = i + 1
				if !s.OK && s.Screenshot != "" {
					add(rankFailed, size, s.Screenshot, p)
					end = rankElse // the page at the end is the same, or says less
				}
			}
			d, compared := diffs[v.Viewport.Name]
			if compared && d.Changed > 0 && d.Picture != "" {
				p := at
				p.triptych, p.changed = true, d.Changed
				add(rankTriptych, size, d.Picture, p)
			} else if end == rankElse && v.Verdict == record.BrowserPass {
				end = rankWell
			}
			add(end, size, v.Screenshot, at)
			for i, s := range v.Steps {
				p := at
				if p.step = i + 1; s.OK {
					add(rankElse, size, s.Screenshot, p)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Or(a.rank-b.rank, a.size-b.size) })
	var total int64
	for _, p := range all {
		n := p.file.Size
		if len(shown) == maxPictures || n <= 0 || n > maxPicture || total+n > maxPicturesBytes {
			rest = append(rest, p.picture)
			continue
		}
		total += n
		shown = append(shown, p.picture)
	}
	return shown, rest
}

// lastLooks are the checks by a browser of a run, of those with the same name the last.
func lastLooks(m *record.Manifest) (list []record.BrowserCheck) {
	for i, c := range m.Browser {
		if !slices.ContainsFunc(m.Browser[i+1:], func(d record.BrowserCheck) bool { return d.Name == c.Name && d.Spec == c.Spec }) {
			list = append(list, c)
		}
	}
	return list
}

// pictureName is what a picture's file is called where people save it. n keeps
// pictures of a run apart, and the run's id those of several runs in a thread: by
// it they are found again.
func pictureName(p picture, n int, run string) string {
	return fmt.Sprintf("%s-%s-%d__%s%s", slug(p.check), slug(p.viewport), n, fileSafe(run), pictureExt(p))
}

// pictureExt goes by what the file is, not by what it is called.
func pictureExt(p picture) string {
	if kind := path.Base(p.file.Type); kind != "jpeg" {
		return "." + fileSafe(kind)
	}
	return ".jpg"
}

// slug is a short name of small letters and digits.
func slug(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, head(s, 40))
	for strings.Contains(s, "--") {
		s = strings.ReplaceAll(s, "--", "-")
	}
	if s = strings.Trim(s[:min(len(s), 40)], "-"); s == "" {
		return "page"
	}
	return s
}

// fileSafe keeps of a name what any place takes in the name of a file.
func fileSafe(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, s)
}

// percent shows a share, as exact as people care.
func percent(share float64) string {
	switch p := share * 100; {
	case math.IsNaN(p) || p <= 0:
		return "0 %"
	case p < 0.1:
		return "less than 0.1 %"
	case p < 9.95:
		return fmt.Sprintf("%.1f %%", p)
	case p < 100:
		return fmt.Sprintf("%.0f %%", min(p, 99))
	}
	return "100 %"
}
