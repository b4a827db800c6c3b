package gateway_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
	looking "github.com/ramus-dev/ramus/tasks/browser"
)

// pngOf returns a picture. Pictures with different numbers differ.
func pngOf(t *testing.T, n int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 8, 8))
	m.Set(n%8, n/8%8, color.RGBA{uint8(n), 200, 100, 255})
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// lookedAt adds browser checks to the manifest of an ended run, as though they were made during the run. Each check
// has two viewports, each with a picture and a trace.
func lookedAt(t *testing.T, r *rooms, run record.Run, checks int, change func(*record.Manifest, map[string][]byte)) {
	t.Helper()
	m, err := r.Executor.Manifest(t.Context(), run.Name())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for n := range checks {
		c := looking.Check{Name: fmt.Sprintf("page %d", n+1), Verdict: looking.Pass, Reason: "all is well",
			Commit: string(m.Head)}
		for i, vp := range []looking.Viewport{looking.Desktop, looking.Mobile} {
			at := fmt.Sprintf("%03d-page/%s/", n+1, vp.Name)
			c.Views = append(c.Views, looking.View{Viewport: vp, Verdict: looking.Pass, Reason: "all is well",
				Screenshot: at + "screenshot.png", Trace: at + "trace.zip"})
			files[at+"screenshot.png"], files[at+"trace.zip"] = pngOf(t, 2*n+i), []byte("PK\x03\x04")
		}
		m.Browser = append(m.Browser, c)
	}
	if change != nil {
		change(&m, files)
	}
	repo, err := r.Git.Repo(run.Repo)
	if err != nil {
		t.Fatal(err)
	}
	var put []gitd.File
	for name, content := range files {
		sum := sha256.Sum256(content)
		kind := "image/png"
		switch path.Ext(name) {
		case ".zip":
			kind = "application/zip"
		case ".webm":
			kind = "video/webm"
		}
		name = "artifacts/browser/" + name
		m.Files = append(m.Files,
			record.ManifestFile{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), Type: kind})
		put = append(put, gitd.File{Path: name, Content: content})
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	ref := "refs/ramus/runs/" + run.Caller.Slug() + "/" + run.ID
	was, err := repo.Resolve(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	commit, err := repo.WriteCommit(t.Context(), gitd.NewCommit{From: was, Parents: []gitd.Hash{was},
		Put:    append(put, gitd.File{Path: "evidence/manifest.json", Content: text}),
		Author: gitd.Person{Name: "A", Email: "a@example.org"}, Message: "looked at\n"})
	if err == nil {
		err = repo.Update(t.Context(), gitd.RefUpdate{Name: ref, New: commit, Old: &was})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// endUnseen waits for the end of a mention's run while Slack takes no messages, and closes the chat. The next Chat
// posts the result.
func (k *talk) endUnseen() (ts string, run record.Run) {
	k.t.Helper()
	k.slack.Fail(slacktest.Fault{Method: "chat.postMessage", Status: 503, Times: -1})
	ts = k.slack.Say(owner, "C01", "", "<@"+k.slack.BotUser+"> exec true")
	k.recorded("the end", func() bool {
		runs := k.runs("C01", ts)
		return len(runs) == 1 && runs[0].Ended()
	})
	if err := k.chat.Close(); err != nil {
		k.t.Fatal(err)
	}
	run, err := k.Executor.Settled(k.t.Context(), k.runs("C01", ts)[0].Caller, k.runs("C01", ts)[0].ID)
	if err != nil {
		k.t.Fatal(err)
	}
	k.slack.Heal()
	return ts, run
}

// again opens another Chat over the same rooms, like the next server process.
func (k *talk) again() {
	k.t.Helper()
	k.chat = &chat.Chat{Slack: &slack.Client{URL: k.slack.API(), Token: k.slack.Token, Patience: time.Millisecond},
		Executor: k.Executor, Git: k.Git,
		Settings: chat.Settings{Gate: k.chat.Settings.Gate}, Links: &links.Signer{Key: k.Links.Key,
			URL: "https://ramus.example"}, EditEvery: time.Millisecond, RetryEvery: time.Millisecond}
	if err := k.chat.Open(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// told waits until a run's thread has its result.
func (k *talk) told(run record.Run) {
	k.t.Helper()
	k.recorded("that the thread knows", func() bool {
		now, ok := k.Executor.Find(run.Caller, run.ID)
		return ok && now.Told != nil
	})
}

// withFiles returns the messages of the app in a thread that have files.
func (k *talk) withFiles(ts string) (list []slacktest.Message) {
	for _, m := range k.slack.Own("C01", ts) {
		if len(m.Files) > 0 {
			list = append(list, m)
		}
	}
	return list
}

// TestPicturesInAThread checks that a thread shows five of twelve pictures and links the others.
func TestPicturesInAThread(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, nil)
	ts, run := k.endUnseen()
	lookedAt(t, k.rooms, run, 6, func(m *record.Manifest, _ map[string][]byte) {
		m.Browser[5].Verdict, m.Browser[5].Views[1].Verdict, m.Browser[5].Views[1].Reason = looking.Fail, looking.Fail,
			"an error in the console: <!channel>"
	})
	k.again()
	k.told(run)
	result := k.part("C01", ts, "result")
	if len(result) != 1 || !strings.Contains(says(result[0]),
		"page 6 FAIL at mobile: an error in the console: &amp;lt;!channel&amp;gt;; PASS at desktop") &&
		!strings.Contains(says(result[0]),
			`page 6 FAIL at mobile: an error in the console: \u0026lt;!channel\u0026gt;; PASS at desktop`) {
		t.Errorf("%s", k.transcript())
	}
	messages := k.withFiles(ts)
	if len(messages) != 1 || len(messages[0].Files) != 5 {
		t.Fatalf("%d messages\n%s", len(messages), k.transcript())
	}
	m := messages[0]
	if f := m.Files[0]; f.Name != "page-6-mobile-1__"+run.ID+".png" || f.Title != "page 6 at mobile (390×844): FAIL" ||
		!bytes.Equal(f.Data, pngOf(t, 11)) {
		t.Errorf("the first picture is %q, %q", f.Name, f.Title)
	}
	if f := m.Files[1]; f.Title != "page 1 at desktop (1440×1000): PASS" {
		t.Errorf("the second picture is %q", f.Title)
	}
	for _, want := range []string{"1. `page 6` at `mobile`", "https://ramus.example/evidence/" + run.Name() +
		"/files/artifacts/browser/001-page/mobile/screenshot.png?expires=",
		"https://ramus.example/trace/index.html?trace=https%3A%2F%2Framus.example%2Fevidence%2F"} {
		if !strings.Contains(m.Text, want) {
			t.Errorf("no %q in %s", want, m.Text)
		}
	}
	if len(k.part("C01", ts, "pictures")) != 0 {
		t.Error("there are links in place of pictures")
	}
}

// TestFilmsInAThread checks that a thread shows the film of a check with its pictures.
func TestFilmsInAThread(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, nil)
	ts, run := k.endUnseen()
	film := append([]byte("\x1a\x45\xdf\xa3"), make([]byte, 1000)...)
	lookedAt(t, k.rooms, run, 1, func(m *record.Manifest, files map[string][]byte) {
		m.Browser[0].Views[1].Video = "001-page/mobile/video.webm"
		files["001-page/mobile/video.webm"] = film
	})
	k.again()
	k.told(run)
	messages := k.withFiles(ts)
	if len(messages) != 1 || len(messages[0].Files) != 3 {
		t.Fatalf("%d messages\n%s", len(messages), k.transcript())
	}
	if f := messages[0].Files[2]; f.Title != "page 1 at mobile (390×844): PASS, film" ||
		!strings.HasSuffix(f.Name, ".webm") || !bytes.Equal(f.Data, film) {
		t.Errorf("the film is %q, %q", f.Name, f.Title)
	}
}

// TestPicturesAreShownOnce kills the server at each step of showing pictures.
func TestPicturesAreShownOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]slacktest.Fault{
		"before anything":         {Method: "files.getUploadURLExternal", Status: 503},
		"after the announcement":  {Method: "/upload/", Status: 503},
		"at the second file":      {Method: "/upload/", Skip: 1, Lose: true},
		"before the message":      {Method: "files.completeUploadExternal", Cut: true},
		"the answer of which":     {Method: "files.completeUploadExternal", Lose: true},
		"while it is looked for":  {Method: "files.info", Status: 503},
		"while Slack has no time": {Method: "files.completeUploadExternal", RetryAfter: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			k := openTalk(t, false, nil)
			ts, run := k.endUnseen()
			lookedAt(t, k.rooms, run, 1, nil)
			fault.Times = -1
			faults := []slacktest.Fault{fault}
			if fault.Lose { // the state of the upload cannot be read either
				faults = append(faults, slacktest.Fault{Method: "files.info", Cut: true, Times: -1})
			}
			k.slack.Fail(faults...)
			k.again()
			k.until("the attempt", func() bool { return k.slack.Count(fault.Method) > fault.Skip })
			if err := k.chat.Close(); err != nil {
				t.Fatal(err)
			}
			if now, _ := k.Executor.Find(run.Caller, run.ID); now.Told != nil {
				t.Error("the thread is said to know")
			}
			if len(k.part("C01", ts, "result")) != 1 {
				t.Errorf("the result waits for pictures\n%s", k.transcript())
			}
			k.slack.Heal()
			for range 2 { // the second time there is nothing to do
				k.again()
				k.told(run)
				if err := k.chat.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if messages := k.withFiles(ts); len(messages) != 1 || len(messages[0].Files) != 2 ||
				len(k.part("C01", ts, "result")) != 1 || len(k.part("C01", ts, "pictures")) != 0 {
				t.Errorf("%d messages with files\n%s", len(messages), k.transcript())
			}
		})
	}
}

// TestPicturesBecomeLinks checks that pictures are linked once if Slack takes no pictures.
func TestPicturesBecomeLinks(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, nil)
	ts, run := k.endUnseen()
	lookedAt(t, k.rooms, run, 1, nil)
	k.slack.Lack("files:write")
	k.again()
	k.until("the links", func() bool { return len(k.part("C01", ts, "pictures")) > 0 })
	if err := k.chat.Close(); err != nil {
		t.Fatal(err)
	}
	k.slack.Lack() // the scope has no effect now, because the links are posted
	k.again()
	k.told(run)
	links := k.part("C01", ts, "pictures")
	if len(links) != 1 || len(k.withFiles(ts)) != 0 {
		t.Fatalf("%s", k.transcript())
	}
	for _, want := range []string{"the app lacks the scope `files:write`", "001-page/desktop/screenshot.png?expires=",
		"001-page/mobile/screenshot.png?expires="} {
		if !strings.Contains(says(links[0]), want) {
			t.Errorf("no %q in %s", want, says(links[0]))
		}
	}
}

