package browser

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/internal/pattern"
	shorten "github.com/ramus-dev/ramus/internal/text"
)

// Bounds on the values of a spec.
const (
	maxViewports = 10
	maxSteps     = 200
	maxPatterns  = 100 // of all lists of Allow together
	maxMasks     = 100
	maxWait      = 15 * time.Minute
	maxTimeout   = 15 * time.Minute

	// The bounds below are in bytes.
	maxName     = 100
	maxCommand  = 16 << 10
	maxURL      = 2_000
	maxSelector = 2_000
	maxValue    = 64 << 10
	maxPattern  = 1_000
)

// Defaults of a spec.
const (
	DefaultWait        = time.Minute
	DefaultTimeout     = 2 * time.Minute
	DefaultStepTimeout = 10 * time.Second
	// DefaultThreshold is the allowed distance of two colours.
	DefaultThreshold = 0.1
)

// Complete checks a spec that was made in Go, and sets every default except URL and Start, like [Parse]. The error
// names all mistakes.
func (s Spec) Complete() (Spec, error) {
	s.fill()
	var all []error
	for _, m := range s.mistakes() {
		all = append(all, errors.New(m.text))
	}
	if len(all) > 0 {
		return Spec{}, fmt.Errorf("the check is not valid: %w", errors.Join(all...))
	}
	return s, nil
}

// fill sets the defaults. It does not change slices that s shares with others.
func (s *Spec) fill() {
	if s.Name == "" {
		s.Name = "page"
	}
	if s.Dir != "" {
		if s.Dir = path.Clean(s.Dir); s.Dir == "." {
			s.Dir = ""
		}
	}
	if s.Wait == 0 {
		s.Wait = Duration(DefaultWait)
	}
	if s.Timeout == 0 {
		s.Timeout = Duration(DefaultTimeout)
	}
	s.Viewports, s.Steps = slices.Clone(s.Viewports), slices.Clone(s.Steps)
	if len(s.Viewports) == 0 {
		s.Viewports = []Viewport{Desktop, Mobile}
	}
	for i := range s.Viewports {
		v := &s.Viewports[i]
		if v.Scale == 0 {
			v.Scale = 1
		}
		if v.Name == "" {
			v.Name = fmt.Sprintf("%dx%d", v.Width, v.Height)
		}
	}
	for i := range s.Steps {
		if s.Steps[i].Timeout == 0 {
			s.Steps[i].Timeout = Duration(DefaultStepTimeout)
		}
	}
	if s.Compare != nil && s.Compare.Threshold == 0 {
		against := *s.Compare
		against.Threshold = DefaultThreshold
		s.Compare = &against
	}
}

// mistake is a mistake in one field. at is the path of the field, "steps.3.timeout", and text a sentence.
type mistake struct{ at, text string }

// child returns the path of an item of a list.
func child(at string, i int) string { return at + "." + strconv.Itoa(i) }

// inWords returns a path for use in a sentence, as "timeout of step 4" or "allow.console, item 2".
func inWords(at string) string {
	parts := strings.Split(at, ".")
	for i := 1; i < len(parts); i++ {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			continue
		}
		what := strings.Join(parts[:i], ".")
		switch what {
		case "steps", "viewports":
			what = strings.TrimSuffix(what, "s") + " " + strconv.Itoa(n+1)
		default:
			what += ", item " + strconv.Itoa(n+1)
		}
		if rest := strings.Join(parts[i+1:], "."); rest != "" {
			return rest + " of " + what
		}
		return what
	}
	return at
}

