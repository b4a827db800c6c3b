package conversation

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"testing"
)

const place = "taken at 52.5N 13.4E"

// pictures returns a small picture in each format, with the place where it was taken.
func pictures(t testing.TB) map[string][]byte {
	img := image.NewPaletted(image.Rect(0, 0, 20, 10), color.Palette{color.Black, color.White})
	img.Set(3, 4, color.White)
	var p, j, g bytes.Buffer
	for _, err := range []error{png.Encode(&p, img), jpeg.Encode(&j, img, nil), gif.Encode(&g, img, nil)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	chunk := binary.BigEndian.AppendUint32(nil, uint32(len(place)+5))
	body := append([]byte("tEXt"), "gps\x00 "+place...)
	chunk = append(append(chunk, body...), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(chunk[len(chunk)-4:], crc32.ChecksumIEEE(body))
	pb := p.Bytes()
	withPNG := bytes.Join([][]byte{pb[:33], chunk, pb[33:]}, nil)
	segment := append([]byte{0xff, 0xe1, 0, byte(2 + 6 + len(place))}, "Exif\x00\x00"+place...)
	jb := j.Bytes()
	withJPEG := bytes.Join([][]byte{jb[:2], segment, jb[2:]}, nil)
	gb := g.Bytes()
	comment := append(append([]byte{0x21, 0xfe, byte(len(place))}, place...), 0)
	withGIF := append(append(bytes.Clone(gb[:len(gb)-1]), comment...), 0x3b)
	riff := []byte("RIFF\x00\x00\x00\x00WEBP")
	for _, c := range [][2]string{{"VP8X", "\x0c\x00\x00\x00\x13\x00\x00\x09\x00\x00"}, {"VP8L", "\x2f\x00\x00\x00"}, {"EXIF", place}} {
		riff = append(riff, c[0]...)
		riff = binary.LittleEndian.AppendUint32(riff, uint32(len(c[1])))
		riff = append(riff, c[1]...)
		if len(c[1])%2 == 1 {
			riff = append(riff, 0)
		}
	}
	binary.LittleEndian.PutUint32(riff[4:], uint32(len(riff)-8))
	return map[string][]byte{"image/png": withPNG, "image/jpeg": withJPEG, "image/gif": withGIF, "image/webp": riff}
}

// TestAnimation keeps the frames of a picture and how often they repeat, and removes all else that applications add.
func TestAnimation(t *testing.T) {
	frames := &gif.GIF{LoopCount: 3}
	for range 2 {
		frames.Image = append(frames.Image, image.NewPaletted(image.Rect(0, 0, 20, 10), color.Palette{color.Black, color.White}))
		frames.Delay = append(frames.Delay, 7)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, frames); err != nil {
		t.Fatal(err)
	}
	extension := append(append([]byte("\x21\xff\x0bXMP DataXMP"), byte(len(place))), place+"\x00"...)
	content := bytes.Join([][]byte{b.Bytes()[:b.Len()-1], extension, {0x3b}}, nil)
	kept, err := Attach(content)
	if err != nil || bytes.Contains(kept, []byte(place)) {
		t.Errorf("%q, %v", kept, err)
	}
	got, err := gif.DecodeAll(bytes.NewReader(kept))
	if err != nil || got.LoopCount != 3 || len(got.Image) != 2 || got.Delay[1] != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	riff, err := Attach(pictures(t)["image/webp"])
	if err != nil || int(binary.LittleEndian.Uint32(riff[4:])) != len(riff)-8 {
		t.Errorf("the size in a picture of %d bytes is %d, %v", len(riff), binary.LittleEndian.Uint32(riff[4:]), err)
	}
}

// TestAttach removes the metadata of pictures, which stay the same picture.
func TestAttach(t *testing.T) {
	for media, content := range pictures(t) {
		if Picture(content) != media || !bytes.Contains(content, []byte(place)) {
			t.Fatalf("%s: the test is wrong: %s", media, Picture(content))
		}
		kept, err := Attach(content)
		if err != nil || bytes.Contains(kept, []byte(place)) || Picture(kept) != media {
			t.Errorf("%s: %v, %q", media, err, kept)
		}
		if again, err := Attach(kept); err != nil || !bytes.Equal(again, kept) {
			t.Errorf("%s: a second time it differs: %v", media, err)
		}
		if media != "image/webp" {
			want, _, err := image.Decode(bytes.NewReader(content))
			got, _, gotErr := image.Decode(bytes.NewReader(kept))
			if err != nil || gotErr != nil || want.Bounds() != got.Bounds() || want.At(3, 4) != got.At(3, 4) {
				t.Errorf("%s: %v, %v", media, err, gotErr)
			}
		}
		if _, err := Attach(content[:len(content)/2]); err == nil && media != "image/webp" {
			t.Errorf("%s: half of it is taken", media)
		}
	}
	if kept, err := Attach([]byte("notes\n")); err != nil || string(kept) != "notes\n" {
		t.Errorf("%q, %v", kept, err)
	}
}

// TestJPEGMarkers keeps markers without a length, drops fill bytes and the segments of applications, and refuses what is cut.
func TestJPEGMarkers(t *testing.T) {
	const head, tables, scan, end = "\xff\xd8", "\xff\xdb\x00\x04AB", "\xff\xda\x00\x03C" + "x\xff\x00y\xff\xd0z\xff\xd7", "\xff\xd9"
	for name, x := range map[string]struct{ in, want string }{ // "" is refused
		"as it is":               {head + tables + scan + end, head + tables + scan + end},
		"a marker of its own":    {head + "\xff\x01" + tables + "\xff\xd3" + scan + end, head + "\xff\x01" + tables + "\xff\xd3" + scan + end},
		"a fill byte":            {head + "\xff" + tables + scan + "\xff\xff\xd9", head + tables + scan + end},
		"applications":           {head + "\xff\xe0\x00\x02\xff\xe1\x00\x03x\xff\xef\x00\x03x\xff\xfe\x00\x03x" + scan + end, head + "\xff\xe0\x00\x02" + scan + end},
		"the colours of Adobe":   {head + "\xff\xee\x00\x07Adobe\xff\xee\x00\x07Other" + end, head + "\xff\xee\x00\x07Adobe" + end},
		"something after it":     {head + tables + end + "secret", head + tables + end},
		"two scans":              {head + scan + tables + scan + end, head + scan + tables + scan + end},
		"an empty segment":       {head + "\xff\xdb\x00\x02" + end, head + "\xff\xdb\x00\x02" + end},
		"a segment of one byte":  {head + "\xff\xdb\x00\x01" + end, ""},
		"a segment that is cut":  {head + "\xff\xdb\x00\x05AB", ""},
		"a length that is cut":   {head + "\xff\xdb\x00", ""},
		"a marker that is cut":   {head + tables + "\xff", ""},
		"no marker":              {head + tables + "x" + end, ""},
		"no end":                 {head + tables, ""},
		"a scan without its end": {head + scan, ""},
		"a scan that is cut":     {head + scan + "\xff", ""},
	} {
		got, err := stripJPEG([]byte(x.in))
		if string(got) != x.want || (err == nil) != (x.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, x.want)
		}
	}
}

// TestPNGChunks keeps the chunks of the picture, and refuses what is cut.
func TestPNGChunks(t *testing.T) {
	chunk := func(kind, data string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(data)))) + kind + data + "sum."
	}
	const head = "\x89PNG\r\n\x1a\n"
	body, end := chunk("IHDR", "x")+chunk("IDAT", "data"), chunk("IEND", "")
	for name, x := range map[string]struct{ in, want string }{
		"as it is":         {head + body + end, head + body + end},
		"words":            {head + chunk("tEXt", "secret") + body + chunk("eXIf", "secret") + end + "secret", head + body + end},
		"no end":           {head + body, ""},
		"an end too short": {head + body + end[:11], ""},
		"a cut chunk":      {head + body + chunk("IDAT", "data")[:15], ""},
		"nothing":          {head, ""},
	} {
		got, err := stripPNG([]byte(x.in))
		if string(got) != x.want || (err == nil) != (x.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, x.want)
		}
	}
}

func FuzzAttach(f *testing.F) {
	for _, content := range pictures(f) {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		kept, err := Attach(content)
		if err == nil && len(kept) > len(content) {
			t.Fatalf("%d bytes of %d", len(kept), len(content))
		}
	})
}
