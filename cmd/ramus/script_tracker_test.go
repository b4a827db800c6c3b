package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/trackertest"
	"github.com/rogpeppe/go-internal/testscript"
)

type trackerKey struct{}

// trackerCommand is the command "tracker" of the stories, a stand-in of an issue tracker with the issue APP-12.
//
//	tracker start KIND               jira or linear; its address is $TRACKER; the token of ramus is in tracker-token, the
//	                                 secret of webhooks in tracker-secret
//	tracker send URL KEY LABEL TITLE TEXT   send the webhook of a change; the answer is in the file answer
//	tracker forge URL                send one that is signed with another secret
//	tracker wait KEY COUNT           wait for comments, which are in the file comments then
func trackerCommand(ts *testscript.TestScript, _ bool, args []string) {
	own := ts.Value(trackerKey{}).(**trackertest.Server)
	if len(args) < 2 {
		ts.Fatalf("usage: tracker start|send|forge|wait …")
	}
	send := func(url, secret string, args ...string) {
		header, body := (*own).Webhook(args[0], args[1], args[2], strings.ReplaceAll(args[3], `\n`, "\n"), secret)
		status, said, err := (*own).Send(context.Background(), url, header, body)
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs("answer"), fmt.Appendf(nil, "%d %s\n", status, said), 0o600))
	}
	switch args[0] {
	case "start":
		s, err := trackertest.Start(args[1])
		ts.Check(err)
		*own = s
		ts.Defer(func() { ts.Check(s.Close()) })
		ts.Setenv("TRACKER", s.URL())
		ts.Check(os.WriteFile(ts.MkAbs("tracker-token"), []byte(s.Token), 0o600))
		ts.Check(os.WriteFile(ts.MkAbs("tracker-secret"), []byte(s.Secret), 0o600))
	case "send":
		send(args[1], (*own).Secret, args[2:]...)
	case "forge":
		send(args[1], "another secret", "APP-12", "ramus", "T", "x")
	case "wait":
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		for deadline := time.Now().Add(forgeWait); ; time.Sleep(20 * time.Millisecond) {
			all := (*own).Comments(args[1])
			if len(all) >= n {
				var b strings.Builder
				for _, c := range all {
					b.WriteString(c.Body + "\n")
				}
				ts.Check(os.WriteFile(ts.MkAbs("comments"), []byte(b.String()), 0o600))
				return
			}
			if time.Now().After(deadline) {
				ts.Fatalf("%d comments: %v", len(all), all)
			}
		}
	default:
		ts.Fatalf("unknown: tracker %s", args[0])
	}
}
