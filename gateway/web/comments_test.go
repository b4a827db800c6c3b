package web_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

// commented is a world with the comments of its pages.
func commented(t *testing.T) (*world, *comment.Comments) {
	t.Helper()
	var comments *comment.Comments
	w := reviewedWith(t, func(api *web.API) { comments = api.Comments })
	return w, comments
}

// work returns the work of the workspace of these tests.
func (w *world) work(c *comment.Comments) comment.Work {
	w.t.Helper()
	st, err := w.x.Named("run:otter")
	if err != nil {
		w.t.Fatal(err)
	}
	work, err := c.Of(w.t.Context(), route.Local, st, changes.Window{})
	if err != nil {
		w.t.Fatal(err)
	}
	return work
}

const otterPath = "/workspaces/run-otter"

// field returns the value of a hidden field of a page.
func field(t *testing.T, body, name string) string {
	t.Helper()
	m := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("the page has no field %s", name)
	}
	return m[1]
}

// TestCommentsWithoutScripts comments on lines by links and forms alone. Nobody else sees drafts, and everything is escaped.
func TestCommentsWithoutScripts(t *testing.T) {
	w, comments := commented(t)
	page := func(query string, want ...string) string {
		t.Helper()
		status, _, body := w.get(otterPath + "/changes" + query)
		parse(t, query, body).check()
		for _, s := range want {
			if status != 200 || !strings.Contains(body, s) {
				t.Fatalf("%s: status %d, without %q", query, status, s)
			}
		}
		return body
	}
	post := func(action string, form url.Values, want int) string {
		t.Helper()
		status, h, body := w.post(otterPath+"/review/"+action, form)
		if status != want {
			t.Fatalf("%s: status %d, want %d: %s", action, status, want, body)
		}
		return h.Get("Location")
	}

	// The number of each line is a link to the page with the form after the line.
	body := page("")
	link := regexp.MustCompile(`href="\?(c=(f[0-9a-f]{12})-R33)#f[0-9a-f]{12}-R33"`).FindStringSubmatch(body)
	if link == nil {
		t.Fatal("line 33 has no link to the form")
	}
	body = page("?"+link[1], `id="line-form"`, "Comment on line 33")
	fields := url.Values{"path": {"code/x.go"}, "line": {"33"}, "base": {field(t, body, "base")}, "commit": {field(t, body, "commit")}}
	with := func(more ...string) url.Values {
		f := url.Values{}
		for k, v := range fields {
			f[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			f.Set(more[i], more[i+1])
		}
		return f
	}
	post("draft", with("text", " "), 400)
	post("draft", with("text", "x", "line", "9999"), 400)
	post("draft", with("text", "x", "path", "none"), 404)
	post("nothing", with(), 404)
	at := post("draft", with("text", "Why <script>alert(1)</script>?\n\n```suggestion\nvar x30 = \"30\"\n```"), 303)
	if !strings.Contains(at, "#t-") {
		t.Errorf("the answer leads to %s", at)
	}
	post("draft", with("text", "gone?", "line", "32", "side", "old", "to", "33"), 303)
	post("draft", with("text", "drop me", "path", "code/x.go", "line", "34"), 303)
	body = page("", `Send 3 comments`, "only you see it", "Why &lt;script&gt;", "code/x.go, lines 32 to 33")

	// Another person does not see the drafts, and one who may only read has no form.
	w.become(route.Who{Subject: "bo", Repo: "*", Scopes: []string{gitd.ScopeWrite}, Write: []string{"refs/heads/*"}})
	if body := page(""); strings.Contains(body, "Why &lt;") {
		t.Error("another person sees the draft")
	}
	w.become(route.Who{Subject: "bo", Repo: "*", Scopes: []string{gitd.ScopeRead}})
	if body := page("?" + link[1]); strings.Contains(body, "line-form") || strings.Contains(body, "?c=f") {
		t.Error("a reader can comment")
	}
	w.become(ada)

	// A draft is changed and removed, and the others are sent. A second sending of the same drafts does nothing.
	ids := regexp.MustCompile(`name="draft" value="([^"]+)"><div class="field"><label class="hide" for="d-[^"]+">Draft</label><textarea[^>]*>([^<]*)<`).FindAllStringSubmatch(body, -1)
	var send url.Values = url.Values{"agent": {"none"}}
	for _, m := range ids {
		if strings.HasPrefix(m[2], "drop") {
			post("drop", url.Values{"draft": {m[1]}}, 303)
			continue
		}
		send.Add("draft", m[1])
		if strings.HasPrefix(m[2], "gone") {
			post("redraft", url.Values{"draft": {m[1]}, "text": {"Is that *gone*?"}}, 303)
		}
	}
	post("send", send, 303)
	post("send", send, 303)
	body = page("", "2 open threads", "<em>gone</em>", "Commit the suggestion", `class="badge info">sent`)
	if strings.Count(body, "<em>gone</em>") != 1 || strings.Contains(body, "Send 1 comment") || strings.Contains(body, "<script>alert") {
		t.Error("the comments are there twice, or are not escaped")
	}
	page("?view=split", "<em>gone</em>")

	// A new commit changes one of the lines. The suggestion is refused with the reason, and the page names the commit.
	work := w.work(comments)
	v, err := comments.Read(t.Context(), route.Local, work)
	if err != nil || len(v.Threads) != 2 {
		t.Fatal(v, err)
	}
	thread, remark := v.Threads[0], ""
	for _, x := range v.Threads {
		if len(review.Suggestions(x.Remarks[0].Text)) > 0 {
			thread, remark = x, x.Remarks[0].ID
		}
	}
	code := strings.Replace("package code\n\n"+numbers(0, 60), `var x30 = "30"`, `var x30 = "XXX"`, 1)
	changed := w.commit(otter, []gitd.File{{Path: "code/x.go", Content: []byte(code)}})
	touched := page("", "the lines were changed", string(changed)[:10], "What changed since", "does not fit any more", "The lines as they were", `class="badge warn">touched`)
	at = regexp.MustCompile(`href="([^"]+)"><code>` + string(changed)[:10]).FindStringSubmatch(touched)[1]
	if status, _, body := w.get(html.UnescapeString(at)); status != 200 || !strings.Contains(body, "XXX") {
		t.Errorf("%s answers %d: %s", at, status, body)
	}
	status, _, body := w.post(otterPath+"/review/take", url.Values{"thread": {thread.ID}, "remark": {remark}, "suggestion": {"0"}})
	if status != 409 || !strings.Contains(body, "were changed in commit "+string(changed)[:10]) {
		t.Errorf("status %d: %s", status, body)
	}
	w.commit(otter, nil, "code/x.go")
	page("", "outdated", "Comments on lines that are not shown here")

	// An agent answers, and the thread is closed and opened again.
	if _, err := comments.Answer(t.Context(), work, thread.ID, review.Remark{Kind: review.ByAgent, By: gitd.Person{Name: "coder"}, Text: "Done."}); err != nil {
		t.Fatal(err)
	}
	page("", "answered", "Done.")
	post("resolve", url.Values{"thread": {thread.ID}}, 303)
	page("", "1 open thread", "Open again")
	post("reopen", url.Values{"thread": {thread.ID}}, 303)
	page("", "2 open threads")
	post("resolve", url.Values{"thread": {"none"}}, 404)

	// The page says what the forge of a pull request gets.
	comments.Tasks = pulled{at: forge.LinesAt{Pull: 12, URL: "https://forge.example.org/12", Forge: "<b>Forge"}}
	page("", "&lt;b&gt;Forge gets new comments in the conversation of", `href="https://forge.example.org/12"`, "which threads are resolved")
	comments.Tasks = pulled{at: forge.LinesAt{Pull: 12, Forge: "GitHub", Lines: true, Resolves: true}}
	if body := page("", "The same threads are in"); strings.Contains(body, "which threads are resolved") {
		t.Error("the page says that GitHub does not get which threads are resolved")
	}
}

// pulled has work in a pull request.
type pulled struct {
	comment.Tasks
	at forge.LinesAt
}

func (pulled) Task(context.Context, string) (record.Task, error) {
	return record.Task{}, record.ErrNotFound
}

func (pulled) LinesChanged(record.Caller) {}

func (p pulled) LinesAt(record.Caller) (forge.LinesAt, bool) { return p.at, true }

// TestSuggestion takes a suggestion, which becomes a commit of the person.
func TestSuggestion(t *testing.T) {
	w, comments := commented(t)
	sent, err := comments.Send(t.Context(), ada, w.work(comments), comment.Sending{Key: "k", Quiet: true, Comments: []comment.New{
		{Path: "tool.sh", Line: 1, Text: "```suggestion\nfalse\nexit\n```\nand\n```suggestion\n```"}}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := comments.Send(t.Context(), ada, w.work(comments), comment.Sending{Key: "k", Quiet: true, Comments: []comment.New{{Path: "tool.sh", Line: 1, Text: "x"}}})
	if err != nil || again.Batch.ID != sent.Batch.ID || len(again.Threads) != 1 || again.Threads[0] != sent.Threads[0] {
		t.Errorf("%+v %v, first %+v", again, err, sent)
	}
	status, _, body := w.post(otterPath+"/review/take", url.Values{"thread": {sent.Threads[0]}, "remark": {sent.Batch.Remarks[0]}, "suggestion": {"0"}})
	if status != 303 {
		t.Fatal(status, body)
	}
	work := w.work(comments)
	content, err := work.Repo.ReadFile(t.Context(), string(work.Commit), "tool.sh", 100)
	made, err2 := work.Repo.Commit(t.Context(), string(work.Commit))
	entry, err3 := work.Repo.Entry(t.Context(), string(work.Commit), "tool.sh")
	if err != nil || err2 != nil || err3 != nil || string(content) != "false\nexit\n" || made.Author.Name != "Ada" || entry.Mode != "100755" {
		t.Errorf("%q %+v %+v, %v %v %v", content, made, entry, err, err2, err3)
	}
	if _, _, body := w.get(otterPath + "/changes"); !strings.Contains(body, "taken as <code>"+string(work.Commit)[:10]) {
		t.Error("the page does not show the commit")
	}
	if _, err := comments.Take(t.Context(), work, sent.Threads[0], sent.Batch.Remarks[0], 1, gitd.Person{}); err == nil {
		t.Error("it was taken twice")
	}

	// A process that ends after the commit leaves no note of it. The next one makes the note, and so does a second attempt.
	for _, heal := range []func() error{
		func() error { return comments.TakeUp(t.Context()) },
		func() error {
			if _, err := comments.Take(t.Context(), work, sent.Threads[0], sent.Batch.Remarks[0], 1, gitd.Person{}); err == nil {
				t.Error("it was taken twice")
			}
			return nil
		},
	} {
		noted, err := work.Repo.Commit(t.Context(), review.Ref(work.Caller))
		if err != nil {
			t.Fatal(err)
		}
		if err := work.Repo.Update(t.Context(), gitd.RefUpdate{Name: review.Ref(work.Caller), New: noted.Parents[0]}); err != nil {
			t.Fatal(err)
		}
		if v, err := comments.Read(t.Context(), ada, work); err != nil || v.Threads[0].Remarks[0].Taken != "" {
			t.Fatalf("%+v %v", v, err)
		}
		if err := heal(); err != nil {
			t.Fatal(err)
		}
		v, err := comments.Read(t.Context(), ada, work)
		if err != nil || v.Threads[0].Remarks[0].Taken != work.Commit || v.Threads[0].Resolved == nil || v.Threads[0].Resolved.By.Name != "Ada" {
			t.Errorf("%+v %v", v, err)
		}
		if tip := w.work(comments).Commit; tip != work.Commit {
			t.Errorf("the branch is at %s", tip)
		}
	}
	trailers := gittest.Run(t, work.Repo.Dir(), "log", "-1", "--format=%(trailers:only)", string(work.Commit))
	if trailers != "Ramus-Remark: "+sent.Batch.Remarks[0]+"\nRamus-Caller: run:otter" {
		t.Errorf("%q", trailers)
	}

	// The commit counts if an open terminal cannot get it.
	comments.Executor = withoutTerminal{comments.Executor}
	if sent, err = comments.Send(t.Context(), ada, work, comment.Sending{Quiet: true, Comments: []comment.New{
		{Path: "tool.sh", Line: 1, Text: "```suggestion\ntrue\n```"}}}); err != nil {
		t.Fatal(err)
	}
	last, err := comments.Take(t.Context(), work, sent.Threads[0], sent.Batch.Remarks[0], 0, gitd.Person{Name: "Bo", Email: "bo@example.org"})
	v, err2 := comments.Read(t.Context(), ada, w.work(comments))
	if err != nil || err2 != nil || v.Commit != last || v.Threads[1].Remarks[0].Taken != last {
		t.Errorf("%s %v, %+v %v", last, err, v, err2)
	}
}

// withoutTerminal is an executor that cannot bring edits to terminals.
type withoutTerminal struct{ comment.Executor }

func (x withoutTerminal) Edit(ctx context.Context, e executor.Edit) (gitd.Hash, error) {
	made, err := x.Executor.Edit(ctx, e)
	return made, errors.Join(err, errors.New("the terminal is gone"))
}

// TestSenderOfBatch has batches whose senders lost their rights before the prompt was said. A later process refuses these, and says the others.
func TestSenderOfBatch(t *testing.T) {
	w, comments := commented(t)
	roles := map[string]route.Role{"github:1": route.RoleMember, "github:2": route.RoleViewer, "github:3": route.RoleMember}
	comments.Account = func(id string) (route.Who, error) {
		role, ok := roles[id]
		if !ok {
			return route.Who{}, gitd.ErrDenied
		}
		return route.NewWho(route.Account{ID: id, Role: role}), nil
	}
	_, kept, err := w.git.Issue(gitd.Grant{Subject: "bo", Repo: "app", Scopes: []string{gitd.ScopeWrite}, Write: []string{"refs/heads/*"},
		Expires: time.Now().Add(time.Hour)}, "ada")
	if err != nil {
		t.Fatal(err)
	}
	_, revoked, err := w.git.Issue(gitd.Grant{Subject: "bo", Repo: "app", Scopes: []string{gitd.ScopeWrite}, Write: []string{"refs/heads/*"},
		Expires: time.Now().Add(time.Hour)}, "ada")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.git.RevokeToken(revoked.ID, "ada"); err != nil {
		t.Fatal(err)
	}
	bearer := func(g gitd.Grant) route.Who {
		return route.Who{Subject: g.Subject, Repo: g.Repo, Scopes: g.Scopes, Write: g.Write, Token: g.ID}
	}
	member := func(id string) route.Who { return route.NewWho(route.Account{ID: id, Role: route.RoleMember}) }
	senders := map[string]struct {
		who  route.Who
		says bool
	}{
		"socket": {route.Local, true}, "member": {member("github:1"), true}, "viewer now": {member("github:2"), false},
		"removed": {member("github:9"), false}, "token": {bearer(kept), true}, "revoked token": {bearer(revoked), false},
		"token of a run": {route.Who{Subject: "run:otter", Repo: "app", Scopes: []string{gitd.ScopeWrite}, Write: []string{"refs/heads/*"}}, false},
	}
	work := w.work(comments)
	before := w.x.OfCaller(work.Caller)
	ids := map[string]string{}
	for name, s := range senders {
		// The prompt of the batch cannot be said, as if the server was killed.
		comments.Talk = &conversation.Talk{Executor: mute{w.x}, Prompts: &w.x.Prompts, Find: w.api.Find}
		sent, err := comments.Send(t.Context(), s.who, work, comment.Sending{Key: name, Agent: "coder",
			Comments: []comment.New{{Path: "tool.sh", Line: 1, Text: name}}})
		if err == nil {
			t.Fatalf("%s: the prompt was said: %+v", name, sent)
		}
		ids[name] = sent.Batch.ID
	}
	comments.Talk = &conversation.Talk{Executor: w.x, Prompts: &w.x.Prompts, Find: w.api.Find}
	for range 2 {
		if err := comments.TakeUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	v, err := comments.Read(t.Context(), ada, work)
	if err != nil {
		t.Fatal(err)
	}
	runs := len(w.x.OfCaller(work.Caller))
	said := map[string]bool{} // a batch joins a run that is at work
	for _, run := range before {
		said[run.Name()] = true
	}
	for name, s := range senders {
		i := slices.IndexFunc(v.Batches, func(b review.Batch) bool { return b.ID == ids[name] })
		if b := v.Batches[i]; (b.Run != "") != s.says || (b.Refused == "") != s.says {
			t.Errorf("%s: %+v", name, b)
		} else if s.says {
			said[b.Run] = true
		}
	}
	if runs != len(said) {
		t.Errorf("the workspace has %d runs, and %d of them are of batches or older", runs, len(said))
	}
}

// TestTriesOfComment has comments of a pull request on a commit that is not here. Each is tried ten times, and one that has used them up is
// left out until the next start, also if the commit comes.
func TestTriesOfComment(t *testing.T) {
	w, comments := commented(t)
	var log strings.Builder
	comments.Log = slog.New(slog.NewTextHandler(&log, nil))
	app := w.work(comments).Repo
	other, err := w.git.Create(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	n := gitd.NewCommit{Put: []gitd.File{{Path: "late.txt", Content: []byte("late\n")}}, Author: gitd.Person{Name: "Bo", Email: "bo@example.org"},
		When: time.Unix(1_700_000_000, 0), Message: "Late"}
	late, err := other.WriteCommit(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	hear := func(c *comment.Comments, ids ...int64) {
		t.Helper()
		var list []forge.Comment
		for _, id := range ids {
			list = append(list, forge.Comment{ID: id, User: "bo", Body: fmt.Sprint("remark ", id), Path: "late.txt", Line: 1, Side: "RIGHT", Commit: string(late)})
		}
		if err := c.Hear(t.Context(), app, w.work(c).Caller, 1, list, func(forge.Comment, string) bool { return false }); err != nil {
			t.Fatal(err)
		}
	}
	heard := func() (ids []int64) {
		t.Helper()
		v, err := comments.Read(t.Context(), route.Local, w.work(comments))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range v.Threads {
			ids = append(ids, x.Remarks[0].Outside)
		}
		slices.Sort(ids)
		return ids
	}
	for i := range 12 {
		if hear(comments, 1); i < 9 {
			hear(comments, 2)
		}
	}
	if n := strings.Count(log.String(), "a comment of a pull request is in no thread"); n != 1 || !strings.Contains(log.String(), "comment=1") {
		t.Errorf("%d lines of the log: %s", n, log.String())
	}
	if made, err := app.WriteCommit(t.Context(), n); err != nil || made != late {
		t.Fatal(made, late, err)
	}
	hear(comments, 1, 2)
	if got := heard(); !slices.Equal(got, []int64{2}) {
		t.Errorf("the threads of %v are here", got)
	}
	again := comment.NewComments(w.x, comments.Talk, w.api.Find, w.x.Bot, time.Now)
	hear(again, 1, 2)
	if got := heard(); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("after a start the threads of %v are here", got)
	}
}

// mute is an executor that begins no run.
type mute struct{ conversation.Executor }

func (mute) Submit(context.Context, record.Request) (record.Run, error) {
	return record.Run{}, errors.New("the server was killed")
}

// TestManyComments has more comments than a page shows. The page stays within its bound of elements.
func TestManyComments(t *testing.T) {
	w, comments := commented(t)
	var list []comment.New
	for i := range 90 {
		list = append(list, comment.New{Path: "large.go", Line: 2 + i*4, Text: strings.Repeat("- *a* `b`\n", 30)})
	}
	if _, err := comments.Send(t.Context(), ada, w.work(comments), comment.Sending{Quiet: true, Comments: list}); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"", "?file=large.go", "?view=split"} {
		_, _, body := w.get(otterPath + "/changes" + query)
		d := parse(t, query, body)
		d.check()
		if len(d.all) > 9000 || !strings.Contains(body, "90 open threads") {
			t.Errorf("%s has %d elements", query, len(d.all))
		}
	}
}

// TestCommentsAccessible looks at the states of comments with Chromium, and comments by keyboard.
func TestCommentsAccessible(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		t.Skip("cannot look at it here: `npm ci` in gateway/web brings axe-core")
	}
	w, comments := commented(t)
	send := func(n ...comment.New) comment.Sent {
		t.Helper()
		sent, err := comments.Send(t.Context(), ada, w.work(comments), comment.Sending{Quiet: true, Comments: n})
		if err != nil {
			t.Fatal(err)
		}
		return sent
	}
	sent := send(comment.New{Path: "code/x.go", Line: 33, Text: "Why `thirty`?\n\n```suggestion\nvar x30 = \"30\"\n```"},
		comment.New{Path: "space", Line: 1, Side: "old", Text: "One space is enough, " + strings.Repeat("long", 60)},
		comment.New{Path: "new name.txt", Line: 21, Text: "outdated"}, comment.New{Path: "tool.sh", Line: 1, Text: "resolved"})
	w.commit(otter, []gitd.File{{Path: "code/x.go", Content: []byte(strings.Replace("package code\n\n"+numbers(0, 60), `var x30 = "30"`, `var x30 = "XXX"`, 1))},
		{Path: "new name.txt", Content: []byte(strings.Repeat("a line of the text\n", 20))}})
	if _, err := comments.Resolve(t.Context(), w.work(comments), sent.Threads[3], gitd.Person{Name: "Ada"}, true, false); err != nil {
		t.Fatal(err)
	}
	if _, err := comments.Answer(t.Context(), w.work(comments), sent.Threads[1], review.Remark{Kind: review.ByAgent, By: gitd.Person{Name: "coder"}, Text: "Yes."}); err != nil {
		t.Fatal(err)
	}
	if _, err := comments.PutDraft(t.Context(), ada, w.work(comments), comment.New{Path: "tool.sh", Line: 1, Text: "a draft"}, ""); err != nil {
		t.Fatal(err)
	}
	_, _, body := w.get(otterPath + "/changes")
	line := regexp.MustCompile(`c=(f[0-9a-f]{12}-R33)`).FindStringSubmatch(body)[1]
	p := webtest.Start(t).Open(nil)
	path := otterPath + "/changes"
	for query, l := range map[string]look{"?c=" + line: {1440, 900, "light"}, "?view=split&c=" + line: {1440, 900, "dark"}, "?w=1": {390, 844, "light"}, "?w=1&c=" + line: {390, 844, "dark"}} {
		w.look(p, string(axe), path+query, 0, l)
	}
	if dir := os.Getenv("RAMUS_SHOTS"); dir != "" {
		for _, l := range []look{{1440, 900, "light"}, {1440, 900, "dark"}, {390, 844, "light"}, {390, 844, "dark"}} {
			p.Look(l.width, l.height, l.theme)
			p.Go(w.server.URL + path + "?c=" + line)
			p.Shot(fmt.Sprintf("%s/comments-%d-%s.png", dir, l.width, l.theme), true)
		}
	}
	p.Look(320, 640, "light")
	p.Go(w.server.URL + path + "?c=" + line)
	var wide []string
	if p.Eval(widerThanWindow, &wide); len(wide) > 0 {
		t.Errorf("it is wider than 320 px: %v", wide)
	}

	// The keys of the page: c opens the form at the line, n and p go through changes and comments.
	p.Look(1440, 900, "light")
	p.Go(w.server.URL + path)
	p.Press("n")
	p.Wait(`!!document.activeElement.closest('.l, .thread')`)
	for range 40 {
		if p.Holds(`!!document.activeElement.closest('.thread')`) {
			break
		}
		p.Press("n")
	}
	p.Wait(`!!document.activeElement.closest('.thread')`)
	p.Press("p")
	p.Wait(`!!document.activeElement.closest('.l')`)
	p.Press("c")
	p.Wait(`document.activeElement.id === 'line-text' && !!document.activeElement.closest('.dfile')`)
	p.Press("c")
	p.Wait(`document.activeElement.value === 'c'`)
	p.Eval(`document.activeElement.form.requestSubmit(document.activeElement.form.querySelector('button'))`, nil)
	p.Wait(`document.body.innerText.includes('Send 2 comments') && location.hash.startsWith('#t-')`)
	send(comment.New{Path: "tool.sh", Line: 1, Text: "newer"})
	w.run("otter", record.Request{Command: &record.Command{Shell: "true"}})
	p.Wait(`document.querySelector('[data-live=news]').innerText.includes('newer comments')`)
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}
