package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// strip is a film strip, pictures of one page at both sizes.
type strip struct {
	dir   string
	names []string // of the files, in order
	count int
}

// sizes are those of the pictures.
var sizes = []struct {
	width, height int
	theme         string
}{{390, 844, "dark"}, {1440, 900, "light"}}

// take takes pictures of a page at both sizes. A page that is on a phone already is taken as it is.
func (s *strip) take(p *webtest.Page, name string) {
	s.count++
	shoot := func(width int) {
		file := fmt.Sprintf("%02d-%s-%d.png", s.count, name, width)
		p.Shot(filepath.Join(s.dir, file), false)
		s.names = append(s.names, file)
	}
	if strings.HasPrefix(name, "phone") {
		shoot(390)
		return
	}
	for _, z := range sizes {
		p.Look(z.width, z.height, z.theme)
		shoot(z.width)
	}
}

// head begins index.html.
const head = `<!doctype html>
<meta charset=utf-8>
<title>A day at the pages of ramus</title>
<style>
body { background: #222; color: #ddd; font: 14px sans-serif; display: flex; flex-wrap: wrap; gap: 16px }
figure { margin: 0 }
img { height: 420px; display: block }
</style>
`

// write writes index.html, which shows all pictures.
func (s *strip) write() error {
	var b strings.Builder
	b.WriteString(head)
	for _, name := range s.names {
		name = html.EscapeString(name)
		fmt.Fprintf(&b, "<figure><img src=%q alt=%q><figcaption>%s</figcaption></figure>\n", name, name, name)
	}
	return os.WriteFile(filepath.Join(s.dir, "index.html"), []byte(b.String()), 0o644)
}