// TestPicturesThatAreNone checks that files are not shown that are too large, damaged or of another type than
// recorded.
func TestPicturesThatAreNone(t *testing.T) {
	t.Parallel()
	k := openTalk(t, false, nil)
	ts, run := k.endUnseen()
	lookedAt(t, k.rooms, run, 2, func(_ *record.Manifest, files map[string][]byte) {
		files["001-page/desktop/screenshot.png"] = []byte("<html>no picture</html>")
		files["001-page/mobile/screenshot.png"] = append(pngOf(t, 1), make([]byte, 8<<20)...)
	})
	k.again()
	k.told(run)
	messages := k.withFiles(ts)
	if len(messages) != 1 || len(messages[0].Files) != 2 || messages[0].Files[0].Title != "page 2 at desktop (1440×1000): PASS" {
		t.Fatalf("%s", k.transcript())
	}
	for _, want := range []string{"001-page/desktop/screenshot.png?", "001-page/mobile/screenshot.png?"} {
		if !strings.Contains(messages[0].Text, want) {
			t.Errorf("no link to %s in %s", want, messages[0].Text)
		}
	}
}

// TestFilesOfAMention checks that at most five files reach the agent unchanged. The omitted files are named.
func TestFilesOfAMention(t *testing.T) {
	t.Parallel()
	k := openTalk(t, true, func(c *chat.Chat) {
		c.Executor.Options.Agents = map[string]agent.Agent{"reader": {Name: "reader", Command: []string{"sh", "-c",
			"cat; cd \"$RAMUS_FILES\" && sha256sum *"}, Timeout: time.Minute, Output: 1 << 20}}
	})
	var files []slacktest.File
	for n := range 6 {
		files = append(files, slacktest.File{Name: fmt.Sprintf("shot-%d.png", n), MIME: "image/png", Data: pngOf(t, n)})
	}
	ts := k.slack.Say(owner, "C01", "", "<@"+k.slack.BotUser+"> make it look like this", files...)
	k.until("the result", func() bool { return len(k.part("C01", ts, "result")) == 1 })
	journal := k.journal(k.runs("C01", ts)[0].Name())
	for n := range 5 {
		if sum := sha256.Sum256(pngOf(t, n)); !strings.Contains(journal, fmt.Sprintf("%x  shot-%d.png", sum, n)) {
			t.Errorf("shot-%d.png is not there as it was: %s", n, journal)
		}
	}
	if !strings.Contains(journal, "Not given along, for their number or size: shot-5.png") {
		t.Error(journal)
	}
	if result := says(k.part("C01", ts, "result")[0]); strings.Contains(result, "files changed") {
		t.Errorf("what was shared is committed: %s", result)
	}
}
