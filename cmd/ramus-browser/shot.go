package main

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/mxschmitt/playwright-go"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// Bounds on a picture.
const (
	maxPixels  = 40_000_000
	maxTall    = 16_000 // device pixels; the browser cannot paint taller pictures at once
	shotTries  = 6
	shotTime   = 10 * time.Second
	shotsTotal = 20 * time.Second
)

// picture takes a picture and returns its name in the evidence. It repeats until two consecutive pictures are equal, so
// that movements cause no differences later.
func (v *view) picture(ctx context.Context, name string, shot browser.Shot) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, shotsTotal)
	defer cancel()
	var last []byte
	for range shotTries {
		next, err := v.shoot(ctx, shot)
		if err != nil {
			if last == nil {
				return "", err
			}
			break
		}
		if bytes.Equal(last, next) {
			return v.write(name, last), nil
		}
		last = next
	}
	if name == "screenshot.png" {
		v.notes = append(v.notes, "no two pictures in a row are equal")
	}
	return v.write(name, last), nil
}

// shoot takes one picture.
func (v *view) shoot(ctx context.Context, shot browser.Shot) (png []byte, err error) {
	var mask []playwright.Locator
	for _, selector := range slices.Concat(shot.Mask, v.covered) {
		mask = append(mask, v.page.Locator(selector))
	}
	limit := playwright.Float(shotTime.Seconds() * 1000)
	err = within(ctx, shotTime+time.Second, func() (err error) {
		if shot.Selector != "" {
			png, err = v.page.Locator(shot.Selector).First().Screenshot(playwright.LocatorScreenshotOptions{
				Animations: playwright.ScreenshotAnimationsDisabled, Caret: playwright.ScreenshotCaretHide,
				Mask: mask, Timeout: limit,
			})
			return err
		}
		options := playwright.PageScreenshotOptions{
			Animations: playwright.ScreenshotAnimationsDisabled, Caret: playwright.ScreenshotCaretHide,
			Mask: mask, Timeout: limit, FullPage: playwright.Bool(shot.FullPage),
		}
		if shot.FullPage {
			if options.Clip, err = v.clipTall(); err != nil {
				return err
			}
		}
		png, err = v.page.Screenshot(options)
		return err
	})
	return png, err
}

// clipTall returns the upper part of a page that is too tall for a picture. Returns nil if the page fits.
func (v *view) clipTall() (*playwright.Rect, error) {
	size, err := v.page.Evaluate(`() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]`)
	if err != nil {
		return nil, err
	}
	pair, _ := size.([]any)
	if len(pair) != 2 {
		return nil, nil
	}
	width, height := number(pair[0]), number(pair[1])
	scale := v.size.Scale
	tall := min(maxTall/scale, maxPixels/(scale*scale*max(width, 1)))
	if height <= tall && width <= maxTall/scale {
		return nil, nil
	}
	v.noteOnce("the page is too large: the picture shows its upper part")
	return &playwright.Rect{Width: min(width, maxTall/scale), Height: min(height, max(tall, 1))}, nil
}

func (v *view) noteOnce(text string) {
	for _, note := range v.notes {
		if note == text {
			return
		}
	}
	v.notes = append(v.notes, text)
}

// number returns a number from the browser.
func number(x any) float64 {
	switch n := x.(type) {
	case int:
		return float64(n)
	case float64:
		return n
	}
	return 0
}
