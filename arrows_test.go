package ramus_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ramus-dev/ramus"

// arrows says which room may import which. Sub-packages belong to their room;
// internal/ and a room itself are open to every room that needs them.
var arrows = map[string][]string{
	"gitd":       nil,
	"containers": nil,
	"tasks":      nil,
	"executor":   {"gitd", "containers", "tasks"},
	"gateway":    {"executor", "gitd"},
	"cmd":        {"gitd", "containers", "tasks", "executor", "gateway"},
	"internal":   nil,
	"examples":   nil,
	// Neither is the product: servers in place of Slack, GitHub, models and agents, and the measurements.
	"internal/standin": {"containers", "executor", "gateway"},
	"internal/bench":   {"containers", "executor", "gateway"},
	// It makes the files of pages, and is no part of a program.
	"internal/webbuild": nil,
	// It drives a browser by the package for tests of pages.
	"internal/demoweb": {"gateway", "internal/standin"},
}

// inside says which package of a room may import which packages of the rooms. internal/ is open to all. Packages whose
// name ends with "test" are for tests and may import all.
var inside = map[string][]string{
	"gitd": {"gitd/clone", "gitd/gitcmd", "gitd/gitfile", "gitd/grant", "gitd/history", "gitd/lfs", "gitd/object",
		"gitd/pack", "gitd/protocol", "gitd/refview", "gitd/sshd", "gitd/sshsig", "gitd/worktree"},
	"gitd/clone":        {"gitd/gitcmd", "gitd/history", "gitd/object", "gitd/pack", "gitd/protocol"},
	"gitd/gitcmd":       {"gitd/object"},
	"gitd/gitfile":      {"gitd/object"},
	"gitd/gitindex":     {"gitd/object"},
	"gitd/grant":        {"gitd/object"},
	"gitd/history":      {"gitd/object", "gitd/pack"},
	"gitd/lfs":          {"gitd/object"},
	"gitd/object":       nil,
	"gitd/pack":         {"gitd/gitcmd", "gitd/object"},
	"gitd/pathspec":     nil,
	"gitd/protocol":     {"gitd/object"},
	"gitd/refview":      {"gitd/gitfile", "gitd/grant", "gitd/object", "gitd/pack", "gitd/protocol"},
	"gitd/sshd":         {"gitd/gitcmd", "gitd/grant", "gitd/object", "gitd/protocol"},
	"gitd/sshsig":       {"gitd/object"},
	"gitd/worktree":     {"gitd/history", "gitd/lfs", "gitd/object", "gitd/pack", "gitd/pathspec"},
	"containers":        {"containers/layer", "containers/proc", "containers/runner"},
	"containers/cgroup": {"containers/runner"},
	"containers/docker": {"containers", "containers/cgroup", "containers/layer", "containers/proc",
		"containers/runner"},
	"containers/layer":  {"containers/proc"},
	"containers/proc":   nil,
	"containers/runner": nil,
	"containers/sandbox": {"containers", "containers/cgroup", "containers/layer", "containers/proc",
		"containers/runner"},
	"tasks":              {"tasks/browser"},
	"tasks/browser":      {"tasks/document", "tasks/nodejs"},
	"tasks/devcontainer": {"tasks", "tasks/service"},
	"tasks/document":     nil,
	"tasks/environment":  {"tasks/document", "tasks/service"},
	"tasks/library":      {"tasks", "tasks/browser", "tasks/nodejs", "tasks/results"},
	"tasks/nodejs":       nil,
	"tasks/results":      nil,
	"tasks/rules":        {"tasks/document"},
	"tasks/service":      {"tasks/document"},
	"tasks/workflow":     {"tasks", "tasks/document", "tasks/library", "tasks/service"},
	"executor": {"containers", "executor/acp", "executor/addition", "executor/agent", "executor/archive",
		"executor/attachment", "executor/background", "executor/backup", "executor/browse", "executor/deps",
		"executor/dialogue", "executor/egress", "executor/export", "executor/images", "executor/index", "executor/lfs",
		"executor/live", "executor/prepare", "executor/prune", "executor/quota", "executor/recall", "executor/record",
		"executor/repos", "executor/runs", "executor/seal", "executor/search", "executor/secret", "executor/services",
		"executor/settings", "executor/shell", "executor/step", "executor/store", "executor/submodule",
		"executor/terminal", "executor/transfer", "executor/upstream", "executor/warmup", "executor/worktree", "gitd",
		"tasks", "tasks/browser", "tasks/environment", "tasks/library", "tasks/workflow"},
	"executor/acp":      nil,
	"executor/addition": {"containers", "executor/record", "executor/store", "executor/worktree", "gitd"},
	"executor/agent":    {"containers", "executor/acp", "executor/record", "executor/worktree", "gitd", "tasks/library"},
	"executor/archive": {"executor/addition", "executor/attachment", "executor/live", "executor/record",
		"executor/seal", "executor/store", "executor/worktree", "gitd", "tasks/browser", "tasks/workflow"},
	"executor/backup":     {"executor/record", "gitd", "gitd/gitcmd"},
	"executor/anchor":     {"gitd"},
	"executor/bisect":     {"gitd"},
	"executor/provenance": {"executor/record", "gitd"},
	"executor/export":     {"executor/record", "executor/seal", "executor/store", "gitd"},
	"executor/radar":      {"gitd"},
	"executor/review":     {"executor/anchor", "executor/record", "gitd"},
	"executor/search":     {"executor/record", "executor/runs", "executor/store", "gitd"},
	"executor/ownership":  {"containers/kube", "gitd", "gitd/object"},
	"executor/standby":    {"executor/backup", "executor/record", "gitd", "gitd/object"},
	"executor/replay":     {"executor/bisect", "executor/record", "executor/trial", "gitd", "tasks/workflow"},
	"executor/recall":     {"executor/record", "executor/replay", "gitd", "tasks/workflow"},
	"executor/tournament": {"executor/record", "gitd"},
	"executor/trial":      {"executor/bisect", "executor/record", "gitd", "tasks/browser", "tasks/library"},
	"executor/undo":       {"executor/provenance", "executor/record", "gitd"},
	"executor/quota":      {"executor/record"},
	"executor/egress":     {"executor/record"},
	"executor/prepare":    {"containers", "executor/record", "executor/store", "executor/worktree", "tasks/environment"},
	"executor/seal":       {"executor/record", "gitd"},
	"executor/sealed":     nil,
	"executor/secret":     {"executor/record", "executor/sealed", "tasks/environment"},
	"executor/settings": {"containers", "gitd", "tasks/devcontainer", "tasks/environment", "tasks/rules",
		"tasks/service"},
	"executor/images":    {"gitd", "tasks/devcontainer"},
	"executor/index":     {"executor/record", "gitd"},
	"executor/lfs":       {"executor/store", "gitd", "gitd/lfs"},
	"executor/live":      {"executor/record", "tasks/workflow"},
	"executor/mirror":    {"gitd"},
	"executor/submodule": {"gitd"},
	"executor/step": {"containers", "executor/addition", "executor/agent", "executor/browse", "executor/deps",
		"executor/egress", "executor/images", "executor/live", "executor/prepare", "executor/recall", "executor/record",
		"executor/secret", "executor/services", "executor/settings", "executor/store", "executor/trial",
		"executor/worktree", "gitd", "tasks", "tasks/browser", "tasks/environment", "tasks/rules", "tasks/service",
		"tasks/workflow"},
	"executor/runs": {"containers", "executor/archive", "executor/attachment", "executor/index", "executor/live",
		"executor/record", "executor/store", "gitd"},
	"executor/background": {"containers", "executor/browse", "executor/record"},
	"executor/repos": {"executor/deps", "executor/index", "executor/lfs", "executor/record", "executor/runs",
		"executor/secret", "executor/store", "executor/worktree", "gitd"},
	"executor/warmup": {"containers", "executor/record", "executor/runs", "executor/step", "executor/worktree", "gitd"},
	"executor/store":  {"executor/record"},
	"executor/browse": {"containers", "executor/record", "executor/store", "executor/worktree", "gitd", "tasks",
		"tasks/browser"},
	"executor/deps": {"containers", "executor/egress", "executor/record", "executor/store", "executor/worktree",
		"gitd", "tasks/environment"},
	"executor/attachment": {"containers", "executor/agent", "executor/record", "gitd"},
	"executor/prune": {"executor/browse", "executor/lfs", "executor/prepare", "executor/recall", "executor/record",
		"executor/seal", "executor/replay", "executor/store", "executor/tournament", "executor/trial",
		"executor/worktree", "gitd"},
	"executor/services": {"containers", "tasks/service"},
	"executor/upstream": {"containers", "executor/record", "gitd"},
	"executor/dialogue": {"containers", "executor/acp", "executor/agent", "executor/attachment", "executor/browse",
		"executor/live", "executor/record", "executor/runs", "executor/settings", "executor/shell", "executor/step",
		"executor/worktree", "gitd", "tasks", "tasks/workflow"},
	"executor/shell": {"containers", "executor/live", "executor/record", "executor/step", "executor/terminal",
		"executor/worktree", "gitd"},
	"executor/terminal": {"gitd"},

	"executor/dns":             nil,
	"executor/nodes":           {"executor/nodes/cluster", "executor/nodes/programs", "executor/record"},
	"executor/nodes/cluster":   {"containers/kube"},
	"executor/nodes/hetzner":   {"executor/nodes"},
	"executor/nodes/openstack": {"executor/nodes"},
	"executor/nodes/programs":  {"executor/record"},

	"executor/transfer": {"containers", "executor/record", "executor/step", "executor/worktree", "gitd", "gitd/object"},
	"executor/worktree": {"containers", "containers/layer", "executor/egress", "executor/record", "gitd",
		"gitd/gitindex", "gitd/worktree"},
	"executor/record": {"gitd", "tasks/browser", "tasks/results", "tasks/workflow"},
	"gateway": {"executor", "executor/backup", "executor/mirror", "executor/nodes", "executor/nodes/programs", "executor/prune", "executor/quota", "executor/radar",
		"executor/record", "executor/seal", "executor/settings", "executor/standby", "executor/upstream",
		"gateway/account", "gateway/changes", "gateway/chat", "gateway/comment", "gateway/conversation", "gateway/credential",
		"gateway/domain", "gateway/engineer", "gateway/evidence", "gateway/export", "gateway/files", "gateway/forge",
		"gateway/forgekey", "gateway/gather", "gateway/github", "gateway/links", "gateway/live", "gateway/lookup", "gateway/mcp",
		"gateway/naming", "gateway/nodes", "gateway/past", "gateway/preview", "gateway/privacy", "gateway/replica", "gateway/route", "gateway/seen",
		"gateway/share", "gateway/signin", "gateway/standby", "gateway/token", "gateway/terminal", "gateway/timeline", "gateway/trace",
		"gateway/trigger", "gateway/web", "gateway/workspace", "gitd"},
	"gateway/collision": {"executor/radar", "executor/record", "gateway/lookup", "gateway/render", "gateway/retry",
		"gitd"},
	"gateway/announce":   {"gateway/retry", "gateway/trigger", "gitd"},
	"gateway/account":    {"gateway/people", "gateway/route", "gitd"},
	"gateway/audit":      {"gateway/people", "gitd"},
	"gateway/catalog":    {"executor", "executor/record", "gateway/gate"},
	"gateway/cert":       nil,
	"gateway/credential": {"executor/secret", "gateway/route"},
	"gateway/domain":     {"executor/record", "gateway/route"},
	"gateway/token":      {"gateway/route", "gitd"},
	"gateway/chat": {"executor", "executor/record", "gateway/catalog", "gateway/collision", "gateway/engineer",
		"gateway/fallback", "gateway/gate", "gateway/links", "gateway/lookup", "gateway/render", "gateway/retry",
		"gateway/route", "gateway/slack", "gitd"},
	"gateway/client": {"executor/tournament", "executor", "executor/backup", "executor/export", "executor/provenance",
		"executor/prune", "executor/quota", "executor/radar", "executor/record", "executor/seal",
		"executor/review", "executor/search", "executor/replay", "executor/ownership", "executor/secret", "executor/shell", "executor/standby", "executor/trial", "gateway", "gateway/comment", "gateway/conversation",
		"gateway/credential", "gateway/engineer", "gateway/evidence", "gateway/export", "gateway/mcp", "gateway/nodes",
		"gateway/past",
		"gateway/gather", "gateway/preview", "gateway/replica", "gateway/route", "gateway/session", "gateway/share", "gateway/signin", "gateway/standby", "gateway/terminal",
		"gateway/token", "gateway/trigger", "gitd"},
	"gateway/engineer": {"executor", "executor/record", "executor/upstream", "gateway/catalog", "gateway/collision",
		"gateway/forge", "gateway/gate", "gateway/links", "gateway/lookup", "gateway/render", "gateway/retry",
		"gateway/route", "gateway/slack", "gateway/ticket", "gitd"},
	"gateway/evidence": {"executor", "executor/record", "executor/replay", "executor/store", "gateway/diff",
		"gateway/links", "gateway/markup", "gateway/lookup", "gateway/page", "gateway/render", "gateway/route", "gitd"},
	"gateway/export": {"executor", "executor/export", "executor/record", "gateway/links", "gateway/lookup",
		"gateway/page", "gateway/route", "gateway/workspace", "gitd"},
	"gateway/nodes":     {"executor/nodes", "executor/nodes/programs", "executor/record", "gateway/route", "gateway/workspace"},
	"gateway/gather":    {"gateway/route", "gitd"},
	"gateway/replica":   {"executor", "executor/ownership", "executor/record", "gateway/gather", "gateway/route", "gateway/workspace", "gitd", "gitd/object", "gitd/sshd"},
	"gateway/standby":   {"executor/standby", "gateway/route", "gitd"},
	"gateway/fallback":  {"gateway/retry", "gateway/slack"},
	"gateway/files":     {"executor/record", "executor/transfer", "gateway/route", "gateway/workspace", "gitd"},
	"gateway/gate":      nil,
	"gateway/bitbucket": {"gateway/forge", "gateway/forge/rest"},
	"gateway/forge":     nil,
	"gateway/forgekey": {"executor/record", "executor/secret", "gateway/forge", "gateway/page", "gateway/render",
		"gateway/route"},
	"gateway/forge/rest": {"gateway/forge", "gateway/retry"},
	"gateway/gitea":      {"gateway/forge", "gateway/forge/rest"},
	"gateway/gitlab":     {"gateway/forge", "gateway/forge/rest"},
	"gateway/github":     {"gateway/forge", "gateway/retry", "gitd"},
	"gateway/githubread": {"executor/record", "gateway/forge", "gateway/github"},
	"gateway/jira":       {"gateway/forge", "gateway/forge/rest", "gateway/ticket"},
	"gateway/linear":     {"gateway/forge", "gateway/forge/rest", "gateway/ticket"},
	"gateway/links":      {"executor/record"},
	"gateway/ticket":     nil,
	"gateway/live":       {"executor/record", "gateway/route"},
	"gateway/llm":        {"executor", "gateway/retry"},
	"gateway/lookup":     {"executor", "executor/record", "gateway/route", "gitd"},
	"gateway/mcp": {"executor/tournament", "executor", "executor/export", "executor/provenance", "executor/radar", "executor/record",
		"executor/review", "executor/seal", "executor/search", "executor/replay", "executor/standby", "executor/trial", "gateway/catalog",
		"gateway/changes", "gateway/comment", "gateway/engineer", "gateway/export", "gateway/gather", "gateway/links", "gateway/lookup", "gateway/past", "gateway/route", "gateway/share",
		"gitd"},
	"gateway/past": {"executor", "executor/provenance", "executor/radar", "executor/record", "executor/seal",
		"executor/search", "executor/replay", "executor/tournament", "executor/trial", "executor/undo",
		"executor/upstream", "gateway/gather", "gateway/links", "gateway/lookup", "gateway/route", "gateway/workspace", "gitd"},
	"gateway/model":  {"executor", "executor/record", "executor/secret"},
	"gateway/naming": {"executor/record", "gateway/people", "gateway/route", "gitd"},
	"gateway/page":   nil,
	"gateway/pushed": {"executor", "executor/record", "gateway/lookup", "gateway/render", "gateway/route",
		"gateway/workspace", "gitd"},
	"gateway/preview": {"executor", "executor/record", "gateway/domain", "gateway/links", "gateway/lookup",
		"gateway/page", "gateway/route", "gitd"},
	"gateway/people":  {"gateway/route", "gitd"},
	"gateway/privacy": {"executor/agent", "executor/record", "gateway/people", "gateway/route", "gitd"},
	"gateway/render":  {"executor/record", "gateway/forge", "gateway/gate", "gateway/links", "gateway/slack", "gitd"},
	"gateway/retry":   nil,
	"gateway/route":   {"executor", "executor/quota", "executor/record", "gateway/links", "gateway/page", "gitd"},
	"gateway/session": nil,
	"gateway/share": {"executor", "executor/record", "gateway/links", "gateway/lookup", "gateway/people", "gateway/route", "gateway/timeline",
		"gitd"},
	"gateway/signin": {"gateway/account", "gateway/audit", "gateway/forge", "gateway/github", "gateway/page",
		"gateway/render", "gateway/route", "gateway/session", "gateway/web", "gitd"},
	"gateway/sshdoor": {"executor", "executor/record", "executor/shell", "executor/terminal", "gateway/route", "gateway/workspace",
		"gitd", "gitd/sshd"},
	"gateway/terminal": {"executor", "executor/record", "executor/shell", "executor/terminal", "gateway/lookup", "gateway/route",
		"gateway/workspace", "gitd"},
	"gateway/comment": {"executor", "executor/anchor", "executor/record", "executor/review", "executor/settings", "gateway/changes",
		"gateway/conversation", "gateway/forge", "gateway/lookup", "gateway/render", "gateway/route", "gitd"},
	"gateway/changes":  {"executor", "executor/record", "gateway/diff", "gateway/lookup", "gateway/route", "gitd"},
	"gateway/seen":     {"gitd"},
	"gateway/timeline": {"executor", "executor/record", "gateway/lookup", "gateway/render", "gateway/route", "gitd"},
	"gateway/trace":    {"executor/record", "gateway/retry"},
	"gateway/slack":    {"gateway/retry"},
	"gateway/trigger": {"executor", "executor/record", "gateway/forge", "gateway/lookup", "gateway/retry",
		"gateway/route", "gitd"},
	"gateway/web": {"executor", "executor/acp", "executor/anchor", "executor/bisect", "executor/nodes", "executor/provenance", "executor/quota", "executor/radar", "executor/record", "executor/review", "executor/search",
		"executor/secret", "executor/tournament", "executor/transfer", "executor/trial", "executor/upstream", "gateway/changes", "gateway/comment",
		"gateway/conversation", "gateway/credential", "gateway/diff", "gateway/engineer", "gateway/evidence",
		"gateway/export", "gateway/files", "gateway/forge", "gateway/gather", "gateway/links", "gateway/live", "gateway/lookup", "gateway/markup", "gateway/page",
		"gateway/past", "gateway/render", "gateway/route", "gateway/seen", "gateway/share", "gateway/timeline", "gateway/token",
		"gateway/workspace", "gitd"},
	"gateway/workspace": {"executor", "executor/record", "gateway/lookup", "gateway/route", "gitd"},

	"gateway/conversation": {"executor", "executor/acp", "executor/agent", "executor/dialogue", "executor/record", "gateway/lookup",
		"gateway/markup", "gateway/route", "gitd"},
	"gateway/markup": {"gateway/diff"},
	"gateway/diff":   nil,

	"containers/kube": nil,
	"containers/kubernetes": {"containers", "containers/kube", "containers/kubernetes/way", "containers/layer",
		"containers/runner"},
	"containers/kubernetes/way": {"containers/layer", "containers/runner"},
}

