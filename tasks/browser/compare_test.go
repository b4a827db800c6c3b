package browser_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// drawn is a picture in one colour with rectangles in another.
func drawn(t testing.TB, width, height int, ground color.Color, boxes ...image.Rectangle) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	draw.Draw(img, img.Rect, image.NewUniform(ground), image.Point{}, draw.Src)
	for _, r := range boxes {
		draw.Draw(img, r, image.NewUniform(color.Black), image.Point{}, draw.Src)
	}
	return encoded(t, img)
}

func encoded(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCompare(t *testing.T) {
	white := drawn(t, 200, 100, color.White)
	for _, c := range []struct {
		name          string
		before, after []byte
		threshold     float64
		pixels        int
		share         float64
		boxes         []browser.Box
	}{
		{"the same file", white, bytes.Clone(white), 0, 0, 0, nil},
		{"one rectangle", white, drawn(t, 200, 100, color.White, image.Rect(10, 20, 50, 30)), 0.1, 400, 0.02,
			[]browser.Box{{X: 10, Y: 20, Width: 40, Height: 10}}},
		{"one pixel in the corner", white, drawn(t, 200, 100, color.White, image.Rect(199, 99, 200, 100)), 0.1, 1,
			1. / 20000, []browser.Box{{X: 199, Y: 99, Width: 1, Height: 1}}},
		{"near ones are one box", white, drawn(t, 200, 100, color.White, image.Rect(10, 20, 20, 30),
			image.Rect(26, 20, 36, 30)), 0.1, 200, 0.01, []browser.Box{{X: 10, Y: 20, Width: 26, Height: 10}}},
		{"far ones are two, the larger first", white,
			drawn(t, 200, 100, color.White, image.Rect(10, 20, 20, 30), image.Rect(100, 20, 120, 30)), 0.1, 300, 0.015,
			[]browser.Box{{X: 100, Y: 20, Width: 20, Height: 10}, {X: 10, Y: 20, Width: 10, Height: 10}}},
		{"a shade below the threshold", white, drawn(t, 200, 100, color.Gray{250}), 0.1, 0, 0, nil},
		{"a shade with none", white, drawn(t, 200, 100, color.Gray{250}), 0, 20000, 1,
			[]browser.Box{{Width: 200, Height: 100}}},
		{"black and white at most", drawn(t, 200, 100, color.Black), white, 1, 0, 0, nil},
		{"a threshold that is no number counts everything", white, drawn(t, 200, 100, color.Gray{254}), math.NaN(),
			20000, 1, []browser.Box{{Width: 200, Height: 100}}},
		{"taller", white, drawn(t, 200, 150, color.White), 0.1, 10000, 1. / 3,
			[]browser.Box{{Y: 100, Width: 200, Height: 50}}},
		{"taller and narrower: what neither has does not count", white, drawn(t, 100, 200, color.White), 0.1, 20000, 0.5,
			[]browser.Box{{Width: 200, Height: 200}}},
		{"see-through is white", white, encoded(t, image.NewNRGBA(image.Rect(0, 0, 200, 100))), 0, 0, 0, nil},
	} {
		d, triptych := browser.Compare(c.before, c.after, "", "", browser.Against{Threshold: c.threshold}, 1)
		if d.Note != "" || d.Pixels != c.pixels || math.Abs(d.Changed-c.share) > 1e-9 || !equalBoxes(d.Boxes, c.boxes) {
			t.Errorf("%s: %+v", c.name, d)
		}
		if (triptych != nil) != (c.pixels > 0) {
			t.Errorf("%s: a picture of %d bytes for %d pixels", c.name, len(triptych), c.pixels)
		}
	}
}

func equalBoxes(a, b []browser.Box) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// The triptych has the picture before, the one after, and the one after paled with the
// differing pixels in red, all three of the same size, and is the same each time.
// TestRegion compares a part of two pictures.
func TestRegion(t *testing.T) {
	white := drawn(t, 200, 100, color.White)
	dotted := drawn(t, 200, 100, color.White, image.Rect(10, 20, 12, 22), image.Rect(150, 60, 152, 62))
	for _, c := range []struct {
		region []int
		scale  float64
		pixels int
		share  float64
		boxes  []browser.Box
		note   string
	}{
		{[]int{100, 50, 100, 50}, 1, 4, 4. / 5000, []browser.Box{{X: 150, Y: 60, Width: 2, Height: 2}}, ""},
		{[]int{50, 25, 50, 25}, 2, 4, 4. / 5000, []browser.Box{{X: 150, Y: 60, Width: 2, Height: 2}}, ""},
		{[]int{11, 21, 1, 1}, 0, 1, 1, []browser.Box{{X: 11, Y: 21, Width: 1, Height: 1}}, ""},
		{[]int{0, 0, 10, 20}, 1, 0, 0, nil, ""},
		{[]int{140, 50, 32768, 32768}, 1, 4, 4. / 3000, []browser.Box{{X: 150, Y: 60, Width: 2, Height: 2}}, ""},
		{[]int{200, 0, 10, 10}, 1, 0, 0, nil, "the region is outside of the pictures, which have 200 x 100 and 200 x 100 pixels"},
	} {
		d, triptych := browser.Compare(white, dotted, "", "", browser.Against{Threshold: 0.1, Region: c.region}, c.scale)
		if d.Note != c.note || d.Uncompared != (c.note != "") || d.Pixels != c.pixels || math.Abs(d.Changed-c.share) > 1e-9 ||
			!equalBoxes(d.Boxes, c.boxes) || (triptych != nil) != (c.pixels > 0) {
			t.Errorf("%v at %v: %+v", c.region, c.scale, d)
		}
	}
	if d, _ := browser.Compare(white, white, "", "", browser.Against{Region: []int{300, 0, 1, 1}}, 1); !d.Uncompared {
		t.Errorf("equal pictures without the region: %+v", d)
	}
}

func TestTriptych(t *testing.T) {
	before := drawn(t, 60, 40, color.RGBA{0, 0, 200, 255})
	after := drawn(t, 60, 50, color.RGBA{0, 0, 200, 255}, image.Rect(20, 20, 30, 30))
	_, text := browser.Compare(before, after, "", "", browser.Against{Threshold: 0.1}, 1)
	_, again := browser.Compare(before, after, "", "", browser.Against{Threshold: 0.1}, 1)
	if !bytes.Equal(text, again) {
		t.Error("two comparisons of the same pictures are two different files")
	}
	img, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := img.Bounds(); got != image.Rect(0, 0, 3*60+8, 50) {
		t.Fatalf("size: %v", got)
	}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(img.At(x, y)).(color.RGBA) }
	blue, black, red := color.RGBA{0, 0, 200, 255}, color.RGBA{0, 0, 0, 255}, color.RGBA{0xe0, 0, 0x3c, 255}
	if at(25, 25) != blue || at(64+25, 25) != black || at(128+25, 25) != red {
		t.Errorf("in the rectangle: %v %v %v", at(25, 25), at(64+25, 25), at(128+25, 25))
	}
	if at(25, 45) == blue || at(64+25, 45) != blue || at(128+25, 45) != red {
		t.Errorf("below the shorter one: %v %v %v", at(25, 45), at(64+25, 45), at(128+25, 45))
	}
	if c := at(128+2, 2); c != (color.RGBA{174, 174, 174, 255}) {
		t.Errorf("what is equal is not pale: %v", c)
	}
}

