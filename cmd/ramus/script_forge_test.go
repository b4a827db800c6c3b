package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/bitbuckettest"
	"github.com/ramus-dev/ramus/internal/standin/giteatest"
	"github.com/ramus-dev/ramus/internal/standin/gitlabtest"
	standin "github.com/ramus-dev/ramus/internal/standin/hub"
	"github.com/rogpeppe/go-internal/testscript"
)

type forgeKey struct{}

// forgeStory is the forge of a story.
type forgeStory struct {
	hub  *standin.Hub
	repo *standin.Repo
}

// forgeWait bounds a wait of a story.
const forgeWait = 2 * time.Minute

// forgeCommand is the command "forge" of the stories, a stand-in of a forge with the repository acme/app.
//
//	forge start KIND              gitlab, gitea or bitbucket; its address is $FORGE, that of the repository for git $UPSTREAM;
//	                              the token of ramus is in the file forge-token, the secret of its webhooks in forge-secret;
//	                              its people are reviewer, who may write, and visitor
//	forge hook URL                deliver webhooks there
//	forge comment USER N TEXT     comment in the conversation of pull request N
//	forge review USER N STATE PATH:LINE TEXT
//	forge check BRANCH NAME STATE report a check of the branch's tip
//	forge merge N                 merge pull request N as reviewer
//	forge close N, forge reopen N
//	forge wait N WHAT [COUNT]     wait for the pull request ("open", "merged"), for COUNT posts of ramus ("posts"), or
//	                              until its branch is gone ("gone"); the pull request is in the file pull.json then
//	forge clean PATH…             fail if the forge complains, or a token is in a file below one of the paths
func forgeCommand(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value(forgeKey{}).(*forgeStory)
	if len(args) < 2 {
		ts.Fatalf("usage: forge start|hook|comment|review|check|merge|close|reopen|wait|clean …")
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], `\n`, "\n")
	}
	number, _ := strconv.Atoi(args[min(1, len(args)-1)])
	switch args[0] {
	case "start":
		ts.Check(s.start(ts, args[1]))
	case "hook":
		s.hub.SetHook(args[1])
	case "comment":
		number, _ = strconv.Atoi(args[2])
		ts.Check(s.repo.Comment(args[1], number, args[3]))
	case "review":
		number, _ = strconv.Atoi(args[2])
		path, line, _ := strings.Cut(args[4], ":")
		n, _ := strconv.Atoi(line)
		ts.Check(s.repo.Review(args[1], number, args[3], "", standin.Line{Path: path, Line: n, Body: args[5]}))
	case "check":
		s.repo.SetStatus(s.repo.Head(args[1]), args[2], args[3])
	case "merge":
		ts.Check(s.repo.Merge("reviewer", number))
	case "close":
		ts.Check(s.repo.SetState("reviewer", number, "closed"))
	case "reopen":
		ts.Check(s.repo.SetState("reviewer", number, "open"))
	case "wait":
		ts.Check(s.wait(ts, number, args[2:]))
	case "clean":
		ts.Check(s.clean(ts, args[1:]))
	default:
		ts.Fatalf("unknown: forge %s", args[0])
	}
}

func (s *forgeStory) start(ts *testscript.TestScript, kind string) error {
	open := map[string]func(string) *standin.Hub{"gitlab": gitlabtest.Open, "gitea": giteatest.Open,
		"bitbucket": bitbuckettest.Open}[kind]
	if open == nil {
		return fmt.Errorf("there is no forge %q", kind)
	}
	s.hub = open(ts.MkAbs("forge"))
	if err := s.hub.Start(); err != nil {
		return err
	}
	ts.Defer(func() { ts.Check(s.hub.Close()) })
	ramus := s.hub.AddUser("ramus", standin.Admin)
	s.hub.AddUser("reviewer", standin.Writer)
	s.hub.AddUser("visitor", standin.Reader)
	var err error
	if s.repo, err = s.hub.AddRepo("acme", "app", ""); err != nil {
		return err
	}
	ts.Setenv("FORGE", s.hub.URL())
	ts.Setenv("UPSTREAM", s.repo.Clone())
	for name, text := range map[string]string{"forge-token": ramus.Token, "forge-secret": s.hub.Secret} {
		if err := os.WriteFile(ts.MkAbs(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for a pull request and writes it to a file.
func (s *forgeStory) wait(ts *testscript.TestScript, number int, what []string) error {
	count := 0
	if len(what) > 1 {
		count, _ = strconv.Atoi(what[1])
	}
	for deadline := time.Now().Add(forgeWait); ; time.Sleep(20 * time.Millisecond) {
		ready := false
		var text []byte
		s.repo.Look(func(all []*standin.Pull) {
			if number > len(all) {
				return
			}
			p := all[number-1]
			posts := 0
			for _, c := range p.Comments {
				if c.Author.Login == "ramus" {
					posts++
				}
			}
			switch what[0] {
			case "posts":
				ready = posts >= count
			case "gone":
				ready = s.repo.HeadOf(p.Head) == ""
			case "requested":
				ready = len(p.Requested) > 0
			default:
				ready = p.State == what[0]
			}
			text, _ = json.MarshalIndent(p, "", " ")
		})
		if ready {
			return os.WriteFile(ts.MkAbs("pull.json"), text, 0o600)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pull request %d: no %v: %s", number, what, text)
		}
	}
}

func (s *forgeStory) clean(ts *testscript.TestScript, places []string) error {
	if c := s.hub.Complaints(); len(c) > 0 {
		return fmt.Errorf("the forge complains: %s", strings.Join(c, "; "))
	}
	token, err := os.ReadFile(ts.MkAbs("forge-token"))
	if err != nil {
		return err
	}
	for _, place := range places {
		err := filepath.WalkDir(ts.MkAbs(place), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if strings.Contains(string(b), string(token)) {
				return fmt.Errorf("the token is in %s", path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
