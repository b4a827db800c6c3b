package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// openGitHub starts a stand-in of GitHub, by which both people sign in.
func openGitHub(s *stage, site *webtest.Site) error {
	dir := s.TempDir()
	hub := &githubtest.Server{Root: dir, Addr: "127.0.0.1:0", Account: "acme", App: 12, Installation: 34, Slug: "ramus"}
	if err := hub.Start(context.Background()); err != nil {
		return err
	}
	s.Cleanup(func() {
		if err := hub.Close(); err != nil {
			s.Fatal(err)
		}
	})
	hub.AddUser("ada", "admin")
	hub.AddUser("bo", "write")
	key, secret := filepath.Join(dir, "app.pem"), filepath.Join(dir, "client_secret")
	err := errors.Join(
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(hub.Key)}), 0o600),
		os.WriteFile(secret, []byte(githubtest.ClientSecret), 0o600))
	site.NoLink = true
	site.Config += fmt.Sprintf("github:\n  url: %s\n  app_id: 12\n  key_file: %s\n"+
		"  sign_in: {client_id: %s, client_secret_file: %s}\nsign_in: {admins: ['github:ada'], members: ['github:bo']}\n", hub.URL(), key, githubtest.ClientID, secret)
	return err
}

// list is the file that is reviewed.
const list = "for w in one two three four five six seven eight nine ten eleven twelve; do echo $w; done >list.txt"

// tellReview performs the steps of the review. ada is an administrator, and bo a member.
func tellReview(s *stage, ada *webtest.Story, strip *strip, browser *webtest.Browser) {
	page := browser.Open(nil) // with cookies of its own
	bo := &webtest.Story{Site: ada.Site, Page: page, Name: ada.Name, Note: s.note, Picture: func(name string) { strip.take(page, name) }}
	ada.GitHubSignIn("ada")
	ada.Import()
	ada.Begin()
	ada.Exec(list)
	ada.Exec("test -e missing.txt")
	ada.Work("say I write down what it is.\nwrite about.txt It counts to twelve.")
	bo.GitHubSignIn("bo")
	bo.Comment(5, "Write five in capitals, and begin with zero:\n\nrun sed -i -e s/^five$/FIVE/ -e '1i zero' list.txt")
	bo.Comment(9, "Nine is a number, too.\n\n```suggestion\nnine (9)\n```")
	bo.SendComments()
	bo.Follow("were changed in", "now list.txt, line 10")
	ada.Follow("were changed in", "now list.txt, line 10")
	ada.TakeSuggestion("list.txt", "nine (9)")
	commit := ada.Scrub("test -e missing.txt")
	ada.ForkHere("calm-heron", commit)
	ada.Merge("list.txt", "FIVE")
	ada.Shared(browser.Open(nil))
	ada.Site.Check()
}
