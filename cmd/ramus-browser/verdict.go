package main

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// sum sets verdict and reason of a check from its views.
func sum(c *browser.Check) {
	c.Verdict = browser.Pass
	for _, v := range c.Views {
		c.Verdict = worse(c.Verdict, v.Verdict)
	}
	if len(c.Views) == 0 {
		c.Verdict = browser.Unverified
		return
	}
	if c.Verdict == browser.Pass {
		c.Reason = looked(c.Views)
		return
	}
	// Views with the same reason are reported together, those with the check's verdict first.
	type group struct {
		verdict browser.Verdict
		reason  string
		names   []string
	}
	var groups []*group
	for _, verdict := range []browser.Verdict{browser.Fail, browser.Unverified} {
	views:
		for _, v := range c.Views {
			if v.Verdict != verdict {
				continue
			}
			for _, g := range groups {
				if g.verdict == verdict && g.reason == v.Reason {
					g.names = append(g.names, v.Viewport.Name)
					continue views
				}
			}
			groups = append(groups, &group{verdict, v.Reason, []string{v.Viewport.Name}})
		}
	}
	var texts []string
	for _, g := range groups {
		if len(g.names) == len(c.Views) {
			texts = append(texts, g.reason)
			continue
		}
		texts = append(texts, strings.Join(g.names, ", ")+": "+g.reason)
	}
	c.Reason = strings.Join(texts, "; ")
}

// worse returns the worse of two verdicts. A seen fault counts more than a missing check.
func worse(a, b browser.Verdict) browser.Verdict {
	rank := func(v browser.Verdict) int {
		switch v {
		case browser.Pass:
			return 0
		case browser.Fail:
			return 2
		}
		return 1
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}

// looked describes the views that passed.
func looked(views []browser.View) string {
	var sizes []string
	steps, allowed := 0, 0
	for _, v := range views {
		sizes = append(sizes, fmt.Sprintf("%s %dx%d", v.Viewport.Name, v.Viewport.Width, v.Viewport.Height))
		steps += len(v.Steps)
		allowed += v.Allowed
	}
	text := fmt.Sprintf("%s at %s: %s, no errors", text.Clip(views[0].URL, 200), strings.Join(sizes, " and "),
		plural(steps, "step"))
	if allowed > 0 {
		text += fmt.Sprintf(" but %d that are allowed", allowed)
	}
	return text
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