func TestTriptychOfLargePicturesIsMadeSmaller(t *testing.T) {
	before, after := drawn(t, 400, 13_500, color.White), drawn(t, 400, 13_500, color.White, image.Rect(200, 4000, 201, 4001))
	d, text := browser.Compare(before, after, "", "", browser.Against{Threshold: 0.1}, 1)
	c, err := png.DecodeConfig(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if d.Pixels != 1 || c.Width*c.Height > 16_000_000 || c.Width*c.Height < 3_000_000 {
		t.Errorf("%d pixels differ, shown by %d x %d", d.Pixels, c.Width, c.Height)
	}
	// The one pixel and its frame can still be seen.
	img, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	red, around := 0, image.Rectangle{}
	for pixels := img.(*image.RGBA).Pix; len(pixels) > 0; pixels = pixels[4:] {
		if [3]byte(pixels) == [3]byte{0xe0, 0, 0x3c} {
			at := (len(img.(*image.RGBA).Pix) - len(pixels)) / 4
			around = around.Union(image.Rect(at%c.Width, at/c.Width, at%c.Width+1, at/c.Width+1))
			red++
		}
	}
	// Two pixels became one. The frame is five pixels around it, in the last of three pictures with four pixels between them.
	if x, y := 2*(200+4)+200/2, 4000/2; red < 30 || around != image.Rect(x-5, y-5, x+6, y+6) {
		t.Errorf("%d red pixels in %v", red, around)
	}
}

// At most 20 boxes, and none inside another, however scattered the differences are.
func TestBoxesAreBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var rects []image.Rectangle
	for range 300 {
		x, y := random.IntN(780), random.IntN(780)
		rects = append(rects, image.Rect(x, y, x+1+random.IntN(8), y+1+random.IntN(8)))
	}
	d, _ := browser.Compare(drawn(t, 800, 800, color.White), drawn(t, 800, 800, color.White, rects...), "", "", browser.Against{Threshold: 0.1}, 1)
	if len(d.Boxes) > 20 || len(d.Boxes) == 0 {
		t.Fatalf("%d boxes", len(d.Boxes))
	}
	rect := func(b browser.Box) image.Rectangle { return image.Rect(b.X, b.Y, b.X+b.Width, b.Y+b.Height) }
	for i, a := range d.Boxes {
		for _, b := range d.Boxes[i+1:] {
			if rect(a).Overlaps(rect(b)) || b.Width*b.Height > a.Width*a.Height {
				t.Errorf("%+v before %+v", a, b)
			}
		}
	}
}

