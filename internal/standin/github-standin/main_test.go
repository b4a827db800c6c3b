package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	gogithub "github.com/google/go-github/v66/github"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/internal/golden"
	"github.com/ramus-dev/ramus/internal/loopback"
)

// app opens a pull request when a branch is pushed, and answers what is said about it.
func app(t *testing.T, secret string, client func() *github.Client) http.Handler {
	name := forge.Name{Owner: "acme", Repo: "sample"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := gogithub.ValidatePayload(r, []byte(secret))
		if err != nil {
			t.Error(err)
			return
		}
		event, err := gogithub.ParseWebHook(gogithub.WebHookType(r), body)
		if err != nil {
			t.Error(err)
			return
		}
		ctx := r.Context()
		switch e := event.(type) {
		case *gogithub.PushEvent:
			if branch := strings.TrimPrefix(e.GetRef(), "refs/heads/"); branch != "main" && e.GetCreated() {
				_, err = client().CreatePull(ctx, name, forge.NewPull{Head: branch, Base: "main",
					Title: "Work on " + branch, Body: "<!-- mark -->\x1b[2JDone."})
			}
		case *gogithub.PullRequestReviewCommentEvent:
			if e.GetSender().GetType() == "User" {
				to := forge.Comment{ID: e.GetComment().GetID(), Body: e.GetComment().GetBody()}
				_, err = client().Reply(ctx, name, e.GetPullRequest().GetNumber(), to,
					"heard: "+e.GetComment().GetBody(), "m1")
			}
		case *gogithub.PullRequestReviewEvent:
			if e.GetReview().GetState() == "changes_requested" {
				err = client().RequestReview(ctx, name, e.GetPullRequest().GetNumber(), []string{e.GetSender().GetLogin()})
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func TestPlay(t *testing.T) {
	var client *github.Client
	ramus := httptest.NewServer(app(t, "demo secret", func() *github.Client { return client }))
	defer ramus.Close()
	listen, key := loopback.Address(t), filepath.Join(t.TempDir(), "app.pem")
	private, err := keyAt(key)
	if err != nil {
		t.Fatal(err)
	}
	client = &github.Client{URL: "http://" + listen,
		Tokens: &github.App{ID: 12, Installation: 34, Key: private, URL: "http://" + listen}}
	environ := map[string]string{"GITHUB_WEBHOOK_SECRET": "demo secret"}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	err = run(ctx, []string{"-listen", listen, "-hook", ramus.URL, "-import", "sample=", "-key", key}, func(name string) string { return environ[name] }, strings.NewReader(`
# a line that is skipped
ping 60
push developer fix new.txt one\ntwo
wait 60 opened #1
line reviewer new.txt /two/ Why two?
wait 60 heard: Why two
reply reviewer I see.
review reviewer changes_requested Make it three.
wait 60 asked reviewer
check ci failure 1 test failed
check ci success
comment visitor Nice.
review reviewer approved
merge developer squash
delete developer fix
show
`), &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	got := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d`).ReplaceAllString(out.String(), "09:00:00")
	got = regexp.MustCompile(`\b[0-9a-f]{10}\b`).ReplaceAllString(got, "0123456789")
	got = strings.ReplaceAll(got, listen, "ADDRESS")
	golden.CompareFile(t, "testdata/play.txt", got)
}

func TestControl(t *testing.T) {
	listen := loopback.Address(t)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		err := run(ctx, []string{"-listen", listen, "-import", "sample=", "-serve"}, func(string) string { return "" },
			strings.NewReader(""), io.Discard)
		if err != nil {
			t.Error(err)
		}
	})
	defer group.Wait()
	defer cancel()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	browser := &http.Client{Transport: transport}
	post := func(lines string, header ...string) (int, string) {
		req, err := http.NewRequest("POST", "http://"+listen+"/_standin", strings.NewReader(lines))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		for {
			resp, err := browser.Do(req)
			if err != nil {
				time.Sleep(10 * time.Millisecond) // it is about to listen
				req.Body = io.NopCloser(strings.NewReader(lines))
				continue
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, string(text)
		}
	}
	var status int
	var text string
	for { // the repository comes a little after the address
		if status, text = post("push developer fix a.txt hello\nopen developer fix main A fix\n"); !strings.Contains(text, "no repository") {
			break
		}
	}
	if status != 200 {
		t.Fatal(status, text)
	}
	if status, text = post("merge visitor"); status != 422 || !strings.Contains(text, "visitor may not") {
		t.Error(status, text)
	}
	if status, _ = post("merge developer", "Origin", "http://elsewhere.example"); status != 403 {
		t.Error("a page may merge:", status)
	}
	resp, err := browser.Get("http://" + listen + "/_standin/pulls")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var pulls []struct {
		Title string
		State string
	}
	if err := json.NewDecoder(resp.Body).Decode(&pulls); err != nil || len(pulls) != 1 || pulls[0].Title != "A fix" ||
		pulls[0].State != "open" {
		t.Error(pulls, err)
	}
}

func TestPlayFails(t *testing.T) {
	for _, script := range []string{
		"ping 0.1", "push developer fix a b\nredeliver", "wink", "comment developer hi", "push nobody fix a b",
		"push visitor fix a b", "pull 7", "repo other", "show",
		"wait 0.1 .", "wait 1 (", "sleep x", "merge",
		"push developer fix a b\nopen developer fix main T\nline reviewer README.md /nothing/ x",
		"push developer fix a b\nopen developer fix main T\nreview reviewer wonderful",
		"push developer fix a b\nopen developer fix main T\ncheck ci wonderful",
	} {
		// Nobody listens where the webhooks go.
		err := run(t.Context(), []string{"-listen", "127.0.0.1:0", "-hook", "http://127.0.0.1:1", "-import", "sample="},
			func(string) string { return "" }, strings.NewReader(script), io.Discard)
		if err == nil {
			t.Errorf("%q: no error", script)
		}
	}
	for _, args := range [][]string{{"-users", "x"}, {"-import", "sample=/nowhere"}, {"-import", "x"}, {"words"}, {"-listen", "nowhere"}} {
		if err := run(t.Context(), args, func(string) string { return "" }, strings.NewReader(""), io.Discard); err == nil {
			t.Error(fmt.Sprint(args), "no error")
		}
	}
}
