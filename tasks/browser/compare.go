package browser

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
)

const (
	// maxPicture bounds a picture, and the area that two pictures cover together, in pixels.
	maxPicture = 40_000_000
	// maxTriptych bounds the triptych, in pixels. A chat and a pull request show it smaller anyway, and the server has
	// it in memory.
	maxTriptych = 16_000_000
	// maxSide bounds the sides of a picture, in pixels. It is twice the limit of Chromium.
	maxSide     = 32_768
	maxBoxes    = 20
	maxAria     = 1 << 20  // bytes of an accessibility tree
	maxAriaDiff = 64 << 10 // bytes of the diff of the trees
)

// Compare returns the differences between two views of one viewport. before and after are PNG files, or nil for a
// missing picture. ariaBefore and ariaAfter are the accessibility trees as text. The triptych is a PNG, or nil if the
// pictures are equal. It has before, after, and after in light grey with the differences in red. An area that only one
// picture covers has stripes in the other. Pictures of more than 40 megapixels are not decoded, and a triptych of more
// than 16 is scaled down.
//
// The threshold is the allowed distance of two colours as people perceive it, from 0 (equal) to 1 (black and white).
// Edges of letters get no further tolerance. The same browser draws the same page byte for byte, so every difference is
// a change. With a region, the pictures are cut to it, and the boxes of the answer are those of the whole pictures.
// scale is the number of device pixels for a CSS pixel of the region.
func Compare(before, after []byte, ariaBefore, ariaAfter string, against Against, scale float64) (d Diff, triptych []byte) {
	var notes []string
	d.Aria, notes = compareText(ariaBefore, ariaAfter)
	note := func(format string, args ...any) (Diff, []byte) {
		d.Uncompared = true
		d.Note = strings.Join(append([]string{fmt.Sprintf(format, args...)}, notes...), "; ")
		return d, nil
	}
	switch {
	case before == nil && after == nil:
		return note("there are no pictures")
	case before == nil:
		return note("there is no picture of the base")
	case after == nil:
		return note("there is only a picture of the base")
	}
	d.Note = strings.Join(notes, "; ")
	if bytes.Equal(before, after) && len(against.Region) == 0 {
		return d, nil
	}
	old, err := picture(before)
	if err != nil {
		return note("cannot compare with the picture of the base: %v", err)
	}
	now, err := picture(after)
	if err != nil {
		return note("cannot compare the picture of the branch: %v", err)
	}
	var corner image.Point
	if r := against.Region; len(r) == 4 {
		at := func(n int) int { return int(math.Round(float64(n) * cmp.Or(scale, 1))) }
		part := image.Rect(at(r[0]), at(r[1]), at(r[0]+r[2]), at(r[1]+r[3]))
		if !part.Overlaps(old.Rect) && !part.Overlaps(now.Rect) {
			return note("the region is outside of the pictures, which have %d x %d and %d x %d pixels", old.Rect.Dx(),
				old.Rect.Dy(), now.Rect.Dx(), now.Rect.Dy())
		}
		corner, old, now = part.Min, cut(old, part), cut(now, part)
	}
	size := old.Rect.Union(now.Rect).Size()
	if size.X*size.Y > maxPicture {
		return note("cannot compare: the pictures cover %d x %d pixels together, which is more than %d megapixels",
			size.X, size.Y, maxPicture/1_000_000)
	}
	m := differing(old, now, size, against.Threshold)
	if m.count == 0 {
		return d, nil
	}
	d.Pixels = m.count
	d.Changed = float64(m.count) / float64(size.X*size.Y)
	d.Boxes = m.boxes()
	var out bytes.Buffer
	if err := png.Encode(&out, paint(old, now, m, d.Boxes)); err != nil {
		return note("cannot write the picture of both: %v", err)
	}
	for i := range d.Boxes {
		d.Boxes[i].X += corner.X
		d.Boxes[i].Y += corner.Y
	}
	return d, out.Bytes()
}