// TestFrameIsOneBox checks that a frame and the box within it are one difference, and that another box is another.
func TestFrameIsOneBox(t *testing.T) {
	frame := []image.Rectangle{image.Rect(100, 100, 300, 102), image.Rect(100, 298, 300, 300),
		image.Rect(100, 100, 102, 300), image.Rect(298, 100, 300, 300)}
	after := drawn(t, 600, 600, color.White, append(frame, image.Rect(190, 190, 210, 210),
		image.Rect(140, 140, 150, 150), image.Rect(400, 400, 420, 410))...)
	d, _ := browser.Compare(drawn(t, 600, 600, color.White), after, "", "", browser.Against{Threshold: 0.1}, 1)
	if want := []browser.Box{{X: 100, Y: 100, Width: 200, Height: 200},
		{X: 400, Y: 400, Width: 20, Height: 10}}; !slices.Equal(d.Boxes, want) {
		t.Errorf("%+v, want %+v", d.Boxes, want)
	}
}

func TestCompareSaysWhyItDoesNot(t *testing.T) {
	good := drawn(t, 10, 10, color.White)
	huge := bytes.Clone(good)
	binary.BigEndian.PutUint32(huge[16:], 30_000)
	binary.BigEndian.PutUint32(huge[20:], 30_000)
	binary.BigEndian.PutUint32(huge[29:], crc32.ChecksumIEEE(huge[12:29]))
	long := bytes.Clone(good)
	binary.BigEndian.PutUint32(long[16:], 40_000)
	binary.BigEndian.PutUint32(long[29:], crc32.ChecksumIEEE(long[12:29]))
	for _, c := range []struct {
		name          string
		before, after []byte
		want          string
	}{
		{"neither", nil, nil, "no pictures"},
		{"no base", nil, good, "no picture of the base"},
		{"no branch", good, nil, "only a picture of the base"},
		{"not a PNG", good, []byte("<html>"), "picture of the branch"},
		{"cut off", good[:len(good)/2], good, "picture of the base"},
		{"30000 x 30000", good, huge, "40 megapixels"},
		{"40000 wide", good, long, "32768"},
		{"16 bits", good, encoded(t, image.NewRGBA64(image.Rect(0, 0, 4, 4))), "16 bits"},
		{"together too large", drawn(t, 32_000, 2, color.White), drawn(t, 2, 32_000, color.White), "together"},
	} {
		d, triptych := browser.Compare(c.before, c.after, "- a\n", "- b\n", browser.Against{Threshold: 0.1}, 1)
		if !strings.Contains(d.Note, c.want) || triptych != nil || d.Pixels != 0 {
			t.Errorf("%s: %+v", c.name, d)
		}
		if d.Aria == "" {
			t.Errorf("%s: the trees are not compared", c.name)
		}
	}
}

