// Slack-standin is a Slack workspace on this machine, to try ramus without Slack. It implements the Web API, delivers signed
// events, and prints the messages to the terminal.
//
//	slack-standin -listen 127.0.0.1:7080 -events http://127.0.0.1:7077/slack/events
//
// Standard input has the actions of people, one per line:
//
//	verify SECONDS              wait until the app answers Slack's challenge
//	say NAME #CHANNEL TEXT      begin a thread
//	reply NAME TEXT             answer in the current thread, which is the last one that was begun or chosen
//	thread N                    choose the Nth thread
//	command NAME #CHANNEL TEXT  type /ramus TEXT
//	press NAME ACTION [VALUE]   press a button of the app's latest message that has it
//	wait SECONDS REGEXP         wait until the app's messages after a person's last line match
//	email NAME ADDRESS          set the address in a person's profile
//	note TEXT                   print a text, when the lines before are done
//	sleep SECONDS
//
// In a TEXT, @ramus and @NAME are mentions, and \n is a new line. A line that begins with # is skipped. The program ends with
// its input, or with -serve on an interrupt. The exit status is 1 if a wait was in vain.
//
// With -fallback it is the fallback runner as well, and prints the threads that it receives.
//
// Slack's secrets are SLACK_BOT_TOKEN, SLACK_APP_TOKEN and SLACK_SIGNING_SECRET, with defaults from package slacktest. The
// fallback runner's secret is FALLBACK_SECRET.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/gateway/fallback"
	"github.com/ramus-dev/ramus/internal/standin/fallbacktest"
	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "slack-standin:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("slack-standin", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:7080", "`address` of the Web API")
	base := flags.String("ramus", "http://127.0.0.1:7077",
		"`URL` of ramus, below which /slack/events, /slack/commands and /slack/interactions are")
	events := flags.String("events", "", "`URL` for events, instead of the one below -ramus")
	commands := flags.String("commands", "", "`URL` for slash commands, instead")
	interactions := flags.String("interactions", "", "`URL` for buttons, instead")
	socket := flags.Bool("socket", false, "deliver by Socket Mode, to no URL")
	users := flags.String("users", "U01=developer,U02=reviewer,U03=visitor", "people, as `ID=NAME,…`")
	channels := flags.String("channels", "C01=builds,C02=general", "channels that the app is in, as `ID=NAME,…`")
	elsewhere := flags.String("fallback", "", "`address` to be a fallback runner at; empty: none")
	serve := flags.Bool("serve", false, "go on when the input has ended")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q? everything is said by flags and on standard input", flags.Arg(0))
	}
	url := func(given, path string) string {
		if given != "" {
			return given
		}
		return strings.TrimSuffix(*base, "/") + path
	}
	people, err := pairs(*users)
	if err != nil {
		return fmt.Errorf("-users: %w", err)
	}
	places, err := pairs(*channels)
	if err != nil {
		return fmt.Errorf("-channels: %w", err)
	}
	w := &workspace{screen: &screen{out: out, users: map[string]string{}, channels: map[string]string{}},
		users: map[string]string{}, channels: map[string]string{}}
	w.Server = &slacktest.Server{
		Addr:            *listen,
		Token:           getenv("SLACK_BOT_TOKEN"),
		AppToken:        getenv("SLACK_APP_TOKEN"),
		SigningSecret:   getenv("SLACK_SIGNING_SECRET"),
		EventsURL:       url(*events, "/slack/events"),
		CommandsURL:     url(*commands, "/slack/commands"),
		InteractionsURL: url(*interactions, "/slack/interactions"),
		SocketMode:      *socket,
		On:              w.screen.change,
	}
	for _, p := range people {
		w.users[p.name] = p.id
		w.screen.users[p.id] = p.name
	}
	for _, p := range places {
		w.channels[p.name] = p.id
		w.screen.channels[p.id] = p.name
	}
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Close()
	w.users[w.BotName] = w.BotUser
	w.screen.name(w.BotUser, w.BotName)
	for _, p := range people {
		w.AddUser(p.id, p.name)
	}
	for _, p := range places {
		w.AddChannel(p.id, p.name, true)
	}
	w.screen.say("Slack's stand-in: %s", w.API())
	if *elsewhere != "" {
		stop, err := serveFallback(*elsewhere, getenv("FALLBACK_SECRET"), w.screen)
		if err != nil {
			return err
		}
		defer stop()
	}
	err = w.play(ctx, in)
	if err == nil && *serve {
		<-ctx.Done()
	}
	for _, complaint := range w.Complaints() {
		w.screen.say("refused: %s", complaint)
	}
	return err
}

// serveFallback runs a fallback runner until stop is called.
func serveFallback(addr, secret string, s *screen) (stop func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot be a fallback runner: %w", err)
	}
	runner := &fallbacktest.Runner{Secret: secret, Answer: func(p fallback.Packet) string {
		s.say("the fallback runner takes %s: %s", p.Session, p.Text)
		return "The fallback runner looks after this."
	}}
	server := &http.Server{Handler: runner, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // until it is closed
	}()
	return func() {
		server.Close()
		<-ended
	}, nil
}

type pair struct{ id, name string }

func pairs(text string) (all []pair, err error) {
	for one := range strings.SplitSeq(text, ",") {
		id, name, ok := strings.Cut(one, "=")
		if !ok || id == "" || name == "" {
			return nil, fmt.Errorf("%q is not ID=NAME", one)
		}
		all = append(all, pair{id, name})
	}
	return all, nil
}