// cut returns a part of a picture as a picture that begins at 0, 0.
func cut(img *image.RGBA, part image.Rectangle) *image.RGBA {
	part = part.Intersect(img.Rect)
	out := image.NewRGBA(image.Rectangle{Max: part.Size()})
	draw.Draw(out, out.Rect, img, part.Min, draw.Src)
	return out
}

// picture decodes a PNG, over white where it is transparent.
func picture(file []byte) (*image.RGBA, error) {
	// The header is read first, because the decoder allocates memory by its numbers.
	c, err := png.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	switch {
	case c.Width <= 0 || c.Height <= 0:
		return nil, errors.New("it is empty")
	case c.Width > maxSide || c.Height > maxSide:
		return nil, fmt.Errorf("it has %d x %d pixels, and no side may have more than %d", c.Width, c.Height, maxSide)
	case c.Width*c.Height > maxPicture:
		return nil, fmt.Errorf("it has %d x %d pixels, which is more than %d megapixels", c.Width, c.Height,
			maxPicture/1_000_000)
	}
	switch c.ColorModel {
	case color.RGBA64Model, color.NRGBA64Model, color.Gray16Model:
		return nil, errors.New("it has 16 bits per channel, which no browser makes")
	}
	img, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	if rgba, ok := img.(*image.RGBA); ok {
		return rgba, nil // as for a PNG without alpha
	}
	rgba := image.NewRGBA(img.Bounds())
	draw.Draw(rgba, rgba.Rect, image.White, image.Point{}, draw.Src)
	draw.Draw(rgba, rgba.Rect, img, rgba.Rect.Min, draw.Over)
	return rgba, nil
}

// mask is the set of pixels that differ.
type mask struct {
	size  image.Point
	bits  []uint64 // row by row
	count int
}

func (m *mask) set(x, y int) {
	i := y*m.size.X + x
	m.bits[i/64] |= 1 << (i % 64)
	m.count++
}

func (m *mask) has(x, y int) bool {
	i := y*m.size.X + x
	return m.bits[i/64]>>(i%64)&1 == 1
}

// differing returns the differing pixels of two pictures that are aligned at the top left.
func differing(a, b *image.RGBA, size image.Point, threshold float64) *mask {
	m := &mask{size: size, bits: make([]uint64, (size.X*size.Y+63)/64)}
	if !(threshold > 0) {
		threshold = 0
	}
	limit := farthest * min(threshold, 1) * min(threshold, 1)
	both := a.Rect.Intersect(b.Rect)
	for y := range size.Y {
		for x := range size.X {
			if x >= both.Max.X || y >= both.Max.Y {
				if at := image.Pt(x, y); at.In(a.Rect) || at.In(b.Rect) {
					m.set(x, y)
				}
				continue
			}
			p, q := a.Pix[y*a.Stride+4*x:][:3:3], b.Pix[y*b.Stride+4*x:][:3:3]
			if p[0] == q[0] && p[1] == q[1] && p[2] == q[2] {
				continue
			}
			if distance(p, q) > limit {
				m.set(x, y)
			}
		}
	}
	return m
}

// distance returns the perceived difference of two colours. It is the sum of the squared differences in brightness and
// in the two axes of colour of YIQ (NTSC), weighted by their perception (Kotsarenko and Ramos, "Measuring perceived
// color difference using YIQ NTSC transmission color space in mobile applications", 2010).
func distance(p, q []byte) float64 {
	r := float64(p[0]) - float64(q[0])
	g := float64(p[1]) - float64(q[1])
	b := float64(p[2]) - float64(q[2])
	y := 0.29889531*r + 0.58662247*g + 0.11448223*b
	i := 0.59597799*r - 0.27417610*g - 0.32180189*b
	k := 0.21147017*r - 0.52261711*g + 0.31114694*b
	return 0.5053*y*y + 0.299*i*i + 0.1957*k*k
}

