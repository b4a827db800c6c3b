package past

import (
	"context"
	"errors"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/trial"
)

// BisectPicture has the pictures of a page at one viewport, which differ.
type BisectPicture struct {
	Viewport string  `json:"viewport"`
	Changed  float64 `json:"changed"` // share of the pixels, 0 to 1
	// Good is the picture of the good commit, Bad that of the first bad one. Diff has both and the differences.
	Good PictureFile `json:"good"`
	Bad  PictureFile `json:"bad"`
	Diff PictureFile `json:"diff"`
}

// PictureFile is a picture in the evidence of a try.
type PictureFile struct {
	Name string `json:"name"` // as in the manifest of the run
	// URL is a signed link, or empty if the server has no URL.
	URL string `json:"url,omitempty"`
}

// pictures returns the pictures of a try that differ from those of the good commit. Returns none if the run was pruned.
func (api *API) pictures(ctx context.Context, t *trial.Try) ([]BisectPicture, error) {
	if t == nil {
		return nil, nil
	}
	m, err := api.Executor.Manifest(ctx, t.Run)
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return picturesOf(m, func(name string) string {
		if api.Links == nil || api.Links.URL == "" {
			return ""
		}
		return api.Links.Sign("/evidence/" + t.Run + "/files/" + name)
	}), nil
}

// picturesOf returns the pictures of a manifest that differ. link returns the link of a file.
func picturesOf(m record.Manifest, link func(name string) string) (list []BisectPicture) {
	const dir = "artifacts/browser/"
	file := func(name string) PictureFile {
		if name == "" {
			return PictureFile{}
		}
		return PictureFile{dir + name, link(dir + name)}
	}
	for _, c := range m.Browser {
		if c.Compare == nil {
			continue
		}
		for _, d := range c.Compare.Views {
			if !d.Uncompared && d.Pixels > 0 {
				list = append(list, BisectPicture{Viewport: d.Viewport, Changed: d.Changed, Good: file(d.Before),
					Bad: file(d.After), Diff: file(d.Picture)})
			}
		}
	}
	return list
}
