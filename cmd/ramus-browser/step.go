package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mxschmitt/playwright-go"

	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// redacted replaces a secret value.
const redacted = "[redacted]"

// steps performs the job's steps until one fails.
func (v *view) steps(ctx context.Context) []finding {
	for i, step := range v.job.spec.Steps {
		if context.Cause(ctx) != nil {
			return nil
		}
		limit := time.Duration(step.Timeout)
		if limit <= 0 {
			limit = defaultStepTime
		}
		s := &stepAtWork{view: v, Step: step, limit: limit, number: i + 1, secret: step.Secret}
		begun := time.Now()
		err := s.do(ctx)
		r := browser.StepResult{
			Do: step.Do, Target: text.Clip(step.Target, maxText), Value: text.Clip(step.Value, maxText),
			In:     text.Clip(step.In, maxText),
			Secret: s.secret, OK: err == nil, MS: time.Since(begun).Milliseconds(), Screenshot: s.picture,
		}
		if s.secret && r.Value != "" {
			r.Value = redacted
		}
		var found []finding
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause // the page or the time ended, which is reported instead
			} else {
				found = []finding{{rankStep, fmt.Sprintf("step %d, %s: %s", s.number, s.words(), s.explain(err))}}
				r.Screenshot, _ = s.screenshot(ctx)
			}
			r.Error = s.explain(err)
		}
		v.result.Steps = append(v.result.Steps, r)
		if serr := v.save(); serr != nil {
			return []finding{{rankEnd, serr.Error()}}
		}
		if err != nil {
			return found
		}
	}
	return nil
}

// stepAtWork is one step in progress.
type stepAtWork struct {
	*view
	browser.Step
	limit   time.Duration
	number  int
	secret  bool
	picture string
}

// words returns the step as people wrote it.
func (s *stepAtWork) words() string {
	words := s.Do
	if s.Target != "" {
		words += " " + strconv.Quote(text.Clip(s.Target, 100))
	}
	return words
}

// mismatch is an expectation that was not met in time.
type mismatch struct {
	want, got string
}

func (m *mismatch) Error() string { return fmt.Sprintf("want %s, got %s", m.want, m.got) }

// explain describes the error of a step. Playwright's own text could quote a secret value.
func (s *stepAtWork) explain(err error) string {
	var m *mismatch
	switch {
	case errors.As(err, &m):
		return fmt.Sprintf("%v (%v)", m, s.limit)
	case errors.Is(err, playwright.ErrTimeout) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s (%v)", s.stuck(), s.limit)
	case s.secret:
		return "the browser could not do it"
	}
	return plainError(err)
}

// stuck describes the state for which a step waited in vain.
func (s *stepAtWork) stuck() string {
	selector := s.Target
	if s.Do == "press" {
		selector = s.In
	}
	if s.Do == "goto" || selector == "" {
		return "the page did not answer in time"
	}
	count := -1
	err := within(s.hard, 2*time.Second, func() (err error) {
		count, err = s.page.Locator(selector).Count()
		return err
	})
	switch {
	case err != nil || count < 0:
		return "the page did not answer in time"
	case count == 0:
		return "no such element"
	}
	return "the element did not become ready"
}

// screenshot takes the step's picture.
func (s *stepAtWork) screenshot(context.Context) (string, error) {
	return s.view.picture(s.hard, fmt.Sprintf("step-%02d.png", s.number), browser.Shot{Mask: s.job.spec.Screenshot.Mask})
}

// do performs the step, within its time limit.
func (s *stepAtWork) do(ctx context.Context) (err error) {
	ms := playwright.Float(float64(s.limit.Milliseconds()))
	element := s.page.Locator(s.Target)
	// The driver enforces the time limit. A busy page could delay it.
	call := func(f func() error) error { return within(ctx, s.limit+2*time.Second, f) }
	switch s.Do {
	case "goto":
		to, err := s.job.resolve(s.Target)
		if err != nil {
			return err
		}
		return call(func() error {
			_, err := s.page.Goto(to.String(), playwright.PageGotoOptions{Timeout: ms})
			return err
		})
	case "click":
		return call(func() error { return element.Click(playwright.LocatorClickOptions{Timeout: ms}) })
	case "fill":
		return call(func() error {
			password, err := element.Evaluate(`e => e.type === "password"`, nil,
				playwright.LocatorEvaluateOptions{Timeout: ms})
			if err != nil {
				return err
			}
			if is, _ := password.(bool); is {
				s.secret = true
			} else if s.secret {
				// A password field shows dots, but this field shows its content.
				s.covered = append(s.covered, s.Target)
			}
			return element.Fill(s.Value, playwright.LocatorFillOptions{Timeout: ms})
		})
	case "press":
		if s.In == "" {
			return call(func() error { return s.page.Keyboard().Press(s.Target) })
		}
		return call(func() error {
			return s.page.Locator(s.In).Press(s.Target, playwright.LocatorPressOptions{Timeout: ms})
		})
	case "select":
		return call(func() error {
			_, err := element.SelectOption(playwright.SelectOptionValues{ValuesOrLabels: &[]string{s.Value}},
				playwright.LocatorSelectOptionOptions{Timeout: ms})
			return err
		})
	case "check":
		return call(func() error { return element.Check(playwright.LocatorCheckOptions{Timeout: ms}) })
	case "uncheck":
		return call(func() error { return element.Uncheck(playwright.LocatorUncheckOptions{Timeout: ms}) })
	case "hover":
		return call(func() error { return element.Hover(playwright.LocatorHoverOptions{Timeout: ms}) })
	case "wait_for":
		return call(func() error { return element.First().WaitFor(playwright.LocatorWaitForOptions{Timeout: ms}) })
	case "screenshot":
		s.picture, err = s.screenshot(ctx)
		return err
	case "expect_visible", "expect_hidden", "expect_text", "expect_count", "expect_url", "expect_title":
		return s.expect(ctx, call)
	}
	return fmt.Errorf("there is no step %q", s.Do)
}

