package gateway_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// openGallery opens a shop whose engineer retries at once and shows evidence in the given way.
func openGallery(t *testing.T, way engineer.Evidence) *shop {
	return openShop(t, func(e *engineer.Engineer) {
		e.RetryEvery, e.Settings.Evidence, e.Settings.DeleteEvidence = 10*time.Millisecond, way, true
		e.Links = &links.Signer{Key: e.Links.Key, URL: "https://ramus.example"}
	})
}

// looked waits for the end of a task's nth work and adds browser checks to its manifest. GitHub must refuse pushes
// until then.
func (k *shop) looked(id string, n int, change func(*record.Manifest, map[string][]byte)) {
	k.t.Helper()
	task := k.until(id, "the work", func(t record.Task) bool { return len(t.Work) == n })
	var run record.Run
	k.until(id, "its end", func(record.Task) bool {
		r, ok := k.Executor.Find(task.Caller(), strings.TrimPrefix(task.Work[n-1], task.Caller().String()+"/"))
		run = r
		return ok && r.Ended()
	})
	run, err := k.Executor.Settled(k.t.Context(), run.Caller, run.ID)
	if err != nil {
		k.t.Fatal(err)
	}
	lookedAt(k.t, k.rooms, run, 1, change)
}

// noPushes is a fault that makes GitHub refuse pushes.
var noPushes = githubtest.Fault{Route: "git-receive-pack", Status: 503, Times: -1}

var embedded = regexp.MustCompile(`!\[[^\]]*\]\((http[^)]+)\)`)

// fetched downloads the pictures that a text embeds, like a browser.
func (k *shop) fetched(text string) (urls []string, contents [][]byte) {
	k.t.Helper()
	for _, m := range embedded.FindAllStringSubmatch(text, -1) {
		resp, err := http.Get(m[1])
		if err != nil {
			k.t.Fatal(err)
		}
		content, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "image/png" {
			k.t.Fatalf("%s: %s %s %v", m[1], resp.Status, resp.Header.Get("Content-Type"), err)
		}
		urls, contents = append(urls, m[1]), append(contents, content)
	}
	http.DefaultClient.CloseIdleConnections()
	return urls, contents
}

