package gate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const (
	starter  = "U0A5KQ7U3N3"
	stranger = "U0STRANGER"
)

// narrow is the gate as a team first turns it on.
var narrow = Gate{Enabled: true, ThreadStarters: []string{starter}, Requesters: []string{"U0TESTER"}}

// decides checks a table of decisions.
func decides(t *testing.T, cases []decision) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := c.gate.Resolve(c.asked); got != c.want {
				t.Errorf("%+v\nof %+v\ngot  %+v\nwant %+v", c.asked, c.gate, got, c.want)
			}
		})
	}
}

type decision struct {
	name  string
	gate  Gate
	asked Asked
	want  Policy
}

func TestGateGlobalDisabled(t *testing.T) {
	everything := Gate{ThreadStarters: []string{starter}, Requesters: []string{starter}, Channels: []string{"C1"},
		Repos: []string{"app"}, Percentage: 100}
	asked := Asked{ThreadStarter: starter, Requester: starter, Text: "!!! fix it", Channel: "C1", Repo: "app",
		Session: "slack:T:C1:1"}
	decides(t, []decision{
		{"the zero gate", Gate{}, asked, Policy{RunnerFallback, ReasonGlobalDisabled, "!!! fix it"}},
		{"everything else is allowed", everything, asked, Policy{RunnerFallback, ReasonGlobalDisabled, "!!! fix it"}},
	})
}

func TestGateThreadParentAllowlist(t *testing.T) {
	decides(t, []decision{
		{"starter, asked by himself", narrow, Asked{ThreadStarter: starter, Requester: starter, Text: " fix it "},
			Policy{RunnerContainer, ReasonThreadStarter, " fix it "}},
		{"starter, asked by anybody", narrow, Asked{ThreadStarter: starter, Requester: stranger, Text: "fix it"},
			Policy{RunnerContainer, ReasonThreadStarter, "fix it"}},
		{"the prefix stays: it decided nothing", narrow, Asked{ThreadStarter: starter, Requester: "U0TESTER",
			Text: "!!! fix it"}, Policy{RunnerContainer, ReasonThreadStarter, "!!! fix it"}},
		{"a stranger's thread", narrow, Asked{ThreadStarter: stranger, Requester: starter, Text: "fix it"},
			Policy{RunnerFallback, ReasonNotAllowlisted, "fix it"}},
		{"nobody's thread", narrow, Asked{Requester: starter, Text: "fix it"},
			Policy{RunnerFallback, ReasonNotAllowlisted, "fix it"}},
		{"an empty entry allows nobody", Gate{Enabled: true, ThreadStarters: []string{""}}, Asked{Text: "x"},
			Policy{RunnerFallback, ReasonNotAllowlisted, "x"}},
		{"ids are not names: case counts", narrow, Asked{ThreadStarter: strings.ToLower(starter), Text: "x"},
			Policy{RunnerFallback, ReasonNotAllowlisted, "x"}},
	})
}

func TestGatePrefixStripping(t *testing.T) {
	other := narrow
	other.Prefix = "ramus!"
	ask := func(text string) Asked { return Asked{ThreadStarter: stranger, Requester: "U0TESTER", Text: text} }
	through := func(prompt string) Policy { return Policy{RunnerContainer, ReasonExplicitPrefix, prompt} }
	decides(t, []decision{
		{"with a space", narrow, ask("!!! fix it"), through("fix it")},
		{"without", narrow, ask("!!!fix it"), through("fix it")},
		{"space before and after", narrow, ask(" \n\u00a0!!!\t\u2003 fix it  "), through("fix it  ")},
		{"only once", narrow, ask("!!! !!! fix"), through("!!! fix")},
		{"four marks are the prefix and one more", narrow, ask("!!!! fix"), through("! fix")},
		{"nothing left", narrow, ask("!!!"), through("")},
		{"two marks", narrow, ask("!! fix"), Policy{RunnerFallback, ReasonNotAllowlisted, "!! fix"}},
		{"not at the beginning", narrow, ask("fix it !!!"), Policy{RunnerFallback, ReasonNotAllowlisted, "fix it !!!"}},
		{"another prefix", other, ask("ramus! fix"), through("fix")},
		{"then the default is none", other, ask("!!! fix"), Policy{RunnerFallback, ReasonNotAllowlisted, "!!! fix"}},
	})
}

