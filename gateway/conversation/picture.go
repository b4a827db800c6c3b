package conversation

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
)

// errBroken is the error of a picture whose parts cannot be read. Its metadata cannot be found either.
var errBroken = errors.New("it begins like a picture, but its parts cannot be read")

// Picture returns the media type of a picture that browsers show without running anything, by its first bytes. Returns "" for all other
// files.
func Picture(content []byte) string {
	switch media := http.DetectContentType(content[:min(len(content), 512)]); media {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return media
	}
	return ""
}

// Attach returns the content of a file as it is kept. A picture loses its metadata, such as the place where it was taken. All other
// files stay as they are.
func Attach(content []byte) ([]byte, error) {
	switch Picture(content) {
	case "image/png":
		return stripPNG(content)
	case "image/jpeg":
		return stripJPEG(content)
	case "image/gif":
		return stripGIF(content)
	case "image/webp":
		return stripWebP(content)
	}
	return content, nil
}

// stripPNG keeps the chunks that change the shown picture.
func stripPNG(b []byte) ([]byte, error) {
	const head = 8
	out := slices.Clone(b[:head])
	for at := head; at < len(b); {
		if len(b)-at < 12 {
			return nil, errBroken
		}
		size := int64(binary.BigEndian.Uint32(b[at:])) + 12
		if size > int64(len(b)-at) {
			return nil, errBroken
		}
		chunk := b[at : at+int(size)]
		at += int(size)
		switch kind := string(chunk[4:8]); kind {
		case "IHDR", "PLTE", "IDAT", "tRNS", "gAMA", "cHRM", "sRGB", "sBIT", "pHYs", "acTL", "fcTL", "fdAT":
			out = append(out, chunk...)
		case "IEND":
			return append(out, chunk...), nil
		}
	}
	return nil, errBroken
}

// stripJPEG keeps all segments but those of applications and comments. The colour transform of Adobe stays.
func stripJPEG(b []byte) ([]byte, error) {
	out := slices.Clone(b[:2])
	for at := 2; at < len(b); {
		if b[at] != 0xff || at+1 >= len(b) {
			return nil, errBroken
		}
		marker := b[at+1]
		switch {
		case marker == 0xff: // a fill byte
			at++
			continue
		case marker == 0xd9:
			return append(out, 0xff, 0xd9), nil
		case marker == 0x01 || marker >= 0xd0 && marker <= 0xd8:
			out = append(out, 0xff, marker)
			at += 2
			continue
		}
		if len(b)-at < 4 {
			return nil, errBroken
		}
		size := 2 + int(binary.BigEndian.Uint16(b[at+2:]))
		if size < 4 || size > len(b)-at {
			return nil, errBroken
		}
		segment := b[at : at+size]
		at += size
		adobe := marker == 0xee && bytes.HasPrefix(segment[4:], []byte("Adobe"))
		if (marker < 0xe1 || marker > 0xef) && marker != 0xfe || adobe {
			out = append(out, segment...)
		}
		if marker == 0xda { // the data follow, in which 0xff is escaped
			end := at
			for end+1 < len(b) && (b[end] != 0xff || b[end+1] == 0 || b[end+1] >= 0xd0 && b[end+1] <= 0xd7) {
				end++
			}
			if end+1 >= len(b) {
				return nil, errBroken
			}
			out = append(out, b[at:end]...)
			at = end
		}
	}
	return nil, errBroken
}

// stripGIF keeps the frames and how often they repeat.
func stripGIF(b []byte) ([]byte, error) {
	if len(b) < 13 {
		return nil, errBroken
	}
	at := 13
	if b[10]&0x80 != 0 {
		at += 3 << (b[10]&7 + 1)
	}
	if at > len(b) {
		return nil, errBroken
	}
	out := slices.Clone(b[:at])
	for at < len(b) {
		begin, keep := at, true
		switch b[at] {
		case 0x3b:
			return append(out, 0x3b), nil
		case 0x2c:
			if len(b)-at < 11 {
				return nil, errBroken
			}
			flags := b[at+9]
			if at += 10; flags&0x80 != 0 {
				at += 3 << (flags&7 + 1)
			}
			at++ // the size of codes
		case 0x21:
			if len(b)-at < 3 {
				return nil, errBroken
			}
			loops := b[at+1] == 0xff &&
				(bytes.HasPrefix(b[at+3:], []byte("NETSCAPE2.0")) || bytes.HasPrefix(b[at+3:], []byte("ANIMEXTS1.0")))
			keep = b[at+1] == 0xf9 || loops
			at += 2
		default:
			return nil, errBroken
		}
		for { // blocks of data
			if at >= len(b) {
				return nil, errBroken
			}
			n := int(b[at])
			if at += n + 1; n == 0 {
				break
			}
		}
		if at > len(b) {
			return nil, errBroken
		}
		if keep {
			out = append(out, b[begin:at]...)
		}
	}
	return nil, errBroken
}

// stripWebP keeps the chunks of the picture.
func stripWebP(b []byte) ([]byte, error) {
	if len(b) < 12 {
		return nil, errBroken
	}
	out := slices.Clone(b[:12])
	for at := 12; at < len(b); {
		if len(b)-at < 8 {
			return nil, errBroken
		}
		size := int64(binary.LittleEndian.Uint32(b[at+4:]))
		whole := 8 + size + size&1
		if 8+size > int64(len(b)-at) {
			return nil, errBroken
		}
		end := min(at+int(whole), len(b))
		chunk := slices.Clone(b[at:end])
		at = end
		switch string(chunk[:4]) {
		case "VP8X":
			if len(chunk) < 9 {
				return nil, errBroken
			}
			const exif, xmp, profile = 0x08, 0x04, 0x20
			chunk[8] &^= exif | xmp | profile
			out = append(out, chunk...)
		case "VP8 ", "VP8L", "ALPH", "ANIM", "ANMF":
			out = append(out, chunk...)
		}
	}
	binary.LittleEndian.PutUint32(out[4:], uint32(len(out)-8))
	return out, nil
}
