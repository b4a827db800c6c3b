package executor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
)

// TestGitStates puts the container's repository into random states, changes files at random, and
// compares the tree of each commit with the tree that stock git computes, from a repository of
// its own, of the same files. It runs on each engine, for bound work trees and for cloned ones.
// RAMUS_TEST=full tests 2,000 states of each. RAMUS_SEED=N selects others.
func TestGitStates(t *testing.T) {
	t.Parallel()
	onEngines(t, gitStates)
}

func gitStates(t *testing.T, engine string) {
	t.Run("bound", func(t *testing.T) { compareGitStates(t, boundWorld(t, engine, nil)) })
	t.Run("portable", func(t *testing.T) {
		compareGitStates(t, newWorldOn(t, engine, func(x *executor.Executor) { x.Fleet.Keeper = nil }))
	})
}

func compareGitStates(t *testing.T, w *world) {
	const steps = 25 // of one container
	rounds, seed := 1, uint64(1)
	if os.Getenv("RAMUS_TEST") == "full" {
		rounds = 80
	}
	if s, err := strconv.ParseUint(os.Getenv("RAMUS_SEED"), 10, 64); err == nil {
		seed = s
	}
	states := 0
	for round := range rounds {
		rnd := rand.New(rand.NewPCG(seed, uint64(round)))
		name := fmt.Sprintf("state-%d", round)
		oracle := filepath.Join(t.TempDir(), "oracle")
		w.sh(t.TempDir(), "git clone -q "+w.data+"/repos/demo.git "+oracle)
		w.exec("run:"+name, "true")

		var done []string
		for range steps {
			state, change := randomGitState(rnd, "ramus/run-"+name), randomChange(rnd)
			step := "{ " + state + "\n} >/dev/null 2>&1\n{ " + change + "\n} >/dev/null 2>&1\ntrue"
			if rnd.IntN(2) == 0 {
				step = "{ " + change + "\n} >/dev/null 2>&1\n{ " + state + "\n} >/dev/null 2>&1\ntrue"
			}
			done = append(done, step)
			res, _, errs := w.exec("run:"+name, step)
			if res.Reason != "" {
				t.Fatalf("after\n%s\nthe result is %+v %s", strings.Join(done, "\n"), res, errs)
			}
			want := strings.TrimSpace(w.sh(oracle,
				"( set +e\n"+change+"\n) >/dev/null 2>&1 || true\ngit add -A && git write-tree"))
			got := w.inRepo("rev-parse", "ramus/run-"+name+"^{tree}")
			if got != want {
				t.Fatalf("round %d, after\n%s\nthe branch differs from stock git's tree:\n%s", round,
					strings.Join(done, "\n"),
					w.sh(oracle, "git --git-dir="+w.data+"/repos/demo.git ls-tree -r "+got+" >../got; git ls-tree -r "+
						want+" >../want; diff ../want ../got || true"))
			}
			w.sh(oracle, "git -c user.name=o -c user.email=o@example.com commit -q --allow-empty -m step")
			states++
		}
	}
	t.Logf("%d states, 0 differences; %v", states, w.x.Stats().Portable)
}

