package render

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
)

// BrowserFiles begins the names of the files of checks by a browser in a manifest. The names in the checks are relative to it.
const BrowserFiles = "artifacts/browser/"

// Bounds of the pictures in a thread or a pull request, with the films in a thread. More of them would hide the important ones.
const (
	maxPictures      = 5
	MaxPicture       = 8 << 20
	MaxFilm          = maxPicturesBytes
	maxPicturesBytes = 25 << 20 // together
)

// Picture is a picture of a page by a check by a browser, or a film. Its texts come from the repository and the page and are untrusted.
type Picture struct {
	File     record.ManifestFile
	Check    string
	Viewport string
	width    int
	height   int
	verdict  string
	step     int     // the number of a step, from 1, or 0 for the page at the end
	triptych bool    // before, after and the difference side by side
	film     bool    // of the whole check
	changed  float64 // of a triptych, the share of pixels
}

// Caption returns the content of a picture on one line. show escapes untrusted text.
func (p Picture) Caption(show writing) string {
	at := fmt.Sprintf("%s at %s (%d×%d): ", show(p.Check, 80), show(p.Viewport, 40), p.width, p.height)
	switch {
	case p.film:
		return at + p.verdict + ", film"
	case p.triptych:
		return at + "before and after, " + Percent(p.changed) + " changed"
	case p.step > 0:
		return at + fmt.Sprintf("%s, step %d", p.verdict, p.step)
	}
	return at + p.verdict
}

// The ranks of pictures, in the order in which they are shown. Failures come first, then differences, successes, and repetitions.
const (
	rankFailed = iota
	rankTriptych
	rankWell
	rankElse
)

// Pictures returns the pictures of a run to show where there is room for a few, in their order, and the rest for links. Of a check that
// ran several times the last run counts. Pictures of earlier ones are outdated and in neither list. A picture that is too large to be
// shown is in the rest.
func Pictures(m *record.Manifest) (shown, rest []Picture) {
	type ranked struct {
		Picture
		rank, size int // of the window, large before small
	}
	var all []ranked
	files := make(map[string]record.ManifestFile)
	for _, f := range m.Files {
		if strings.HasPrefix(f.Name, BrowserFiles) && strings.HasPrefix(Showable(f.Type), "image/") {
			files[f.Name] = f
		}
	}
	add := func(rank, size int, name string, p Picture) {
		f, ok := files[BrowserFiles+name]
		if !ok || name == "" {
			return
		}
		delete(files, f.Name) // each file once
		p.File = f
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
			at := Picture{Check: c.Name, Viewport: v.Viewport.Name, width: v.Viewport.Width, height: v.Viewport.Height,
				verdict: string(v.Verdict)}
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
					end = rankElse // the page at the end shows the same or less
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
		n := p.File.Size
		if len(shown) == maxPictures || n <= 0 || n > MaxPicture || total+n > maxPicturesBytes {
			rest = append(rest, p.Picture)
			continue
		}
		total += n
		shown = append(shown, p.Picture)
	}
	return shown, rest
}

// Films returns the films of a run to show next to its shown pictures, as far as there is room, and the rest for links. Films of
// views that failed come first.
func Films(m *record.Manifest, shown []Picture) (films, rest []Picture) {
	files := make(map[string]record.ManifestFile)
	for _, f := range m.Files {
		if strings.HasPrefix(f.Name, BrowserFiles) && strings.HasPrefix(Showable(f.Type), "video/") {
			files[f.Name] = f
		}
	}
	room := int64(maxPicturesBytes)
	for _, p := range shown {
		room -= p.File.Size
	}
	for _, bad := range []bool{true, false} {
		for _, c := range lastLooks(m) {
			for _, v := range c.Views {
				f, ok := files[BrowserFiles+v.Video]
				if !ok || (v.Verdict != record.BrowserPass) != bad {
					continue
				}
				delete(files, f.Name) // each file once
				p := Picture{File: f, Check: c.Name, Viewport: v.Viewport.Name, width: v.Viewport.Width,
					height: v.Viewport.Height, verdict: string(v.Verdict), film: true}
				if len(shown)+len(films) >= maxPictures || f.Size <= 0 || f.Size > room {
					rest = append(rest, p)
					continue
				}
				room -= f.Size
				films = append(films, p)
			}
		}
	}
	return films, rest
}

// MaxSize bounds the bytes of a picture or film that is shown.
func (p Picture) MaxSize() int64 {
	if p.film {
		return MaxFilm
	}
	return MaxPicture
}

// lastLooks returns the last check by a browser of each name.
func lastLooks(m *record.Manifest) (list []record.BrowserCheck) {
	for i, c := range m.Browser {
		if !slices.ContainsFunc(m.Browser[i+1:], func(d record.BrowserCheck) bool { return d.Name == c.Name && d.Spec == c.Spec }) {
			list = append(list, c)
		}
	}
	return list
}

// PictureName returns the name of a picture's file for people who save it. n tells pictures of a run apart, and the run's id tells runs
// of a thread apart. ramus finds its pictures by the id.
func PictureName(p Picture, n int, run string) string {
	return fmt.Sprintf("%s-%s-%d__%s%s", Slug(p.Check), Slug(p.Viewport), n, fileSafe(run), PictureExt(p))
}

// PictureExt returns the extension for the picture's content, with any name of the file.
func PictureExt(p Picture) string {
	if kind := path.Base(p.File.Type); kind != "jpeg" {
		return "." + fileSafe(kind)
	}
	return ".jpg"
}

// Slug returns a short name of lower-case letters and digits.
func Slug(s string) string {
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

// fileSafe returns the characters of a name that are valid in names of files everywhere.
func fileSafe(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, s)
}

// Percent returns a share in percent, rounded for people.
func Percent(share float64) string {
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
