package main

import (
	"fmt"
	"regexp"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// allowed is a browser.Allow, compiled.
type allowed struct {
	console, pageErrors, requests []*regexp.Regexp
}

func compileAllow(a browser.Allow) (allowed, error) {
	var out allowed
	for _, list := range []struct {
		name string
		from []string
		to   *[]*regexp.Regexp
	}{
		{"allow.console", a.Console, &out.console},
		{"allow.page_errors", a.PageErrors, &out.pageErrors},
		{"allow.requests", a.Requests, &out.requests},
	} {
		if len(list.from) > maxPatterns {
			return out, fmt.Errorf("%s: %d patterns are too many; at most %d", list.name, len(list.from), maxPatterns)
		}
		for _, text := range list.from {
			re, err := regexp.Compile(text)
			if err != nil {
				return out, fmt.Errorf("%s: %w", list.name, err)
			}
			*list.to = append(*list.to, re)
		}
	}
	return out, nil
}

func matches(patterns []*regexp.Regexp, text string) bool {
	for _, re := range patterns {
		if re.MatchString(text) {
			return true
		}
	}
	return false
}