// farthest is the distance of black and white. Some colours are slightly farther apart.
var farthest = distance([]byte{0, 0, 0}, []byte{255, 255, 255})

// tile is the side of the squares in which differing pixels are collected. Parts less than two tiles apart form one
// box, as the letters of a word or the lines of a paragraph.
const tile = 8

// boxes returns the connected parts of the mask, the largest first.
func (m *mask) boxes() []Box {
	across, down := (m.size.X+tile-1)/tile, (m.size.Y+tile-1)/tile
	tiles := make([]image.Rectangle,
		across*down) // the differing part of each tile; empty if there is none, or if it was taken
	for w, word := range m.bits {
		for ; word != 0; word &= word - 1 {
			i := 64*w + bits.TrailingZeros64(word)
			x, y := i%m.size.X, i/m.size.X
			t := &tiles[y/tile*across+x/tile]
			*t = t.Union(image.Rect(x, y, x+1, y+1))
		}
	}
	var found []image.Rectangle
	var todo []image.Point
	for i := range tiles {
		if tiles[i].Empty() {
			continue
		}
		part := tiles[i]
		tiles[i] = image.Rectangle{}
		todo = append(todo[:0], image.Pt(i%across, i/across))
		for len(todo) > 0 {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for y := max(at.Y-2, 0); y <= min(at.Y+2, down-1); y++ {
				for x := max(at.X-2, 0); x <= min(at.X+2, across-1); x++ {
					if t := &tiles[y*across+x]; !t.Empty() {
						part = part.Union(*t)
						*t = image.Rectangle{}
						todo = append(todo, image.Pt(x, y))
					}
				}
			}
		}
		found = append(found, part)
	}
	largest := func(a, b image.Rectangle) int {
		return cmp.Or(cmp.Compare(b.Dx()*b.Dy(), a.Dx()*a.Dy()), cmp.Compare(a.Min.Y, b.Min.Y),
			cmp.Compare(a.Min.X, b.Min.X))
	}
	slices.SortFunc(found, largest)
	// A frame around another box is one box. Only the largest are tested, because each is compared with each.
	found = joined(found[:min(len(found), 10*maxBoxes)])
	slices.SortFunc(found, largest)
	var out []Box
	for _, r := range found[:min(len(found), maxBoxes)] {
		out = append(out, Box{X: r.Min.X, Y: r.Min.Y, Width: r.Dx(), Height: r.Dy()})
	}
	return out
}

// joined unites rectangles until none overlap.
func joined(list []image.Rectangle) []image.Rectangle {
	for i := 0; i < len(list); i++ {
		for j := i + 1; j < len(list); j++ {
			if list[i].Overlaps(list[j]) {
				list[i] = list[i].Union(list[j])
				list = slices.Delete(list, j, j+1)
				i, j = -1, len(list) // the union may overlap an earlier one
			}
		}
	}
	return list
}

var (
	differs   = color.RGBA{0xe0, 0x00, 0x3c, 0xff}
	separator = color.RGBA{0x33, 0x33, 0x38, 0xff}
	nothing   = [2]color.RGBA{{0xd8, 0xd8, 0xdc, 0xff}, {0xc4, 0xc4, 0xca, 0xff}} // stripes
)

// gap is the width of the line between two pictures, in pixels of the triptych.
const gap = 4