// randomGitState returns a command that changes a repository and leaves the files as they are.
func randomGitState(rnd *rand.Rand, branch string) string {
	list := []string{
		"git config filter.x.process false; git config filter.x.required true; echo '* filter=x' >.git/info/attributes",
		"git config filter.x.clean 'sed s/a/b/'; git config filter.x.required true; echo '*.txt filter=x' >.git/info/attributes",
		"git ls-files -z | xargs -0 git update-index --skip-worktree",
		"git ls-files -z | xargs -0 git update-index --assume-unchanged",
		"git config core.excludesFile /tmp/ignored; echo '*' >/tmp/ignored",
		"echo '*' >.git/info/exclude",
		"git config core.ignoreCase true", "git config core.fileMode false", "git config core.symlinks false",
		"git config core.autocrlf true",
		"git config core.autocrlf input", "git config core.safecrlf true", "git config core.eol crlf",
		"git config core.bare true",
		"git config core.worktree /tmp", "git config core.sparseCheckout true; echo /none >.git/info/sparse-checkout",
		"git config core.precomposeUnicode true", "git config core.trustctime false; git config core.checkStat minimal",
		"git config core.attributesFile /tmp/attributes; echo '* text eol=crlf working-tree-encoding=UTF-16' >/tmp/attributes",
		"git config extensions.unknown 1", "git config core.repositoryFormatVersion 7",
		"printf '[core\\n' >>.git/config", "echo junk >.git/config",
		"git config index.version 4; git update-index --index-version 4", "git update-index --split-index",
		"git config feature.manyFiles true",
		"git config core.fsmonitor true",
		"git config core.hooksPath /tmp/hooks; mkdir -p /tmp/hooks; printf '#!/bin/sh\\nexit 1\\n' >/tmp/hooks/pre-commit; chmod +x /tmp/hooks/pre-commit",
		"git config commit.gpgSign true; git config gpg.program /bin/false",
		"git config url./nowhere.insteadOf http://; git config http.proxy http://127.0.0.1:1",
		"git config --global core.autocrlf true; git config --global core.excludesFile /tmp/ignored; mkdir -p ~/.config/git; echo '*' >~/.config/git/ignore; echo '* text' >~/.config/git/attributes",
		"touch .git/index.lock .git/HEAD.lock", "touch .git/refs/heads/" + branch + ".lock", "chmod -R a-w .git",
		"chmod -R a-w .git/objects",
		"rm -rf .git", "rm -rf .git/objects", "rm -f .git/index", "echo junk >.git/index", "echo junk >.git/HEAD",
		"rm -f .git/HEAD", "echo junk >.git/packed-refs",
		"rm -rf .git/refs; echo file >.git/refs", "mkfifo .git/refs/heads/pipe", "rm -f .git/HEAD; mkfifo .git/HEAD",
		"mv .git /tmp/moved; ln -s /tmp/moved .git",
		"mv .git /tmp/moved; echo 'gitdir: /tmp/moved' >.git",
		"find .git/objects -type f | head -n 3 | xargs chmod u+w; find .git/objects -type f | head -n 3 | xargs -I@ sh -c 'echo >@'",
		"echo /nowhere >.git/objects/info/alternates",
		"GIT_NO_REPLACE_OBJECTS=1 git -c core.sparseCheckout=false checkout -q --detach",
		"GIT_NO_REPLACE_OBJECTS=1 git -c core.sparseCheckout=false checkout -q -B other",
		"git symbolic-ref HEAD refs/heads/unborn",
		"git add -A", "export GIT_WORK_TREE=/work; git add -A; git commit -qm own",
		"export GIT_WORK_TREE=/work; git add -A; git commit -qm own; git commit -q --amend -m amended", "git gc -q",
		"git repack -adq",
		"git add -A; git write-tree; git update-index --cacheinfo 100644,$(git hash-object -w .gitignore),added",
		"git update-ref refs/heads/" + branch + " HEAD~1",
		"echo $(git rev-parse HEAD) >.git/MERGE_HEAD", "echo junk >.git/MERGE_HEAD",
		"mkdir -p .git/rebase-merge; rmdir .git/rebase-merge", "git tag -f here",
		"chmod 000 /cache", "rm -rf /cache/.ramus*; touch /cache/.ramus-index", "echo junk >/cache/.ramus-index",
		"git replace -f HEAD HEAD~1", "git config i18n.commitEncoding utf-16",
	}
	return list[rnd.IntN(len(list))]
}

// randomChange returns a command that changes files, in a container or elsewhere.
func randomChange(rnd *rand.Rand) string {
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	path := func() string {
		return pick("", "d/", "d/e/", "sub/") + pick("a", "A", "b.txt", "c.log", "o o", "é", "x.sh")
	}
	one := func() string {
		p, q := "'"+path()+"'", "'"+path()+"'"
		n := fmt.Sprint(rnd.IntN(100))
		switch rnd.IntN(10) {
		case 0, 1, 2:
			return "mkdir -p $(dirname " + p + "); echo a" + n + " >>" + p
		case 3:
			return "mkdir -p $(dirname " + p + "); printf 'a" + n + "\\r\\nb\\r\\n' >" + p
		case 4:
			return "rm -rf " + p
		case 5:
			return "mv " + p + " " + q
		case 6:
			return "chmod " + pick("+x ", "-x ") + p
		case 7:
			return "ln -sfn " + pick("a", "no/where") + " " + p
		case 8:
			return "echo '" + pick("*.log", "!c.log", "o o", "/d") + "' >>" + pick(".gitignore", "sub/.gitignore")
		}
		return "sed -i s/a/z/ " + p
	}
	return one() + "; " + one()
}

// TestCheckedTree checks that the record of a check names the tree of the files at its
// beginning. Files that a background process wrote before are on the branch.
func TestCheckedTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("run:check", `printf 'test:\n\t@cat late\n' >Makefile`)
	if _, err := w.x.Exec(t.Context(),
		record.Request{Caller: caller(t, "run:check"), Command: &record.Command{Background: true,
			Shell: "until [ -e /tmp/go ]; do sleep 0.01; done; echo late >late; touch /tmp/done"}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	// Both steps are of one run, so no other commit comes between them.
	r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:check"), Workflow: `
id: late
nodes:
  - id: begin
    run: touch /tmp/go
  - id: check
    run: until [ -e /tmp/done ]; do sleep 0.01; done
  - id: test
    task: lib_run_tests
`})
	if err != nil {
		t.Fatal(err)
	}
	if r = w.wait(r.Name()); r.State != record.StateComplete {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	m, err := w.x.Manifest(t.Context(), r.Name())
	if err != nil {
		t.Fatal(err)
	}
	tree := w.inRepo("rev-parse", "ramus/run-check^{tree}")
	if len(m.Checks) != 1 || string(m.Checks[0].Tree) != tree || string(m.Tree) != tree || m.Verdict != record.VerdictVerified {
		t.Errorf("tree %s, %+v", tree, m)
	}
	if got := w.inRepo("show", "ramus/run-check:late"); got != "late" {
		t.Errorf("late: %q", got)
	}
}
