package trigger

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
)

// event is the content of an event with values of every kind.
func event(t *testing.T) fields {
	t.Helper()
	f, err := parseFields([]byte(`{"a":{"b":[{"c":"d"},7]},"yes":true,"no":false,"n":1.5,"id":12345678901234567890,"none":null,"text":"x\u0001\ty","list":[1]}`))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFields reads values of an event by their paths.
func TestFields(t *testing.T) {
	f := event(t)
	for path, want := range map[string]struct {
		value any // nil if there is none
		word  string
	}{
		"a.b.0.c": {"d", "d"}, "a.b.1": {7.0, "7"}, "yes": {true, "true"}, "no": {false, "false"}, "n": {1.5, "1.5"},
		"id": {"12345678901234567890", "12345678901234567890"}, "none": {nil, ""}, "text": {"x\ty", "x\x01\ty"},
		"list": {"[1]", ""}, "a.b.2": {nil, ""}, "a.b.-1": {nil, ""}, "a.b.x": {nil, ""}, "a.x": {nil, ""}, "yes.x": {nil, ""}, "": {nil, ""},
	} {
		v, ok := f.value(path)
		if v != want.value || ok != (want.value != nil) || f.word(path) != want.word {
			t.Errorf("%q: %#v, %t, %q; want %#v, %q", path, v, ok, f.word(path), want.value, want.word)
		}
	}
	var deep any = "x"
	for range maxDepth {
		deep = map[string]any{"k": deep}
	}
	path := strings.TrimSuffix(strings.Repeat("k.", maxDepth), ".")
	if v, ok := (fields(deep.(map[string]any))).at(path); !ok || v != "x" {
		t.Errorf("the deepest path: %v", v)
	}
	if _, ok := (fields{"k": deep}).at(path + ".k"); ok {
		t.Error("a path is too deep")
	}
}

// TestFits compares an event with the texts of a trigger.
func TestFits(t *testing.T) {
	f := event(t)
	for _, c := range []struct {
		when map[string]string
		want bool
	}{
		{nil, true}, {map[string]string{"a.b.0.c": "d"}, true}, {map[string]string{"a.b.0.c": "D"}, false},
		{map[string]string{"a.b.0.c": "d", "yes": "true"}, true}, {map[string]string{"a.b.0.c": "d", "yes": "false"}, false},
		{map[string]string{"missing": ""}, true},
	} {
		if got := f.fits(c.when); got != c.want {
			t.Errorf("%v fits: %t", c.when, got)
		}
	}
}

// TestFill gives workflows the values of an event, and tasks the whole event.
func TestFill(t *testing.T) {
	f := fields{"a": "`b`"}
	e := Event{Title: " a\n b\x00 "}.fill(&Trigger{Workflow: "w", Input: map[string]string{"x": "1"}, Take: map[string]string{"y": "a", "z": "no"}}, f)
	if e.Title != "a b" || e.Shown != "" || len(e.Values) != 2 || e.Values["x"] != "1" || e.Values["y"] != "`b`" {
		t.Errorf("%+v", e)
	}
	e = Event{}.fill(&Trigger{Task: "t"}, f)
	if e.Values != nil || strings.Contains(e.Shown, "`") || !json.Valid([]byte(e.Shown)) {
		t.Errorf("%+v", e)
	}
	if long := (fields{"a": strings.Repeat("x", 2*maxShown)}).shown(); len(long) > maxShown+len("…") || len(long) < maxShown-4 {
		t.Errorf("%d bytes are shown", len(long))
	}
	if got := oneLine(strings.Repeat("x", maxTitle+1)); got != strings.Repeat("x", maxTitle)+"…" {
		t.Errorf("a title of %d bytes", len(got))
	}
}

// TestKeys checks that each event has a key and a caller of its own.
func TestKeys(t *testing.T) {
	if digest("ab", "c") == digest("a", "bc") || len(digest()) != 32 {
		t.Error("digests do not tell texts apart")
	}
	one, err := callerOf("hook", "k")
	two, err2 := callerOf("hook", "l")
	if err != nil || err2 != nil || one == two || !strings.HasPrefix(one.String(), "run:hook-") {
		t.Errorf("%s and %s, %v", one, two, errors.Join(err, err2))
	}
}

// TestTimestamp accepts times at the edges of the window, and only digits.
func TestTimestamp(t *testing.T) {
	now := noon.Unix()
	for stamp, want := range map[string]bool{
		fmt.Sprint(now): true, fmt.Sprint(now - 300): true, fmt.Sprint(now + 300): true, fmt.Sprint(now - 301): false,
		fmt.Sprint(now + 301): false, "": false, "+" + fmt.Sprint(now): false, " " + fmt.Sprint(now): false, "x": false,
		"00" + fmt.Sprint(now): true, "000" + fmt.Sprint(now): false, "-1": false,
	} {
		if got, err := timestamp(stamp, noon); (err == nil) != want || want && got != stamp {
			t.Errorf("%q: %q, %v", stamp, got, err)
		}
	}
}

// TestVerify reads lists of signatures, of which only those of PagerDuty may have several.
func TestVerify(t *testing.T) {
	const body = `{"a":1}`
	for _, scheme := range []Scheme{SchemePagerDuty, SchemeGitHub, SchemeSentry} {
		header := map[Scheme]string{SchemePagerDuty: "X-PagerDuty-Signature", SchemeGitHub: "X-Hub-Signature-256", SchemeSentry: "Sentry-Hook-Signature"}[scheme]
		w := &Webhook{Scheme: scheme, Secret: secret}
		good := signed(scheme, secret, body, noon).Get(header)
		good = strings.TrimSpace(good[strings.LastIndexByte(good, ',')+1:])
		prefix := good[:len(good)-64]
		for name, c := range map[string]struct {
			value string
			want  bool
		}{
			"alone":              {good, true},
			"spaces":             {" " + good + " ", true},
			"second":             {prefix + strings.Repeat("0", 64) + "," + good, scheme == SchemePagerDuty},
			"first":              {good + "," + prefix + "00", true},
			"without its prefix": {good[len(prefix):], scheme == SchemeSentry},
			"another prefix":     {"v9=" + good[len(prefix):], false},
			"half":               {good[:len(good)-2], false},
			"no digits":          {prefix + strings.Repeat("x", 64), false},
			"none":               {"", false},
			"longest":            {good + "," + strings.Repeat("0", 2000-len(good)-1), true},
			"too long":           {good + "," + strings.Repeat("0", 2000-len(good)), false},
		} {
			_, err := w.verify(http.Header{http.CanonicalHeaderKey(header): {c.value}}, []byte(body), noon)
			if (err == nil) != c.want || err != nil && !errors.Is(err, ErrSignature) {
				t.Errorf("%s, %s: %v", scheme, name, err)
			}
		}
	}
}

// TestWebhookEvent checks ids and times of events, and the defaults of titles.
func TestWebhookEvent(t *testing.T) {
	parse := func(w Webhook, body string) (Event, error) {
		w.Scheme, w.Secret = SchemeSentry, secret
		one := &Trigger{Name: "hook", Repo: "app", Workflow: "w", Webhook: &w}
		e, _, err := one.parse(signed(SchemeSentry, secret, body, noon), []byte(body), noon)
		return e, err
	}
	stamp := func(d time.Duration) string { return fmt.Sprintf(`{"at":%q}`, noon.Add(d).Format(time.RFC3339)) }
	for name, c := range map[string]struct {
		hook Webhook
		body string
		want error
	}{
		"id":              {Webhook{ID: "id"}, `{"id":7}`, nil},
		"no id":           {Webhook{ID: "id"}, `{}`, ErrEvent},
		"longest id":      {Webhook{ID: "id"}, `{"id":"` + strings.Repeat("x", maxID) + `"}`, nil},
		"too long id":     {Webhook{ID: "id"}, `{"id":"` + strings.Repeat("x", maxID+1) + `"}`, ErrEvent},
		"no time":         {Webhook{Time: "at"}, `{}`, ErrEvent},
		"now":             {Webhook{Time: "at"}, stamp(0), nil},
		"oldest":          {Webhook{Time: "at"}, stamp(-oldest), nil},
		"too old":         {Webhook{Time: "at"}, stamp(-oldest - time.Second), ErrSignature},
		"latest":          {Webhook{Time: "at"}, stamp(window), nil},
		"from the future": {Webhook{Time: "at"}, stamp(window + time.Second), ErrSignature},
	} {
		if _, err := parse(c.hook, c.body); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if e, err := parse(Webhook{ID: "id", Time: "at", Title: "name"}, `{"id":"7","at":"2026-11-23T12:30:00+01:00","name":"disk"}`); err != nil ||
		e.Key != "id 7" || e.Title != "disk" || !e.Time.Equal(noon.Add(-30*time.Minute)) || e.Kind != KindWebhook {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := parse(Webhook{Title: "name"}, `{}`); err != nil || e.Title != "webhook of sentry" || !e.Time.Equal(noon) {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestWebhookCheck fills in the defaults of each scheme.
func TestWebhookCheck(t *testing.T) {
	for _, c := range []struct {
		hook, want Webhook
		good       bool
	}{
		{Webhook{}, Webhook{Scheme: SchemeRamus}, true},
		{Webhook{Scheme: SchemeGitHub}, Webhook{Scheme: SchemeGitHub}, true},
		{Webhook{Scheme: SchemePagerDuty}, Webhook{Scheme: SchemePagerDuty, ID: "event.id", Time: "event.occurred_at"}, true},
		{Webhook{Scheme: SchemePagerDuty, ID: "a", Time: "b"}, Webhook{Scheme: SchemePagerDuty, ID: "a", Time: "b"}, true},
		{Webhook{Scheme: "x"}, Webhook{Scheme: "x"}, false},
	} {
		c.hook.Secret, c.want.Secret = strings.Repeat("x", minSecret), strings.Repeat("x", minSecret)
		if err := c.hook.check(); (err == nil) != c.good || c.hook != c.want {
			t.Errorf("%+v, %v; want %+v", c.hook, err, c.want)
		}
	}
	if err := (&Webhook{Secret: strings.Repeat("x", minSecret-1)}).check(); err == nil {
		t.Error("a short secret is accepted")
	}
}

// TestSchedule reads schedules and shows them.
func TestSchedule(t *testing.T) {
	for _, c := range []struct {
		spec, zone string
		next       string // after noon; empty if the schedule is refused
		text       string
	}{
		{"0 3 * * *", "", "2026-11-24T03:00:00Z", "0 3 * * *"},
		{"0 3 * * *", "UTC", "2026-11-24T03:00:00Z", "0 3 * * *"},
		{"0 3 * * *", "Europe/Berlin", "2026-11-24T02:00:00Z", "0 3 * * * Europe/Berlin"},
		{"@daily", "", "2026-11-24T00:00:00Z", "@daily"},
		{"0 12 * * *", "", "2026-11-24T12:00:00Z", "0 12 * * *"},
		{"@every 5m", "", "", ""}, {" @every 5m", "", "", ""}, {"TZ=UTC 0 3 * * *", "", "", ""}, {"0 3 * *", "", "", ""},
		{"0 3 * * *", "Local", "", ""}, {"0 3 * * *", "No/Where", "", ""}, {"0 0 30 2 *", "", "", ""}, {strings.Repeat("0", 201), "", "", ""},
	} {
		s, err := ParseSchedule(c.spec, c.zone)
		if (err == nil) != (c.next != "") {
			t.Errorf("%q in %q: %v", c.spec, c.zone, err)
		}
		if err == nil && (s.Next(noon).Format(time.RFC3339) != c.next || s.String() != c.text) {
			t.Errorf("%q in %q: %s, next %s", c.spec, c.zone, s, s.Next(noon))
		}
	}
}

// TestMatches compares branches with patterns. Branches of callers never match.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		branch   string
		patterns []string
		want     bool
	}{
		{"main", []string{"main"}, true}, {"main", []string{"x", "ma*"}, true}, {"main", nil, false}, {"a/b", []string{"*"}, false},
		{"a/b", []string{"a/*"}, true}, {"", []string{"*"}, false}, {"ramus/run-x", []string{"*", "*/*"}, false}, {"main", []string{"["}, false},
	} {
		if got := matches(c.patterns, c.branch); got != c.want {
			t.Errorf("%q matches %q: %t", c.patterns, c.branch, got)
		}
	}
}

// TestShown describes causes and work in lists.
func TestShown(t *testing.T) {
	s, err := ParseSchedule("@daily", "")
	if err != nil {
		t.Fatal(err)
	}
	for want, one := range map[string]Trigger{
		"cron @daily":           {Cron: s},
		"webhook sentry":        {Webhook: &Webhook{Scheme: SchemeSentry}},
		"label bug":             {Issues: &Issues{Label: "bug"}},
		"issues":                {Issues: &Issues{}},
		"failed checks of a, b": {Checks: &Checks{Branches: []string{"a", "b"}}},
		"push to main":          {Push: &Push{Branches: []string{"main"}}},
		"":                      {},
	} {
		if got := one.Cause(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (&Trigger{Workflow: "w"}).Work(); got != "workflow w" {
		t.Error(got)
	}
	if got := (&Trigger{Task: "one\ntwo"}).Work(); got != "task one" {
		t.Error(got)
	}
	for id, want := range map[string]string{"w": ".ramus/workflows/w.yaml", "a/w": "a/w", "w.yaml": "w.yaml"} {
		if got := (&Trigger{Workflow: id}).workflowFile(); got != want {
			t.Errorf("the file of %s is %s", id, got)
		}
	}
	if (&Trigger{}).limit() != defaultLimit || (&Trigger{Limit: 1}).limit() != 1 || (&Trigger{Limit: -1}).limit() != defaultLimit {
		t.Error("the limit has another default")
	}
}

// TestCheckBounds accepts values at the bounds of the configuration.
func TestCheckBounds(t *testing.T) {
	inputs := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("i", i)] = "x"
		}
		return m
	}
	good := Trigger{Name: "n", Repo: "app", Push: &Push{Branches: []string{"main"}}, Workflow: "w"}
	for name, c := range map[string]struct {
		change func(*Trigger)
		good   bool
	}{
		"longest name":     {func(t *Trigger) { t.Name = strings.Repeat("a", 40) }, true},
		"too long name":    {func(t *Trigger) { t.Name = strings.Repeat("a", 41) }, false},
		"base":             {func(t *Trigger) { t.Base = "main" }, true},
		"wrong base":       {func(t *Trigger) { t.Base = "a..b" }, false},
		"longest path":     {func(t *Trigger) { t.When = map[string]string{strings.Repeat("a", maxPath): ""} }, true},
		"too long path":    {func(t *Trigger) { t.When = map[string]string{strings.Repeat("a", maxPath+1): ""} }, false},
		"no path":          {func(t *Trigger) { t.When = map[string]string{"": ""} }, false},
		"most inputs":      {func(t *Trigger) { t.Input = inputs(maxTaken) }, true},
		"too many inputs":  {func(t *Trigger) { t.Input, t.Take = inputs(maxTaken), map[string]string{"x": "a"} }, false},
		"taken":            {func(t *Trigger) { t.Take = map[string]string{"x": strings.Repeat("a", maxPath)} }, true},
		"taken too deep":   {func(t *Trigger) { t.Take = map[string]string{"x": strings.Repeat("a", maxPath+1)} }, false},
		"taken and fixed":  {func(t *Trigger) { t.Input, t.Take = map[string]string{"x": "1"}, map[string]string{"x": "a"} }, false},
		"longest task":     {func(t *Trigger) { t.Workflow, t.Task = "", strings.Repeat("x", maxTaskText) }, true},
		"too long task":    {func(t *Trigger) { t.Workflow, t.Task = "", strings.Repeat("x", maxTaskText+1) }, false},
		"agent of a task":  {func(t *Trigger) { t.Workflow, t.Task, t.Agent = "", "x", "codex" }, true},
		"input of a task":  {func(t *Trigger) { t.Workflow, t.Task, t.Input = "", "x", inputs(1) }, false},
		"no work":          {func(t *Trigger) { t.Workflow = "" }, false},
		"an empty pattern": {func(t *Trigger) { t.Push = &Push{Branches: []string{"main", ""}} }, false},
	} {
		one := good
		c.change(&one)
		if err := one.Check(); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIssueEvents counts new issues of trusted authors, or labels.
func TestIssueEvents(t *testing.T) {
	for _, c := range []struct {
		name  string
		cause Issues
		issue forge.Issue
		want  bool
	}{
		{"new issue of a member", Issues{}, forge.Issue{Opened: true, Association: "MEMBER"}, true},
		{"new issue of anybody", Issues{}, forge.Issue{Opened: true, Association: "NONE"}, false},
		{"old issue", Issues{}, forge.Issue{Association: "MEMBER"}, false},
		{"new issue of a named association", Issues{From: []string{"NONE"}}, forge.Issue{Opened: true, Association: "NONE"}, true},
		{"new issue of another association", Issues{From: []string{"NONE"}}, forge.Issue{Opened: true, Association: "MEMBER"}, false},
		{"label", Issues{Label: "bug"}, forge.Issue{Labeled: true, Label: "bug"}, true},
		{"another label", Issues{Label: "bug"}, forge.Issue{Labeled: true, Label: "x"}, false},
		{"label is removed", Issues{Label: "bug"}, forge.Issue{Label: "bug"}, false},
		{"new issue with a label", Issues{Label: "bug"}, forge.Issue{Opened: true, Association: "OWNER"}, false},
	} {
		e, f, ok := (&Trigger{Issues: &c.cause}).read(forge.Delivery{Number: 7, Digest: "d", Repo: forge.Name{Owner: "acme", Repo: "app"}, Issue: &c.issue})
		if ok != c.want || ok && (e.Key != "issue d" || e.Kind != KindIssue || f.word("number") != "7" || f.word("repo") != "acme/app") {
			t.Errorf("%s: %+v, %t", c.name, e, ok)
		}
	}
	if _, _, ok := (&Trigger{Issues: &Issues{}}).read(forge.Delivery{}); ok {
		t.Error("a delivery about no issue is one")
	}
	if _, _, ok := (&Trigger{Checks: &Checks{}}).read(forge.Delivery{}); ok {
		t.Error("a delivery about no check is one")
	}
}

// TestEntry keeps the state of a trigger on disk.
func TestEntry(t *testing.T) {
	dir := t.TempDir()
	e, err := openEntry(Trigger{Name: "n"}, dir, noon)
	if err != nil || !e.state.Since.Equal(noon) || !e.lastTime().Equal(noon) {
		t.Fatalf("%+v, %v", e, err)
	}
	fail := func(run string) bool {
		paused, err := e.count(run, true, "broken", noon)
		if err != nil {
			t.Fatal(err)
		}
		return paused
	}
	for _, run := range []string{"1", "1", "2"} {
		if fail(run) {
			t.Errorf("a pause after run %s", run)
		}
	}
	if e.state.Failures != 2 || e.state.Why != "broken" {
		t.Errorf("after two failures: %+v", e.state)
	}
	if _, err := e.count("3", false, "", noon); err != nil || e.state.Failures != 0 || e.state.Why != "" {
		t.Errorf("after a success: %+v, %v", e.state, err)
	}
	if fail("4") || fail("5") || !fail("6") || fail("7") || !e.state.Paused.Equal(noon) {
		t.Errorf("after four failures: %+v", e.state)
	}
	e.state.Counted = slices.Repeat([]string{"old"}, maxCounted)
	e.state.Counted[0] = "oldest"
	if _, err := e.count("new", false, "", noon); err != nil || len(e.state.Counted) != maxCounted ||
		e.state.Counted[maxCounted-1] != "new" || slices.Contains(e.state.Counted, "oldest") {
		t.Errorf("%d runs are remembered, %v", len(e.state.Counted), err)
	}
	again, err := openEntry(Trigger{Name: "n"}, dir, noon.Add(time.Hour))
	if err != nil || !again.state.Since.Equal(noon) || !again.lastTime().Equal(noon) || again.state.Paused.IsZero() {
		t.Errorf("%+v, %v", again, err)
	}
	for name, text := range map[string]string{"bad": "{", "long": strings.Repeat(" ", maxState+1)} {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openEntry(Trigger{Name: name}, dir, noon); err == nil {
			t.Errorf("the state %s is read", name)
		}
	}
	e.file = filepath.Join(dir, "none", "n.json")
	if err := e.change(func(s *state) { s.Failures = 99 }); err == nil || e.state.Failures != 0 {
		t.Errorf("a change that is not on disk is not undone: %v", err)
	}
	e.starts = []time.Time{noon, noon.Add(time.Minute)}
	if n := e.started(noon.Add(time.Hour - 1)); n != 2 {
		t.Errorf("%d in an hour", n)
	}
	if n := e.started(noon.Add(time.Hour)); n != 1 {
		t.Errorf("%d in an hour", n)
	}
}