// paint returns the triptych. Each panel covers the area of both pictures.
func paint(before, after *image.RGBA, m *mask, boxes []Box) *image.RGBA {
	scale := 1 // a square of scale × scale pixels becomes one
	for (3*((m.size.X+scale-1)/scale)+2*gap)*((m.size.Y+scale-1)/scale) > maxTriptych {
		scale++
	}
	width, height := (m.size.X+scale-1)/scale, (m.size.Y+scale-1)/scale
	out := image.NewRGBA(image.Rect(0, 0, 3*width+2*gap, height))
	draw.Draw(out, out.Rect, image.NewUniform(separator), image.Point{}, draw.Src)
	for y := range height {
		for x := range width {
			a, _ := average(before, x, y, scale)
			b, there := average(after, x, y, scale)
			out.SetRGBA(x, y, a)
			out.SetRGBA(x+width+gap, y, b)
			if there {
				b = paled(b)
			}
			if m.any(x, y, scale) {
				b = differs
			}
			out.SetRGBA(x+2*(width+gap), y, b)
		}
	}
	last := image.Rect(2*(width+gap), 0, 3*width+2*gap, height)
	for _, box := range boxes {
		r := image.Rect(box.X/scale, box.Y/scale, (box.X+box.Width+scale-1)/scale, (box.Y+box.Height+scale-1)/scale)
		frame(out, r.Add(last.Min).Inset(-5), last, 2+width/700) // wide pictures are shown smaller
	}
	return out
}

// average returns the mean colour of a square of the picture. Outside of the picture it returns stripes and false.
func average(img *image.RGBA, x, y, scale int) (color.RGBA, bool) {
	square := image.Rect(x*scale, y*scale, (x+1)*scale, (y+1)*scale).Intersect(img.Rect)
	if square.Empty() {
		return nothing[(x+y)/8%2], false
	}
	var r, g, b, n int
	for y := square.Min.Y; y < square.Max.Y; y++ {
		row := img.Pix[y*img.Stride+4*square.Min.X : y*img.Stride+4*square.Max.X]
		for ; len(row) >= 4; row = row[4:] {
			r, g, b, n = r+int(row[0]), g+int(row[1]), b+int(row[2]), n+1
		}
	}
	return color.RGBA{uint8(r / n), uint8(g / n), uint8(b / n), 0xff}, true
}

// any reports whether a pixel of a square differs.
func (m *mask) any(x, y, scale int) bool {
	for v := y * scale; v < min((y+1)*scale, m.size.Y); v++ {
		for u := x * scale; u < min((x+1)*scale, m.size.X); u++ {
			if m.has(u, v) {
				return true
			}
		}
	}
	return false
}

// paled returns the colour as a light grey.
func paled(c color.RGBA) color.RGBA {
	grey := (299*int(c.R) + 587*int(c.G) + 114*int(c.B)) / 1000
	light := uint8(255 - (255-grey)*35/100)
	return color.RGBA{light, light, light, 0xff}
}

// frame draws the outline of r within bounds. wide is its width in pixels.
func frame(img *image.RGBA, r, bounds image.Rectangle, wide int) {
	for _, side := range []image.Rectangle{
		image.Rect(r.Min.X, r.Min.Y, r.Max.X, r.Min.Y+wide), image.Rect(r.Min.X, r.Max.Y-wide, r.Max.X, r.Max.Y),
		image.Rect(r.Min.X, r.Min.Y, r.Min.X+wide, r.Max.Y), image.Rect(r.Max.X-wide, r.Min.Y, r.Max.X, r.Max.Y),
	} {
		draw.Draw(img, side.Intersect(bounds), image.NewUniform(differs), image.Point{}, draw.Src)
	}
}

// compareText returns the unified diff of two accessibility trees, and notes about it.
func compareText(before, after string) (text string, notes []string) {
	if before == after {
		return "", nil
	}
	if len(before) > maxAria || len(after) > maxAria {
		return "", []string{fmt.Sprintf("the accessibility trees differ and are too large to compare (%d and %d bytes)",
			len(before), len(after))}
	}
	out := diff.Diff("before", []byte(before), "after", []byte(after))
	// The first line repeats the names, like git's command line.
	if _, rest, ok := bytes.Cut(out, []byte("\n")); ok {
		out = rest
	}
	if len(out) > maxAriaDiff {
		out = out[:bytes.LastIndexByte(out[:maxAriaDiff], '\n')+1]
		notes = append(notes, fmt.Sprintf("the diff of the accessibility trees is cut after %d KiB", maxAriaDiff>>10))
	}
	if text = string(out); !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return text, notes
}
