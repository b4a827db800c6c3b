package evidence

import (
	"embed"

	"github.com/ramus-dev/ramus/gateway/page"
)

//go:embed pages
var pageFiles embed.FS

var pages = page.Parse(pageFiles)