// TestPicturesOnAPullRequest checks that the pictures of each round are shown by a commit of a branch without the
// code.
func TestPicturesOnAPullRequest(t *testing.T) {
	t.Parallel()
	k := openGallery(t, engineer.EvidenceBranch)
	k.github.Fail(noPushes)
	task := k.submit("write made.txt made")
	k.looked(task.ID, 1, nil)
	k.github.Heal()
	task = k.settled(task.ID, record.StateAwaitingReview)
	body := k.repo.Pull(task.PRNumber).Body
	first, contents := k.fetched(body)
	if len(first) != 2 || !bytes.Equal(contents[0], pngOf(t, 0)) || !bytes.Equal(contents[1], pngOf(t, 1)) {
		t.Fatalf("%q\n%s\n%s", first, body, k.story(task))
	}
	branch := "ramus-evidence/" + task.ID
	files, err := k.repo.Git("ls-tree", "-r", "--name-only", branch)
	if err != nil || files != "README.md\nwork-1/1-page-1-desktop.png\nwork-1/2-page-1-mobile.png" {
		t.Errorf("%q, %v", files, err)
	}
	if !strings.Contains(first[0], "/blob/"+k.repo.Head(branch)+"/") {
		t.Errorf("%s does not name the commit %s", first[0], k.repo.Head(branch))
	}

	// The next round has another picture.
	k.github.Fail(noPushes)
	if _, err := k.repo.CommentLine("reviewer", task.PRNumber, "made.txt", 1, "append made.txt more"); err != nil {
		t.Fatal(err)
	}
	k.looked(task.ID, 2, func(_ *record.Manifest, files map[string][]byte) {
		files["001-page/desktop/screenshot.png"] = pngOf(t, 9)
	})
	k.github.Heal()
	task = k.until(task.ID, "the answer",
		func(t record.Task) bool { return t.Status == record.StateAwaitingReview && t.Unposted == 0 })
	pull := k.repo.Pull(task.PRNumber)
	if _, now := k.fetched(pull.Body); len(now) != 2 || !bytes.Equal(now[0], pngOf(t, 9)) {
		t.Errorf("the body shows %d pictures\n%s", len(now), pull.Body)
	}
	if _, now := k.fetched(pull.Lines[len(pull.Lines)-1].Body); len(now) != 2 || !bytes.Equal(now[0], pngOf(t, 9)) {
		t.Errorf("the answer shows %d pictures\n%+v", len(now), pull.Lines)
	}
	if _, then := k.fetched("![](" + first[0] + ")"); !bytes.Equal(then[0], pngOf(t, 0)) {
		t.Error("what the first round showed has changed")
	}
	if n, err := k.repo.Git("rev-list", "--count", branch); err != nil || n != "2" {
		t.Errorf("%s commits, %v", n, err)
	}
	if _, err := k.repo.Git("merge-base", branch, "main"); err == nil {
		t.Error("the pictures have the code in their history")
	}
	if err := k.repo.Approve("reviewer", task.PRNumber, "good"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.repo.Merge("reviewer", task.PRNumber, "squash"); err != nil {
		t.Fatal(err)
	}
	k.settled(task.ID, record.StateComplete)
	if at := k.repo.Head(branch); at != "" {
		t.Errorf("the branch is still at %s", at)
	}
}

// TestPicturesArePushedOnce stops the server after the commit of the pictures and before its push.
func TestPicturesArePushedOnce(t *testing.T) {
	t.Parallel()
	k := openGallery(t, engineer.EvidenceBranch)
	k.github.Down()
	task := k.submit("write made.txt made")
	k.looked(task.ID, 1, nil)
	fault := noPushes
	fault.Skip = 2 // the push of the work itself
	k.github.Fail(fault)
	if err := k.github.Up(); err != nil {
		t.Fatal(err)
	}
	repo, err := k.Git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	var commit gitd.Hash
	k.until(task.ID, "the commit", func(record.Task) bool {
		commit, err = repo.Resolve(t.Context(), "refs/heads/ramus-evidence/"+task.ID)
		return err == nil
	})
	if err := k.engineer.Close(); err != nil {
		t.Fatal(err)
	}
	if now, err := k.engineer.Task(t.Context(), task.ID); err != nil || now.PRNumber != 0 || k.repo.Head("ramus-evidence/"+task.ID) != "" {
		t.Errorf("%+v, %v", now, err)
	}
	e := k.engineer
	k.engineer = &engineer.Engineer{Executor: e.Executor, Git: e.Git, Upstream: e.Upstream, Slack: e.Slack, Links: e.Links,
		Settings: e.Settings, RetryEvery: e.RetryEvery, Log: e.Log}
	k.github.Heal()
	k.open()
	done := k.settled(task.ID, record.StateAwaitingReview)
	if urls, _ := k.fetched(k.repo.Pull(done.PRNumber).Body); len(urls) != 2 ||
		k.repo.Head("ramus-evidence/"+task.ID) != string(commit) || !strings.Contains(urls[0], string(commit)) {
		t.Errorf("%q, at %s, was %s", urls, k.repo.Head("ramus-evidence/"+task.ID), commit)
	}
}

// TestPicturesAreLinked checks that pictures are linked, with the other ways and if GitHub refuses the branch.
func TestPicturesAreLinked(t *testing.T) {
	t.Parallel()
	for _, way := range []engineer.Evidence{engineer.EvidenceLinks, engineer.EvidenceNone, engineer.EvidenceBranch} {
		t.Run(string(way), func(t *testing.T) {
			k := openGallery(t, way)
			k.github.Fail(noPushes)
			task := k.submit("write made.txt made")
			branch := "ramus-evidence/" + task.ID
			k.repo.Protect(branch)
			k.looked(task.ID, 1, nil)
			k.github.Heal()
			task = k.settled(task.ID, record.StateAwaitingReview)
			body := k.repo.Pull(task.PRNumber).Body
			link := strings.Contains(body, "[picture](https://ramus.example/evidence/")
			if strings.Contains(body, "![") || link != (way != engineer.EvidenceNone) || k.repo.Head(branch) != "" ||
				!strings.Contains(body, "| page 1 | desktop 1440×1000 | ✅ PASS |") {
				t.Errorf("at %q\n%s", k.repo.Head(branch), body)
			}
		})
	}
}