// mistakes returns all mistakes of a spec whose defaults are set.
func (s Spec) mistakes() []mistake {
	c := &checker{}
	c.name("name", s.Name)
	for _, l := range []struct{ at, line string }{{"install", s.Install}, {"start", s.Start}, {"auth", s.Auth}} {
		if c.length(l.at, l.line, maxCommand) && strings.IndexByte(l.line, 0) >= 0 {
			c.add(l.at, "contains a NUL byte, which no command line can hold")
		}
	}
	c.dir(s.Dir)
	if s.URL != "" {
		c.address("url", s.URL, true)
	}
	if s.Start == "none" && s.URL == "" {
		c.add("start", "is none, so url must have the address of the page")
	}
	c.within("wait", time.Duration(s.Wait), time.Second, maxWait)
	c.within("timeout", time.Duration(s.Timeout), time.Second, maxTimeout)
	c.viewports(s.Viewports)
	if len(s.Steps) > maxSteps {
		c.add("steps", "are %d, and the limit is %d", len(s.Steps), maxSteps)
	}
	for i, step := range s.Steps[:min(len(s.Steps), maxSteps)] {
		c.step(child("steps", i), step)
	}
	c.allow(s.Allow)
	if s.Screenshot.Selector != "" {
		c.selector("screenshot.selector", s.Screenshot.Selector)
	}
	if len(s.Screenshot.Mask) > maxMasks {
		c.add("screenshot.mask", "has %d selectors, and the limit is %d", len(s.Screenshot.Mask), maxMasks)
	}
	for i, m := range s.Screenshot.Mask[:min(len(s.Screenshot.Mask), maxMasks)] {
		c.selector(child("screenshot.mask", i), m)
	}
	if a := s.Compare; a != nil {
		if a.Base != "" && (len(a.Base) > 250 || strings.HasPrefix(a.Base, "-") || strings.Contains(a.Base, "..") ||
			strings.ContainsFunc(a.Base,
				func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("~^:?*[\\", r) })) {
			c.add("compare.base", "must be a branch or a commit, not %.200q", a.Base)
		}
		if a.MaxChanged != nil && !(*a.MaxChanged >= 0 && *a.MaxChanged <= 1) {
			c.add("compare.max_changed", "must be a share from 0 to 1, not %v", *a.MaxChanged)
		}
		if !(a.Threshold >= 0 && a.Threshold <= 1) {
			c.add("compare.threshold", "must be from 0 to 1, not %v", a.Threshold)
		}
		if err := checkRegion(a.Region); err != nil {
			c.add("compare.region", "%v", err)
		}
	}
	if s.Clock != "" {
		if _, err := time.Parse(time.RFC3339, s.Clock); err != nil {
			c.add("clock", `must be a time like "2026-03-01T12:00:00Z" (RFC 3339), not %.100q`, s.Clock)
		}
	}
	return c.found
}

// checker collects mistakes.
type checker struct{ found []mistake }

func (c *checker) add(at, format string, args ...any) {
	c.found = append(c.found, mistake{at, inWords(at) + " " + fmt.Sprintf(format, args...)})
}

func (c *checker) length(at, text string, most int) bool {
	switch {
	case !utf8.ValidString(text):
		c.add(at, "is not UTF-8")
	case len(text) > most:
		c.add(at, "has %d bytes, and the limit is %d", len(text), most)
	default:
		return true
	}
	return false
}

func (c *checker) name(at, name string) {
	if c.length(at, name, maxName) && (strings.TrimSpace(name) == "" ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })) {
		c.add(at, "must be a readable name, not %q", name)
	}
}

func (c *checker) dir(dir string) {
	if dir == "" || !c.length("dir", dir, 1000) {
		return
	}
	for part := range strings.SplitSeq(dir, "/") {
		if part == ".." || part == "" || strings.EqualFold(part, ".git") || strings.ContainsFunc(part, unicode.IsControl) {
			c.add("dir", "must be a folder below the root of the repository, not %q", dir)
			return
		}
	}
}

func (c *checker) within(at string, d, least, most time.Duration) {
	if d < least || d > most {
		c.add(at, "must be %v to %v, not %v", Duration(least), Duration(most), Duration(d))
	}
}

// address checks the address of a page. If absolute is false, a path on the page's host is allowed too.
func (c *checker) address(at, text string, absolute bool) {
	if text == "" {
		c.add(at, "is empty; it must be an address or a path")
		return
	}
	if !c.length(at, text, maxURL) {
		return
	}
	u, err := url.Parse(text)
	if err != nil {
		// The error of net/url repeats the whole address, which may have a password in it.
		c.add(at, "is not a valid address")
		return
	}
	port, _ := strconv.Atoi(u.Port())
	switch {
	case u.User != nil:
		c.add(at, "has a name or a password in it, which evidence would show: sign in by a step with secret: true, or by auth")
	case !absolute && u.Scheme == "" && u.Host == "":
	case u.Scheme != "http" && u.Scheme != "https" && absolute && !strings.Contains(text, "://") &&
		!strings.HasPrefix(text, "/"):
		c.add(at, "must begin with http:// or https://; did you mean %q?", "http://"+shorten.Clip(text, 200))
	case u.Scheme != "http" && u.Scheme != "https":
		c.add(at, "must begin with http:// or https://, not %q", shorten.Clip(text, 200))
	case u.Hostname() == "":
		c.add(at, "has no host")
	case u.Port() != "" && (port < 1 || port > 65535):
		c.add(at, "has the port %s; ports are 1 to 65535", u.Port())
	}
}

// viewportName is the form of a viewport's name, which is also the name of a folder of evidence.
var viewportName = pattern.New(`^[a-z0-9][a-z0-9-]{0,39}$`)