func TestGateNonAllowlistedPrefixDenied(t *testing.T) {
	decides(t, []decision{
		{"a stranger", narrow, Asked{Requester: stranger, Text: "!!! fix it"},
			Policy{RunnerFallback, ReasonNotAllowlisted, "!!! fix it"}},
		{"nobody", narrow, Asked{Text: "!!! fix it"}, Policy{RunnerFallback, ReasonNotAllowlisted, "!!! fix it"}},
		{"a starter who is no requester", narrow, Asked{ThreadStarter: stranger, Requester: starter,
			Text: "!!! fix it"}, Policy{RunnerFallback, ReasonNotAllowlisted, "!!! fix it"}},
		{"a requester without the prefix", narrow, Asked{Requester: "U0TESTER", Text: "fix it"},
			Policy{RunnerFallback, ReasonNotAllowlisted, "fix it"}},
	})
}

func TestGateWidening(t *testing.T) {
	wide := func(change func(*Gate)) Gate {
		g := narrow
		change(&g)
		return g
	}
	channels := wide(func(g *Gate) { g.Channels = []string{"C1"} })
	repos := wide(func(g *Gate) { g.Repos = []string{"team/app"} })
	all := wide(func(g *Gate) { g.Percentage = 100 })
	everything := wide(func(g *Gate) { g.Channels, g.Repos, g.Percentage = []string{"C1"}, []string{"team/app"}, 100 })
	asked := Asked{ThreadStarter: stranger, Requester: stranger, Text: "!!! x", Channel: "C1", Repo: "team/app",
		Session: "slack:T:C1:1"}
	prefixed := asked
	prefixed.Requester = "U0TESTER"
	decides(t, []decision{
		{"channel", channels, asked, Policy{RunnerContainer, ReasonChannelAllowlist, "!!! x"}},
		{"another channel", channels, Asked{Channel: "C2", Text: "x"}, Policy{RunnerFallback, ReasonNotAllowlisted, "x"}},
		{"repository", repos, asked, Policy{RunnerContainer, ReasonRepoAllowlist, "!!! x"}},
		{"another repository", repos, Asked{Repo: "team/app2", Text: "x"},
			Policy{RunnerFallback, ReasonNotAllowlisted, "x"}},
		{"everybody", all, asked, Policy{RunnerContainer, ReasonPercentage, "!!! x"}},
		{"a thread that is not known", all, Asked{Text: "x"}, Policy{RunnerFallback, ReasonNotAllowlisted, "x"}},
		{"the narrow reasons come first", everything, prefixed, Policy{RunnerContainer, ReasonExplicitPrefix, "x"}},
		{"channel before repository before percentage", everything, asked,
			Policy{RunnerContainer, ReasonChannelAllowlist, "!!! x"}},
	})
}

// A percentage lets through about that part of all threads, always the same
// ones, and none that was in is out when it is raised.
func TestGatePercentage(t *testing.T) {
	const threads = 10000
	in := make([]bool, threads)
	for _, percentage := range []float64{0, 0.5, 10, 20, 50, 99, 100, 1000} {
		n := 0
		for i := range threads {
			g := Gate{Enabled: true, Percentage: percentage}
			p := g.Resolve(Asked{Session: fmt.Sprintf("slack:T1:C%d:17000%05d.000100", i%7, i)})
			if p.Runner == RunnerContainer {
				n++
			} else if in[i] {
				t.Fatalf("thread %d was in, and is out at %g %%", i, percentage)
			}
			in[i] = p.Runner == RunnerContainer
		}
		want := min(percentage, 100) / 100 * threads
		if math.Abs(float64(n)-want) > 0.015*threads {
			t.Errorf("at %g %% %d of %d threads are in", percentage, n, threads)
		}
		if percentage == 0 && n > 0 || percentage >= 100 && n < threads {
			t.Errorf("at %g %% %d of %d threads are in", percentage, n, threads)
		}
	}
	for _, none := range []float64{math.NaN(), -1, math.Inf(-1)} {
		if p := (Gate{Enabled: true, Percentage: none}).Resolve(Asked{Session: "s"}); p.Runner != RunnerFallback {
			t.Errorf("%g %% lets threads through", none)
		}
	}
}

