// Package helm tests the chart of ramus in the folder next to it.
package helm
