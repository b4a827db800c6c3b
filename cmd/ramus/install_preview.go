package main

import (
	"fmt"

	"github.com/ramus-dev/ramus/gateway/domain"
	"github.com/ramus-dev/ramus/gateway/preview"
)

// newPreview returns the origin of previews. Returns nil if previews have no origins of their own.
func newPreview(c Config, d *domain.Domain) (*preview.Origin, error) {
	switch {
	case c.Preview.URL == "" && d != nil && !d.NoWorkspaces:
		return preview.OfDomain(d), nil
	case c.Preview.URL == "":
		return nil, nil
	}
	o, err := preview.ParseOrigin(c.Preview.URL, c.URL)
	if err != nil {
		return nil, fmt.Errorf("cannot use preview.url: %w", err)
	}
	return o, nil
}