// TestArrowsInside keeps the packages of a room apart. Each package is in the table, and imports only what the table
// lists. The table lists nothing that is not imported, so that it can be read as a drawing.
func TestArrowsInside(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from := strings.TrimPrefix(fields[0], module+"/")
		if of := room(fields[0]); of == "" || of == "cmd" || strings.HasPrefix(of, "internal") || of == "examples" ||
			strings.HasSuffix(from, "test") {
			continue
		}
		may, known := inside[from]
		if !known {
			t.Errorf("%s is not in the table", from)
			continue
		}
		seen[from] = true
		var imports []string
		for _, imported := range fields[1:] {
			if to := room(imported); to != "" && to != "internal" {
				imports = append(imports, strings.TrimPrefix(imported, module+"/"))
			}
		}
		for _, to := range imports {
			if !slices.Contains(may, to) {
				t.Errorf("%s imports %s: it may import only %v", from, to, may)
			}
		}
		for _, to := range may {
			if !slices.Contains(imports, to) {
				t.Errorf("%s no longer imports %s: remove the arrow", from, to)
			}
		}
	}
	for from := range inside {
		if !seen[from] {
			t.Errorf("there is no package %s: remove it from the table", from)
		}
	}
}

// TestArrows keeps the rooms apart: an import that is no arrow fails it. Tests
// may import more, since they put a whole world together.
func TestArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from := room(fields[0])
		if from == "" {
			continue
		}
		may, known := arrows[from]
		if !known {
			t.Errorf("%s is in no room", fields[0])
		}
		for _, imported := range fields[1:] {
			to := room(imported)
			if to != "" && to != from && to != "internal" && !slices.Contains(may, to) {
				t.Errorf("%s imports %s: %s may import only %v", fields[0], imported, from, may)
			}
		}
	}
}