func (c *checker) viewports(list []Viewport) {
	if len(list) > maxViewports {
		c.add("viewports", "are %d, and the limit is %d", len(list), maxViewports)
		return
	}
	seen := map[string]bool{}
	for i, v := range list {
		at := child("viewports", i)
		before := len(c.found)
		switch {
		case !viewportName.MatchString(v.Name):
			c.add(at+".name", "must be 1 to 40 of a-z, 0-9 and -, not %.100q", v.Name)
		case seen[v.Name]:
			c.add(at+".name", "is %q, like that of another viewport", v.Name)
		}
		seen[v.Name] = true
		if v.Width < 200 || v.Width > 4000 {
			c.add(at+".width", "must be 200 to 4000 CSS pixels, not %d", v.Width)
		}
		if v.Height < 200 || v.Height > 8000 {
			c.add(at+".height", "must be 200 to 8000 CSS pixels, not %d", v.Height)
		}
		if !(v.Scale >= 0.5 && v.Scale <= 4) {
			c.add(at+".scale", "must be 0.5 to 4, not %v", v.Scale)
		}
		area := float64(v.Width) * float64(v.Height) * v.Scale * v.Scale
		if len(c.found) == before && area > maxPicture {
			c.add(at, "has %d megapixels, and the limit is %d", int(math.Ceil(area/1e6)), maxPicture/1_000_000)
		}
	}
}

func (c *checker) selector(at, s string) {
	if strings.TrimSpace(s) == "" {
		c.add(at, `is empty; it must be a selector, like "#id", "button" or "text=Save"`)
		return
	}
	c.length(at, s, maxSelector)
}

func (c *checker) step(at string, s Step) {
	if !slices.Contains(actions, s.Do) {
		if s.Do == "" {
			c.add(at, "has no action; it needs one of %s", strings.Join(actions, ", "))
			return
		}
		c.add(at, "has no action %.100q; known are %s", s.Do, strings.Join(actions, ", "))
		return
	}
	target := at + "." + s.Do
	switch s.Do {
	case "goto", "expect_url":
		c.address(target, s.Target, false)
	case "press":
		if s.Target == "" {
			c.add(target, `is empty; it must be a key, like "Enter" or "Control+A"`)
		}
		c.length(target, s.Target, 100)
	case "screenshot":
		c.name(target, s.Target)
	case "expect_title":
		if strings.TrimSpace(s.Target) == "" {
			c.add(target, "is empty; it must be the title, or a part of it")
		}
		c.length(target, s.Target, maxSelector)
	default:
		c.selector(target, s.Target)
	}
	value := at + ".value"
	switch s.Do {
	case "fill":
		c.length(value, s.Value, maxValue)
	case "select", "expect_text":
		if strings.TrimSpace(s.Value) == "" {
			c.add(value, "is missing: %s needs %s", s.Do,
				map[string]string{"select": "an option", "expect_text": "a text"}[s.Do])
		}
		c.length(value, s.Value, maxValue)
	case "expect_count":
		if n, err := strconv.Atoi(s.Value); err != nil || n < 0 || n > 1_000_000 {
			c.add(value, "must be a number of elements, not %.100q", s.Value)
		}
	default:
		if s.Value != "" {
			c.add(value, "is not used by %s", s.Do)
		}
	}
	if s.In != "" {
		if s.Do != "press" {
			c.add(at+".in", "is not used by %s", s.Do)
		}
		c.selector(at+".in", s.In)
	}
	if s.Secret && s.Do != "fill" {
		c.add(at+".secret", "is only for fill; %s shows its value", s.Do)
	}
	c.within(at+".timeout", time.Duration(s.Timeout), time.Millisecond, maxTimeout)
}

func (c *checker) allow(a Allow) {
	if n := len(a.Console) + len(a.PageErrors) + len(a.Requests); n > maxPatterns {
		c.add("allow", "has %d patterns, and the limit is %d", n, maxPatterns)
		return
	}
	for _, l := range []struct {
		at   string
		list []string
	}{{"allow.console", a.Console}, {"allow.page_errors", a.PageErrors}, {"allow.requests", a.Requests}} {
		for i, p := range l.list {
			at := child(l.at, i)
			if p == "" {
				c.add(at, "is empty and would allow everything; write .* to do that")
				continue
			}
			if !c.length(at, p, maxPattern) {
				continue
			}
			var wrong *syntax.Error
			if _, err := regexp.Compile(p); errors.As(err, &wrong) {
				c.add(at, "is not a regular expression (RE2): %s: %.100q", wrong.Code, wrong.Expr)
			}
		}
	}
}

// Slug returns Name as the name of a folder, of 1 to 60 characters a-z, 0-9 and -. Different names may have the same
// slug.
func (s Spec) Slug() string {
	var b strings.Builder
	for _, r := range strings.ToLower(s.Name) {
		if b.Len() == 60 {
			break
		}
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	if slug := strings.Trim(b.String(), "-"); slug != "" {
		return slug
	}
	return "page"
}

// checkRegion returns the mistake of a region, or nil.
func checkRegion(region []int) error {
	if len(region) == 0 {
		return nil
	}
	if len(region) != 4 {
		return fmt.Errorf("must have four numbers (left, top, width, height), not %d", len(region))
	}
	for i, n := range region {
		if n < i/2 || n > maxSide { // width and height are at least 1
			return fmt.Errorf("must have numbers from 0 to %d, and a width and height of at least 1, not %d", maxSide, n)
		}
	}
	return nil
}
