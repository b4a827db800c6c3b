package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/slacktest"
)

// workspace is the stand-in with the names that the input uses.
type workspace struct {
	*slacktest.Server
	screen   *screen
	users    map[string]string // ids by name
	channels map[string]string

	threads []place // all threads so far
	at      place   // the current thread of reply, press and wait
	since   string  // ts of a person's last message; wait considers the app's messages after it
}

type place struct{ channel, ts string }

// maxLine bounds a line of the input.
const maxLine = 1 << 16

// play performs the lines of the input until it ends.
func (w *workspace) play(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := w.do(ctx, line); err != nil {
			return fmt.Errorf("line %d: %s: %w", n, line, err)
		}
	}
	return lines.Err()
}

func (w *workspace) do(ctx context.Context, line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	first, after, _ := strings.Cut(rest, " ")
	after = strings.TrimSpace(after)
	switch verb {
	case "verify":
		return w.within(ctx, first, w.Verify)
	case "say":
		user, err := w.user(first)
		if err != nil {
			return err
		}
		channel, text, err := w.channel(after)
		if err != nil {
			return err
		}
		w.since = w.Say(user, channel, "", w.text(text))
		w.at = place{channel, w.since}
		w.threads = append(w.threads, w.at)
		return nil
	case "thread":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 1 || n > len(w.threads) {
			return fmt.Errorf("there are %d threads", len(w.threads))
		}
		w.at, w.since = w.threads[n-1], ""
		return nil
	case "command":
		user, err := w.user(first)
		if err != nil {
			return err
		}
		channel, text, err := w.channel(after)
		if err != nil {
			return err
		}
		w.screen.say("%s types /ramus %s", first, text)
		return failed(w.Command(ctx, user, channel, "/ramus", text))
	case "email":
		user, err := w.user(first)
		if err != nil {
			return err
		}
		w.SetEmail(user, after)
		return nil
	case "note":
		w.screen.say("%s", rest)
		return nil
	case "sleep":
		d, err := seconds(first)
		if err != nil {
			return err
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	case "reply", "press", "wait":
		if w.at == (place{}) {
			return errors.New("no thread was begun")
		}
	}
	switch verb {
	case "reply":
		user, err := w.user(first)
		if err != nil {
			return err
		}
		w.since = w.Say(user, w.at.channel, w.at.ts, w.text(after))
		return nil
	case "press":
		user, err := w.user(first)
		if err != nil {
			return err
		}
		action, value, _ := strings.Cut(after, " ")
		return w.press(ctx, user, action, strings.TrimSpace(value))
	case "wait":
		pattern, err := regexp.Compile(after)
		if err != nil {
			return err
		}
		return w.within(ctx, first, func(context.Context) error {
			for _, m := range w.Own(w.at.channel, w.at.ts) {
				if m.TS > w.since && pattern.MatchString(m.Text+"\n"+shown(m.Blocks)) {
					return nil
				}
			}
			return errors.New("the app has not said it")
		})
	}
	return fmt.Errorf("what is %q?", verb)
}

// press presses the button of the latest message that has it.
func (w *workspace) press(ctx context.Context, user, action, value string) error {
	own := w.Own(w.at.channel, w.at.ts)
	var err error
	for i := len(own) - 1; i >= 0; i-- {
		var a slacktest.Attempt
		if a, err = w.Press(ctx, user, w.at.channel, own[i].TS, action, value); err == nil {
			return failed(a)
		}
	}
	if err == nil {
		err = errors.New("the app has said nothing")
	}
	return err
}

func failed(a slacktest.Attempt) error {
	if a.Err != nil {
		return a.Err
	}
	if a.Status/100 != 2 {
		return fmt.Errorf("the app answered with status %d", a.Status)
	}
	return nil
}

// within calls try until it succeeds, for at most limit seconds.
func (w *workspace) within(ctx context.Context, limit string, try func(context.Context) error) error {
	d, err := seconds(limit)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := try(ctx); err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func seconds(text string) (time.Duration, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n > 86400 {
		return 0, fmt.Errorf("%q is no number of seconds", text)
	}
	return time.Duration(n * float64(time.Second)), nil
}

func (w *workspace) user(name string) (string, error) {
	if id, ok := w.users[name]; ok && name != w.BotName {
		return id, nil
	}
	return "", fmt.Errorf("there is nobody called %q", name)
}

func (w *workspace) channel(rest string) (id, text string, err error) {
	name, text, _ := strings.Cut(rest, " ")
	id, ok := w.channels[strings.TrimPrefix(name, "#")]
	if !ok || !strings.HasPrefix(name, "#") {
		return "", "", fmt.Errorf("there is no channel %q", name)
	}
	return id, strings.TrimSpace(text), nil
}

var named = regexp.MustCompile(`@[a-z0-9-]+`)

// text returns a typed text as Slack encodes it.
func (w *workspace) text(typed string) string {
	typed = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `\n`, "\n").Replace(typed)
	return named.ReplaceAllStringFunc(typed, func(at string) string {
		if id, ok := w.users[at[1:]]; ok {
			return "<@" + id + ">"
		}
		return at
	})
}
