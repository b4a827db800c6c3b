package gateway_test

import (
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forgekey"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/internal/redact"
)

// connectable is a shop in which people store tokens of their own.
func connectable(t *testing.T) (*shop, *forgekey.Keys) {
	t.Helper()
	store := &secret.Store{Box: &sealed.Box{Dir: t.TempDir(), KeyFile: filepath.Join(t.TempDir(), "seal.key")},
		Redact: new(redact.Secrets)}
	if err := store.Open(); err != nil {
		t.Fatal(err)
	}
	keys := &forgekey.Keys{Store: store}
	k, _ := openThreads(t, func(c *chat.Chat) { c.Keys = keys })
	_, at, _ := k.engineer.Upstream("app")
	keys.Sites = []forgekey.Site{{Name: "github", URL: k.github.URL(), Forge: at.Forge,
		With: func(token string) forge.Forge {
			return &github.Client{URL: k.github.API(), Tokens: github.Token(token)}
		}}}
	keys.URL = k.web.URL
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return k, keys
}

var connectLink = regexp.MustCompile(`http://\S+/connect\?ticket=\w+`)

// invite types /ramus connect and returns the link of the answer.
func (k *shop) invite(user string) string {
	k.t.Helper()
	a := k.slack.Command(k.t.Context(), user, "C01", "/ramus", "connect")
	link := connectLink.FindString(string(a.Answer))
	if link == "" {
		k.t.Fatalf("no link: %d %s", a.Status, a.Answer)
	}
	return link
}

// connect opens a link and sends the form of its page.
func (k *shop) connect(link, token string) (status int, text string) {
	k.t.Helper()
	for range 2 { // Slack looks at links too
		page, err := http.Get(link)
		if err != nil {
			k.t.Fatal(err)
		}
		b, _ := io.ReadAll(page.Body)
		page.Body.Close()
		status, text = page.StatusCode, string(b)
	}
	if status != http.StatusOK {
		return status, text
	}
	if !strings.Contains(text, "If you are not first") {
		k.t.Errorf("the page does not name its person: %s", text)
	}
	u, err := url.Parse(link)
	if err != nil {
		k.t.Fatal(err)
	}
	answer, err := http.PostForm(k.web.URL+"/connect", url.Values{"ticket": {u.Query().Get("ticket")}, "token": {token}})
	if err != nil {
		k.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(b)
}

// TestPullInOwnName has a person store a token of their own. The pull requests that this person asks for are in the
// person's name, and those of other people are not.
func TestPullInOwnName(t *testing.T) {
	t.Parallel()
	k, keys := connectable(t)
	k.github.AddUser("ada", "write")
	token := k.github.AddToken("ada", nil, nil)

	link := k.invite(owner)
	if status, text := k.connect(link, "ghp_of_nobody_at_all"); status != 400 || !strings.Contains(text, "GitHub refuses that token") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := k.connect(link, "two words"); status != 400 || !strings.Contains(text, "no token") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := k.connect(link, token); status != 200 || !strings.Contains(text, "ada") || strings.Contains(text, token) {
		t.Errorf("%d %s", status, text)
	}
	if status, text := k.connect(link, token); status != 400 || !strings.Contains(text, "this invitation was used") {
		t.Errorf("%d %s", status, text)
	}
	first := k.invite("U02")
	if k.invite("U02"); first == "" {
		t.Fatal("no link")
	}
	if status, text := k.connect(first, token); status != 400 {
		t.Errorf("an invitation that a later one replaced opens: %s", text)
	}

	thread, _ := k.say("", "exec echo made >made.txt", 1)
	k.say(thread, "pr", 2)
	if pulls := k.repo.Pulls(); len(pulls) != 1 || pulls[0].Author != "ada" {
		t.Fatalf("%+v", pulls)
	}

	// The token is revoked. ramus opens the pull request, and says so.
	k.github.Revoke(token)
	thread, _ = k.say("", "exec echo more >more.txt", 1)
	k.say(thread, "pr", 2)
	k.posted(thread, "GitHub refuses your own token")
	if pulls := k.repo.Pulls(); len(pulls) != 2 || pulls[1].Author == "ada" {
		t.Fatalf("%+v", pulls)
	}
	if a := k.slack.Command(t.Context(), owner, "C01", "/ramus", "disconnect"); !strings.Contains(string(a.Answer),
		"Your tokens of github are removed") {
		t.Errorf("%s", a.Answer)
	}
	if _, ok := keys.Forge(t.Context(), keys.Sites[0].Forge, "slack:"+k.slack.Team+":"+owner); ok {
		t.Error("a token that was removed is used")
	}
}
