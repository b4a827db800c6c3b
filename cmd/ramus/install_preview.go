package main

import (
	"fmt"

	"github.com/ramus-dev/ramus/gateway/preview"
)

// newPreview returns the origin of previews. Returns nil if previews have no origins of their own.
func newPreview(c Config) (*preview.Origin, error) {
	if c.Preview.URL == "" {
		return nil, nil
	}
	o, err := preview.ParseOrigin(c.Preview.URL, c.URL)
	if err != nil {
		return nil, fmt.Errorf("cannot use preview.url: %w", err)
	}
	return o, nil
}