// expect waits until an expectation is met.
func (s *stepAtWork) expect(ctx context.Context, call func(func() error) error) error {
	element := s.page.Locator(s.Target)
	ms := float64(s.limit.Milliseconds())
	assert := playwright.NewPlaywrightAssertions(ms)
	first := element.First()
	value := s.Value
	switch s.Do {
	case "expect_visible":
		if err := call(func() error { return assert.Locator(first).ToBeVisible() }); err != nil {
			return s.failed(ctx, err, &mismatch{"it visible", s.seen(element)})
		}
	case "expect_hidden":
		if err := call(func() error { return assert.Locator(first).ToBeHidden() }); err != nil {
			return s.failed(ctx, err, &mismatch{"it hidden", "it visible"})
		}
	case "expect_text":
		if err := call(func() error { return assert.Locator(first).ToContainText(value) }); err != nil {
			return s.failed(ctx, err, &mismatch{quoted(value), s.text(element)})
		}
	case "expect_count":
		n, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%q is no number", value)
		}
		if err := call(func() error { return assert.Locator(element).ToHaveCount(n) }); err != nil {
			return s.failed(ctx, err, &mismatch{strconv.Itoa(n), s.count(element)})
		}
	case "expect_title":
		if value == "" {
			value = s.Target
		}
		got, err := s.poll(ctx, func() (string, error) { return s.page.Title() },
			func(got string) bool { return strings.Contains(squash(got), squash(value)) })
		if err != nil {
			return s.failed(ctx, err, &mismatch{quoted(value), quoted(got)})
		}
	case "expect_url":
		want, err := s.job.resolve(s.Target)
		if err != nil {
			return err
		}
		got, err := s.poll(ctx, func() (string, error) { return s.page.URL(), nil },
			func(got string) bool { return got == want.String() })
		if err != nil {
			return s.failed(ctx, err, &mismatch{want.String(), text.Clip(got, 300)})
		}
	}
	return nil
}

// failed returns a mismatch, unless the page or the time of the whole check ended.
func (s *stepAtWork) failed(ctx context.Context, err error, m *mismatch) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return errors.Join(m, err)
}

// errWaited is the end of a poll.
var errWaited = errors.New("it did not come true")

// poll asks until the answer matches or the step's time is over.
func (s *stepAtWork) poll(ctx context.Context, ask func() (string, error), fits func(string) bool) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, errWaited)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for {
		answer := make(chan string, 1)
		err := within(ctx, s.limit, func() error {
			got, err := ask()
			answer <- got
			return err
		})
		if err == nil {
			last = <-answer
			if fits(last) {
				return last, nil
			}
		}
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// seen describes the elements that were found instead of a visible one.
func (s *stepAtWork) seen(l playwright.Locator) string {
	if s.count(l) == "0" {
		return "no such element"
	}
	return "it hidden"
}

// text returns the current text of an element.
func (s *stepAtWork) text(l playwright.Locator) string {
	if s.count(l) == "0" {
		return "no such element"
	}
	text := make(chan string, 1)
	err := within(s.hard, 2*time.Second, func() error {
		got, err := l.First().TextContent(playwright.LocatorTextContentOptions{Timeout: playwright.Float(1000)})
		text <- got
		return err
	})
	if err != nil {
		return "no answer"
	}
	return quoted(<-text)
}

// count returns the current number of elements.
func (s *stepAtWork) count(l playwright.Locator) string {
	count := make(chan int, 1)
	err := within(s.hard, 2*time.Second, func() error {
		n, err := l.Count()
		count <- n
		return err
	})
	if err != nil {
		return "no answer"
	}
	return strconv.Itoa(<-count)
}

// quoted returns a text of a page in quotes.
func quoted(s string) string { return `"` + text.Clip(squash(s), 200) + `"` }

// squash replaces every run of white space by one space, like a browser.
func squash(text string) string { return strings.Join(strings.Fields(text), " ") }
