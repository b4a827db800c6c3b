package main

import (
	"fmt"

	"github.com/ramus-dev/ramus/gateway"
)

// newPreview returns the origin of previews. Returns nil if previews have no origins of their own.
func newPreview(c Config) (*gateway.PreviewOrigin, error) {
	if c.Preview.URL == "" {
		return nil, nil
	}
	o, err := gateway.ParsePreviewOrigin(c.Preview.URL, c.URL)
	if err != nil {
		return nil, fmt.Errorf("cannot use preview.url: %w", err)
	}
	return o, nil
}