// sketched decides as the function that this gate goes back to: the four first
// reasons alone, written down line by line.
func sketched(enabled bool, threadParent *string, requester, text string, starters, requesters map[string]bool, optInPrefix *string) Policy {
	if !enabled {
		return Policy{"fallback", "global-disabled", text}
	}
	if threadParent != nil && *threadParent != "" && starters[*threadParent] {
		return Policy{"container", "thread-starter-allowlist", text}
	}
	prefix := "!!!"
	if optInPrefix != nil {
		prefix = *optInPrefix
	}
	const space = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
	trimmed := strings.TrimLeft(text, space)
	explicit := len(trimmed) >= len(prefix) && trimmed[:len(prefix)] == prefix
	if explicit && requesters[requester] {
		return Policy{"container", "explicit-prefix", strings.TrimLeft(trimmed[len(prefix):], space)}
	}
	return Policy{"fallback", "not-allowlisted", text}
}

func asSketched(t *testing.T, g Gate, a Asked) {
	t.Helper()
	set := func(ids []string) map[string]bool {
		m := map[string]bool{}
		for _, id := range ids {
			if id != "" {
				m[id] = true
			}
		}
		return m
	}
	var prefix *string
	if g.Prefix != "" {
		prefix = &g.Prefix
	}
	narrowed := g
	narrowed.Channels, narrowed.Repos, narrowed.Percentage = nil, nil, 0
	want := sketched(g.Enabled, &a.ThreadStarter, a.Requester, a.Text, set(g.ThreadStarters), set(g.Requesters), prefix)
	if got := narrowed.Resolve(a); got != want {
		t.Fatalf("%+v of %+v: got %+v, want %+v", a, g, got, want)
	}
	if g.Enabled && g.Excludes(a.Repo) {
		if got := g.Resolve(a); got != (Policy{RunnerFallback, ReasonRepoExcluded, a.Text}) {
			t.Fatalf("%+v of %+v: got %+v", a, g, got)
		}
		return
	}
	// Widening only ever turns not-allowlisted into something else.
	got := g.Resolve(a)
	if want.Reason != ReasonNotAllowlisted && got != want {
		t.Fatalf("%+v of %+v: widening turned %+v into %+v", a, g, want, got)
	}
	if want.Reason == ReasonNotAllowlisted && got.Prompt != a.Text {
		t.Fatalf("%+v of %+v: the text became %q", a, g, got.Prompt)
	}
	if again := g.Resolve(a); again != got {
		t.Fatalf("%+v of %+v: %+v, then %+v", a, g, got, again)
	}
	if (got.Runner == RunnerContainer) != slices.Contains([]PolicyReason{ReasonThreadStarter, ReasonExplicitPrefix,
		ReasonChannelAllowlist, ReasonRepoAllowlist, ReasonPercentage}, got.Reason) {
		t.Fatalf("runner %s for the reason %s", got.Runner, got.Reason)
	}
}

func TestGateDecidesAsSketched(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	some := func(from ...string) (list []string) {
		for _, s := range from {
			if r.IntN(3) == 0 {
				list = append(list, s)
			}
		}
		return list
	}
	for range 5000 {
		asSketched(t,
			Gate{Enabled: r.IntN(4) > 0, ThreadStarters: some("U1", "U2", ""), Requesters: some("U1", "U3", ""),
				Prefix:   pick("", "", "!!!", "go!", "!"),
				Channels: some("C1", ""), Repos: some("app", "", "!lib", "!*"), Percentage: r.Float64()*140 - 20},
			Asked{ThreadStarter: pick("", "U1", "U2", "U3"), Requester: pick("", "U1", "U2", "U3"),
				Text: pick("", " ", "\ufeff", "\u0085") + pick("", "!!!", "!", "go!", "!!!!") +
					pick("", " ", "\u2028") + pick("", "fix it", "!!!"),
				Channel: pick("", "C1", "C2"), Repo: pick("", "app", "lib"),
				Session: pick("", "slack:T:C:1", "slack:T:C:2", "slack:T:C:3")})
	}
}

