package route

import (
	"mime"
	"path"
)

// mediaTypes are those of files that browsers load, by extension. The table of the machine may have other ones or none.
var mediaTypes = map[string]string{
	".css":         "text/css; charset=utf-8",
	".js":          "text/javascript; charset=utf-8",
	".svg":         "image/svg+xml",
	".ttf":         "font/ttf",
	".webmanifest": "application/manifest+json",
}

// MediaType returns the media type of a file by its name. An unknown one is [MediaBytes]. Browsers must not guess it.
func MediaType(name string) string {
	ext := path.Ext(name)
	if t := mediaTypes[ext]; t != "" {
		return t
	}
	if t := mime.TypeByExtension(ext); t != "" {
		return t
	}
	return MediaBytes
}
