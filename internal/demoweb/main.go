// Demoweb shows the pages of ramus. A real Chromium signs in, imports a repository, makes a workspace, runs commands,
// asks an agent, answers it, loses the server again and again, stops, starts again and goes on with a phone. It prints each
// step with its evidence, and writes pictures of them. The exit status is 0 only if all of this happened in time.
//
//	demoweb -ramus FILE -agent FILE -sample FOLDER -out FOLDER [-keys | -review] [-most DURATION]
//
// With -review, two people and an agent review a branch instead: comments on lines, answers with commits, a suggestion, the timeline, a fork
// and a merge. It is the program of make demo-web and of make demo-review.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemoweb:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	var ramus, agent, sample, out string
	var keys, review bool
	var most time.Duration
	flag.StringVar(&ramus, "ramus", "", "path of ramus, which containers of any user can read")
	flag.StringVar(&agent, "agent", "", "path of acp-standin, alone in a folder that containers can read")
	flag.StringVar(&sample, "sample", "examples/sample", "`folder` of the repository to import")
	flag.StringVar(&out, "out", "bin/demo-web", "`folder` of the pictures, which is emptied first")
	flag.BoolVar(&keys, "keys", false, "use the keyboard alone")
	flag.BoolVar(&review, "review", false, "have two people and an agent review a branch")
	flag.DurationVar(&most, "most", 90*time.Second, "how long all of it may take")
	flag.Parse()
	if ramus == "" || agent == "" || flag.NArg() > 0 {
		return errors.New("want -ramus and -agent, and nothing else")
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	s := &stage{began: time.Now()}
	defer func() { err = errors.Join(err, s.strike()) }()
	strip := &strip{dir: out}
	site := &webtest.Site{T: s, Ramus: ramus, Agent: agent, Sample: sample}
	defer func() {
		if err != nil {
			fmt.Fprintf(os.Stderr, "\nthe end of the server's log:\n%s", tail(site.Log(), 4000))
		}
	}()
	defer s.missed(&err)
	browser := webtest.Start(s)
	page := browser.Open(nil)
	if review {
		if err := openGitHub(s, site); err != nil {
			return err
		}
	}
	site.Prepare()
	site.Serve()
	story := &webtest.Story{Site: site, Page: page, Name: "brave-otter", Keys: keys, Note: s.note,
		Picture: func(name string) { strip.take(page, name) }}
	ended := "a day at the pages, with a server that was killed in between, and no word and no byte lost"
	if review {
		ended = "a review by two people and an agent, with comments that followed their lines"
		tellReview(s, story, strip, browser)
	} else {
		tell(story)
	}
	if err := strip.write(); err != nil {
		return err
	}
	took := time.Since(s.began)
	if took > most {
		return fmt.Errorf("all of it happened, and took %.0f s; at most %.0f s were to pass", took.Seconds(), most.Seconds())
	}
	fmt.Printf("\n== done in %.0f s: %s\n", took.Seconds(), ended)
	fmt.Printf("%d pictures: %s\n", len(strip.names), filepath.Join(out, "index.html"))
	return nil
}

// tell performs all steps.
func tell(story *webtest.Story) {
	story.SignIn()
	story.Import()
	story.Begin()
	story.Command("echo 'It weighs things.' >notes.txt")
	story.Command("mkdir -p notes && mv notes.txt notes/first.txt")
	story.Command("date -u +%F >>notes/first.txt")
	story.Ask()
	story.Answer()
	story.Cut()
	story.Terminal()
	story.Vim()
	story.Rest()
	story.Phone()
	story.Clean()
}

// tail returns the end of a text.
func tail(text string, most int) string { return text[max(0, len(text)-most):] }