// An excluded repository is closed to every thread and person, even if another rule lets them through.
func TestGateExcludes(t *testing.T) {
	open := Gate{Enabled: true, ThreadStarters: []string{starter}, Requesters: []string{starter},
		Channels: []string{"C1"}, Percentage: 100,
		People: map[string]Permission{starter: {May: Deeds()}, PersonAnybody: {May: Deeds()}}}
	for _, x := range []struct {
		repos []string
		repo  string
		want  bool
	}{
		{nil, "app", false},
		{[]string{"app"}, "lib", false},
		{[]string{"!lib"}, "lib", true},
		{[]string{"!lib"}, "app", false},
		{[]string{"lib", "!lib"}, "lib", true},
		{[]string{"!*"}, "app", true},
		{[]string{"app", "!*"}, "app", false},
		{[]string{"app", "!*"}, "lib", true},
		{[]string{"app", "!*"}, "", false},
		{[]string{"!"}, "", false},
	} {
		g := open
		g.Repos = x.repos
		p := g.Resolve(Asked{ThreadStarter: starter, Requester: starter, Text: "!!! x", Channel: "C1", Repo: x.repo,
			Session: "slack:T:C1:1"})
		if (p.Runner == RunnerFallback) != x.want || x.want && p.Reason != ReasonRepoExcluded {
			t.Errorf("%q of %q: %+v", x.repo, x.repos, p)
		}
		g.People = nil
		for _, people := range []map[string]Permission{nil, open.People} {
			g.People = people
			if got := g.Permits(Doing{Deed: DeedRun, Person: starter, Starter: starter, Repo: x.repo, Own: true}); got == x.want {
				t.Errorf("%q of %q: permitted %t", x.repo, x.repos, got)
			}
		}
	}
}

func FuzzGate(f *testing.F) {
	f.Add(true, "U1", "U1", "!!! fix", "U1 U2", "U1", "!!!", "C1", "app", 10.0)
	f.Add(true, "", "U1", "\u00a0!!!fix", "", "U1", "", "", "", 0.0)
	f.Add(false, "U1", "", "", "U1", "", "x", "C1", "app", 100.0)
	f.Fuzz(func(t *testing.T, enabled bool, from, by, text, starters, requesters, prefix, channel, repo string,
		percentage float64) {
		asSketched(t, Gate{Enabled: enabled, ThreadStarters: strings.Fields(starters),
			Requesters: strings.Fields(requesters), Prefix: prefix,
			Channels: strings.Fields(channel), Repos: strings.Fields(repo), Percentage: percentage},
			Asked{ThreadStarter: from, Requester: by, Text: text, Channel: channel, Repo: repo, Session: from + by})
	})
}

func TestGatePermits(t *testing.T) {
	gate := Gate{ThreadStarters: []string{"U01"}, Requesters: []string{"U02"}, Repos: []string{"open"}}
	rules := gate
	rules.People = map[string]Permission{
		"U05":         {May: []Deed{DeedRun, DeedMerge}, Repos: []string{"app"}},
		"U06":         {May: []Deed{DeedApprove}},
		PersonStarter: {May: []Deed{DeedRun}},
	}
	everybody := Gate{People: map[string]Permission{PersonAnybody: {May: Deeds()}}}
	for _, x := range []struct {
		name            string
		gate            Gate
		deed            Deed
		person, starter string
		repo            string
		own, want       bool
	}{
		{"an allowed starter", gate, DeedMerge, "U01", "U01", "any", false, true},
		{"an allowed requester in another's thread", gate, DeedRun, "U02", "U01", "any", false, true},
		{"anybody in an allowed thread", gate, DeedRun, "U03", "U01", "app", true, false},
		{"anybody merges", gate, DeedMerge, "U03", "U01", "app", true, false},
		{"anybody approves", gate, DeedApprove, "U03", "U01", "app", true, false},
		{"a starter in the thread's own repository", gate, DeedMerge, "U04", "U04", "app", true, true},
		{"a starter names another repository", gate, DeedRun, "U04", "U04", "secret", false, false},
		{"a starter names one that is open", gate, DeedRun, "U04", "U04", "open", false, true},
		{"nobody", gate, DeedRun, "", "", "app", true, false},
		{"a rule", rules, DeedMerge, "U05", "U01", "app", true, true},
		{"a rule of another repository", rules, DeedMerge, "U05", "U01", "web", true, false},
		{"a rule of another deed", rules, DeedRun, "U06", "U01", "app", true, false},
		{"a rule for every repository", rules, DeedApprove, "U06", "U01", "web", false, true},
		{"rules take the place of the lists", rules, DeedRun, "U02", "U01", "app", true, false},
		{"the starter by a rule", rules, DeedRun, "U04", "U04", "web", false, true},
		{"the starter has no rule to merge", rules, DeedMerge, "U04", "U04", "app", true, false},
		{"everybody by a rule", everybody, DeedApprove, "U99", "U01", "app", false, true},
	} {
		if got := x.gate.Permits(Doing{Deed: x.deed, Person: x.person, Starter: x.starter, Repo: x.repo, Own: x.own}); got != x.want {
			t.Errorf("%s: %t", x.name, got)
		}
	}
}