// TestArchitecture checks that ARCHITECTURE.md names each package of the rooms.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for from := range inside {
		if _, name, ok := strings.Cut(from, "/"); ok && !strings.Contains(string(text), "`"+name+"/`") {
			t.Errorf("ARCHITECTURE.md does not name %s", from)
		}
	}
}

// TestWalks compares the walks in ARCHITECTURE.md with the files of this repository, and counts them. A walk has the files
// of its own and those of the walks that its text names, apart from the ones after the word without.
func TestWalks(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Walks\n")
	section, _, _ = strings.Cut(section, "\n## ")
	quoted := regexp.MustCompile("`([a-z_/]+(?:\\.go)?)`")
	files := func(list string) map[string]bool {
		folder, names := "", make(map[string]bool)
		for _, m := range quoted.FindAllStringSubmatch(list, -1) {
			if !strings.HasSuffix(m[1], ".go") {
				folder = m[1]
				continue
			}
			name := path.Join(folder, m[1])
			if _, err := os.Stat(name); err != nil {
				t.Errorf("a walk passes a file that does not exist: %v", err)
			}
			names[name] = true
		}
		return names
	}
	walks := make(map[string]map[string]bool) // by the words that name them
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.Contains(cells[2], ".go") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSpace(cells[1]), ",")
		passed, without, _ := strings.Cut(cells[2], "without")
		own := files(passed)
		all := maps.Clone(own)
		for part, list := range walks {
			if strings.Contains(passed, part) {
				maps.Copy(all, list)
			}
		}
		for other := range files(without) {
			delete(all, other)
		}
		for cell, n := range map[string]int{cells[3]: len(own), cells[4]: len(all)} {
			if strings.TrimSpace(cell) != strconv.Itoa(n) {
				t.Errorf("%s has %d files of its own and %d in all, and the table says%sand%s", name, len(own), len(all), cells[3], cells[4])
			}
		}
		switch {
		case strings.HasPrefix(name, "a commit"):
			walks["then a commit"] = all
		case strings.HasPrefix(name, "a step"):
			walks["the step;"] = maps.Clone(all)
			maps.Copy(walks["the step;"], walks["then a commit"])
		}
	}
	if len(walks) != 2 {
		t.Errorf("the table has %d walks that others pass", len(walks))
	}
}

