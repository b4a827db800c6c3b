package past

import (
	"reflect"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestPicturesOf names the pictures of a try that differ, each with its link.
func TestPicturesOf(t *testing.T) {
	m := record.Manifest{Browser: []record.BrowserCheck{
		{Name: "no comparison"},
		{Compare: &record.BrowserComparison{Views: []record.BrowserDiff{
			{Viewport: "phone", Before: "1/phone/before.png", After: "1/phone/screenshot.png"},
			{Viewport: "tablet", Uncompared: true, Pixels: 3},
			{Viewport: "desktop", Pixels: 3, Changed: 0.5, Before: "1/desktop/before.png", After: "1/desktop/screenshot.png"},
		}}},
	}}
	want := []BisectPicture{{Viewport: "desktop", Changed: 0.5,
		Good: PictureFile{"artifacts/browser/1/desktop/before.png", "link:artifacts/browser/1/desktop/before.png"},
		Bad:  PictureFile{"artifacts/browser/1/desktop/screenshot.png", "link:artifacts/browser/1/desktop/screenshot.png"}}}
	if got := picturesOf(m, func(name string) string { return "link:" + name }); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