func TestAriaDiff(t *testing.T) {
	before := "- heading \"Todo\" [level=1]\n- list:\n  - listitem: Milk\n- button \"Add\"\n"
	after := "- heading \"Todo\" [level=1]\n- list:\n  - listitem: Milk\n  - listitem: Bread\n- button \"Add\"\n"
	d, _ := browser.Compare(nil, nil, before, after, browser.Against{Threshold: 0.1}, 1)
	want := "--- before\n+++ after\n@@ -1,4 +1,5 @@\n - heading \"Todo\" [level=1]\n - list:\n   - listitem: Milk\n+  - listitem: Bread\n - button \"Add\"\n"
	if d.Aria != want {
		t.Errorf("%s", d.Aria)
	}
	if d, _ := browser.Compare(nil, nil, before, before, browser.Against{Threshold: 0.1}, 1); d.Aria != "" {
		t.Errorf("of equal ones: %s", d.Aria)
	}
	d, _ = browser.Compare(nil, nil, strings.Repeat("- a\n", 400_000), "", browser.Against{Threshold: 0.1}, 1)
	if d.Aria != "" || !strings.Contains(d.Note, "too large") {
		t.Errorf("%d bytes of diff; %s", len(d.Aria), d.Note)
	}
	if d, _ = browser.Compare(nil, nil, strings.Repeat("- a\n", 1<<18), "", browser.Against{Threshold: 0.1}, 1); d.Aria == "" || strings.Contains(d.Note, "too large") {
		t.Errorf("%d bytes of diff of the largest tree; %s", len(d.Aria), d.Note)
	}
	d, _ = browser.Compare(nil, nil, strings.Repeat("- a\n", 200_000), "- \xff\n", browser.Against{Threshold: 0.1}, 1)
	if len(d.Aria) > 64<<10 || !strings.HasSuffix(d.Aria, "\n") || !strings.Contains(d.Note, "cut after 64 KiB") {
		t.Errorf("%d bytes of diff; %s", len(d.Aria), d.Note)
	}
}

func FuzzCompare(f *testing.F) {
	small := drawn(f, 9, 7, color.White, image.Rect(1, 1, 3, 3))
	f.Add(small, drawn(f, 7, 9, color.Gray{200}), "- a\n", "- b\n", 0.1)
	f.Add(small, encoded(f, image.NewPaletted(image.Rect(0, 0, 3, 3), color.Palette{color.White, color.Transparent})),
		"", "x", 0.0)
	f.Add(small, encoded(f, image.NewNRGBA(image.Rect(0, 0, 3, 3))), "a\x00", "\xff", -1.0)
	f.Add([]byte("\x89PNG\r\n\x1a\n"), []byte{}, "", "", 2.0)
	f.Fuzz(func(t *testing.T, before, after []byte, ariaBefore, ariaAfter string, threshold float64) {
		// What is large is only slow; the bound has a test of its own.
		for _, file := range [][]byte{before, after} {
			if c, err := png.DecodeConfig(bytes.NewReader(file)); err == nil && c.Width*c.Height > 1<<20 {
				t.Skip()
			}
		}
		d, triptych := browser.Compare(before, after, ariaBefore, ariaAfter, browser.Against{Threshold: threshold}, 1)
		if d.Changed < 0 || d.Changed > 1 || (d.Pixels == 0) != (d.Changed == 0) || len(d.Boxes) > 20 ||
			(d.Pixels > 0) != (triptych != nil) {
			t.Errorf("%+v", d)
		}
		for _, b := range d.Boxes {
			if b.X < 0 || b.Y < 0 || b.Width <= 0 || b.Height <= 0 {
				t.Errorf("box %+v", b)
			}
		}
		if triptych != nil {
			if _, err := png.DecodeConfig(bytes.NewReader(triptych)); err != nil {
				t.Error(err)
			}
		}
	})
}

func BenchmarkCompare(b *testing.B) {
	before, after := drawn(b, 1440, 1000, color.White), drawn(b, 1440, 1000, color.White, image.Rect(100, 100, 700, 500))
	for b.Loop() {
		browser.Compare(before, after, "", "", browser.Against{Threshold: 0.1}, 1)
	}
}