// TestInternal keeps the packages below internal/ to the standard library, apart from stand-ins, the bench and a demo:
// every room may import them, and the workflow of `make demo` tests one in a container without a network.
func TestInternal(t *testing.T) {
	all, err := exec.Command("go", "list", "./internal/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	args := []string{"list", "-test", "-f", `{{if not .Standard}}{{.ImportPath}}{{end}}`, "-deps"}
	for _, pkg := range strings.Fields(string(all)) {
		if room(pkg) == "internal" {
			args = append(args, pkg)
		}
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for pkg := range strings.Lines(string(out)) {
		if pkg = strings.TrimSpace(pkg); pkg != "" && !strings.HasPrefix(pkg, module+"/internal/") {
			t.Errorf("below internal/ something needs %s", pkg)
		}
	}
}

// room is the first folder of a package of ours; "" for the root and for others' packages.
func room(path string) string {
	rest, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return ""
	}
	for _, own := range []string{"internal/standin", "internal/bench", "internal/webbuild", "internal/demoweb"} {
		if rest == own || strings.HasPrefix(rest, own+"/") {
			return own
		}
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// TestNames keeps stray files out of the repository: what editors, patches and redirections
// leave is named like no file of ours.
func TestNames(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("cannot run here: this is no checkout:", err)
	}
	for name := range strings.SplitSeq(string(out), "\x00") {
		if strings.ContainsAny(name, " #~") || slices.Contains([]string{".orig", ".rej", ".log"}, path.Ext(name)) {
			t.Errorf("a stray file: %q", name)
		}
	}
}

// TestTypeNames checks that no two types of a package differ by the case of their first letter alone. A reader takes one for the other.
func TestTypeNames(t *testing.T) {
	types := map[string]string{} // by folder and name in lower case
	err := filepath.WalkDir(".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && name != "." || slices.Contains([]string{"node_modules", "testdata", "bin"}, e.Name())):
			return fs.SkipDir
		case e.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				own := spec.(*ast.TypeSpec).Name.Name
				key := filepath.Dir(name) + " " + strings.ToLower(own[:1]) + own[1:]
				if other := types[key]; other != "" && other != own {
					t.Errorf("%s has the types %s and %s", filepath.Dir(name), own, other)
				}
				types[key] = own
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if len(types) < 1000 {
		t.Errorf("found %d types, want more", len(types))
	}
}

// playwright is what only one program may link: its client panics in goroutines of its own when
// the driver surprises it, which no server survives.
const playwright = "github.com/mxschmitt/playwright-go"

// TestPlaywright keeps Playwright's client out of everything but that program, also by way of others.
func TestPlaywright(t *testing.T) {
	out, err := exec.Command("go", "list", "-test", "-f", `{{.ImportPath}}{{range .Deps}} {{.}}{{end}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if strings.HasPrefix(fields[0], module+"/cmd/ramus-browser") {
			continue
		}
		if slices.Contains(fields[1:], playwright) {
			t.Errorf("%s links %s: only cmd/ramus-browser may", fields[0], playwright)
		}
	}
}
