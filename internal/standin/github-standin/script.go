package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

// hub is the stand-in with the choices of the input.
type hub struct {
	*githubtest.Server
	verbose bool
	bot     string

	turn sync.Mutex // held during a person's action, from the input or from /_standin; taken before mu

	mu     sync.Mutex // guards the fields below
	out    io.Writer
	repo   *githubtest.Repo
	number int   // of the pull request
	thread int64 // the last comment on a line
	done   []string
}

func newHub(out io.Writer, verbose bool) *hub { return &hub{out: out, verbose: verbose} }

func (h *hub) choose(r *githubtest.Repo) {
	h.mu.Lock()
	h.repo, h.bot = r, h.Slug+"[bot]"
	h.mu.Unlock()
}

// chosen returns the repository and the pull request to which lines apply.
func (h *hub) chosen() (*githubtest.Repo, int, int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.repo, h.number, h.thread
}

// maxLine bounds a line of the input, and maxScript one post.
const (
	maxLine   = 1 << 16
	maxScript = 1 << 20
)

// play performs the lines of the input until it ends.
func (h *hub) play(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := h.do(ctx, line); err != nil {
			return fmt.Errorf("line %d: %s: %w", n, line, err)
		}
	}
	return lines.Err()
}

// settleTime is the longest wait for the last webhooks.
const settleTime = 30 * time.Second

func (h *hub) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	return h.Settle(ctx)
}

// control serves /_standin, to this machine alone.
func (h *hub) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /_standin", func(w http.ResponseWriter, r *http.Request) {
		if err := h.play(r.Context(), http.MaxBytesReader(w, r.Body, maxScript)); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}
	})
	mux.HandleFunc("GET /_standin/pulls", func(w http.ResponseWriter, r *http.Request) {
		repo, _, _ := h.chosen()
		pulls := []githubtest.Pull{}
		if repo != nil {
			pulls = append(pulls, repo.Pulls()...)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(pulls)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		// A page in a browser could post here as well, but has an Origin.
		if err != nil || !net.ParseIP(host).IsLoopback() || r.Header.Get("Origin") != "" {
			http.Error(w, "this is for programs on the same machine", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// do performs one line.
func (h *hub) do(ctx context.Context, line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	args := strings.Fields(rest)
	// tail returns the text after the first n words.
	tail := func(n int) string {
		text := strings.TrimSpace(rest)
		for range n {
			_, text, _ = strings.Cut(text, " ")
			text = strings.TrimSpace(text)
		}
		return strings.ReplaceAll(text, `\n`, "\n")
	}
	v, known := verbs[verb]
	if !known {
		return fmt.Errorf("what is %q?", verb)
	}
	if len(args) < v.least {
		return fmt.Errorf("want %s %s", verb, v.usage)
	}
	repo, number, _ := h.chosen()
	if v.of != ofNothing && repo == nil {
		return errors.New("there is no repository; see -import")
	}
	if v.of == ofPull && number == 0 {
		return errors.New("there is no pull request")
	}
	if v.of != ofNothing {
		h.turn.Lock()
		defer h.turn.Unlock()
		// A later wait considers the changes after this.
		h.mu.Lock()
		h.done = nil
		h.mu.Unlock()
	}
	return v.do(ctx, h, args, tail)
}

// The object of a verb.
const (
	ofNothing = iota
	ofRepo
	ofPull
)

type verb struct {
	usage string
	least int // words
	of    int
	do    func(ctx context.Context, h *hub, args []string, tail func(int) string) error
}

// onPull makes a verb of an action on the pull request.
func onPull(usage string, least int, do func(h *hub, r *githubtest.Repo, n int, args []string, tail func(int) string) error) verb {
	return verb{usage, least, ofPull, func(_ context.Context, h *hub, args []string, tail func(int) string) error {
		r, n, _ := h.chosen()
		return do(h, r, n, args, tail)
	}}
}

// onRepo makes a verb of an action on the repository.
func onRepo(usage string, least int, do func(h *hub, r *githubtest.Repo, args []string, tail func(int) string) error) verb {
	return verb{usage, least, ofRepo, func(_ context.Context, h *hub, args []string, tail func(int) string) error {
		r, _, _ := h.chosen()
		return do(h, r, args, tail)
	}}
}

var verbs = map[string]verb{
	"ping": {"SECONDS", 1, ofNothing, func(ctx context.Context, h *hub, args []string, _ func(int) string) error {
		return within(ctx, args[0], func(ctx context.Context) error {
			if a := h.Ping(ctx); !a.OK() {
				return fmt.Errorf("the App does not answer: status %d, %v %s", a.Status, a.Err, a.Answer)
			}
			return nil
		})
	}},
	"wait": {"SECONDS REGEXP", 2, ofNothing, func(ctx context.Context, h *hub, args []string, tail func(int) string) error {
		pattern, err := regexp.Compile(tail(1))
		if err != nil {
			return err
		}
		return within(ctx, args[0], func(context.Context) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, what := range h.done {
				if pattern.MatchString(what) {
					return nil
				}
			}
			return errors.New("the App has not done it")
		})
	}},
	"sleep": {"SECONDS", 1, ofNothing, func(ctx context.Context, _ *hub, args []string, _ func(int) string) error {
		d, err := seconds(args[0])
		if err != nil {
			return err
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}},
	"repo": {"NAME", 1, ofNothing, func(_ context.Context, h *hub, args []string, _ func(int) string) error {
		r, err := h.Repo(args[0])
		if err == nil {
			h.choose(r)
		}
		return err
	}},
	"pull": {"N", 1, ofNothing, func(_ context.Context, h *hub, args []string, _ func(int) string) error {
		n, err := strconv.Atoi(args[0])
		repo, _, _ := h.chosen()
		if err != nil || repo == nil || repo.Pull(n).Number == 0 {
			return errors.New("there is no such pull request")
		}
		h.mu.Lock()
		h.number = n
		h.mu.Unlock()
		return nil
	}},
	"hold": {"", 0, ofNothing, func(_ context.Context, h *hub, _ []string, _ func(int) string) error {
		h.Hold()
		return nil
	}},
	"release": {"", 0, ofNothing, func(ctx context.Context, h *hub, _ []string, _ func(int) string) error {
		h.Release()
		for _, d := range h.Undelivered() {
			if _, err := h.Deliver(ctx, d.ID); err != nil {
				return err
			}
		}
		return nil
	}},
	"redeliver": {"", 0, ofNothing, func(ctx context.Context, h *hub, _ []string, _ func(int) string) error {
		for _, d := range slices.Backward(h.Deliveries()) {
			if d.Event == "ping" {
				continue
			}
			if a, err := h.Deliver(ctx, d.ID); err != nil || !a.OK() {
				return fmt.Errorf("%s %s: status %d, %w", d.Event, d.Action, a.Status, errors.Join(err, a.Err))
			}
		}
		return nil
	}},
	"show": {"", 0, ofNothing, func(_ context.Context, h *hub, _ []string, _ func(int) string) error {
		repo, n, _ := h.chosen()
		if repo == nil || n == 0 {
			return errors.New("there is no pull request")
		}
		h.say("%s", clean(repo.Pull(n).String()))
		return nil
	}},

	"push": onRepo("NAME BRANCH PATH TEXT", 4, func(_ *hub, r *githubtest.Repo, args []string, tail func(int) string) error {
		_, err := r.Push(args[0], args[1], "Change "+args[2], map[string]string{args[2]: tail(3) + "\n"})
		return err
	}),
	"force-push": onRepo("NAME BRANCH PATH TEXT", 4,
		func(_ *hub, r *githubtest.Repo, args []string, tail func(int) string) error {
			_, err := r.ForcePush(args[0], args[1], "Change "+args[2], map[string]string{args[2]: tail(3) + "\n"})
			return err
		}),
	"delete": onRepo("NAME BRANCH", 2, func(_ *hub, r *githubtest.Repo, args []string, _ func(int) string) error {
		return r.DeleteBranch(args[0], args[1])
	}),
	"open": onRepo("NAME HEAD BASE TITLE", 4, func(_ *hub, r *githubtest.Repo, args []string, tail func(int) string) error {
		_, err := r.Open(args[0], args[1], args[2], tail(3), "")
		return err
	}),

	"comment": onPull("NAME TEXT", 2, func(_ *hub, r *githubtest.Repo, n int, args []string, tail func(int) string) error {
		_, err := r.Comment(args[0], n, tail(1))
		return err
	}),
	"line": onPull("NAME PATH LINE TEXT", 4,
		func(h *hub, r *githubtest.Repo, n int, args []string, tail func(int) string) error {
			line, text, err := lineOf(r, n, args[1], tail(2))
			if err != nil {
				return err
			}
			id, err := r.CommentLine(args[0], n, args[1], line, text)
			if err == nil {
				h.mu.Lock()
				h.thread = id
				h.mu.Unlock()
			}
			return err
		}),
	"reply": onPull("NAME TEXT", 2, func(h *hub, r *githubtest.Repo, n int, args []string, tail func(int) string) error {
		_, _, thread := h.chosen()
		_, err := r.Reply(args[0], n, thread, tail(1))
		return err
	}),
	"review": onPull("NAME STATE [TEXT]", 2,
		func(_ *hub, r *githubtest.Repo, n int, args []string, tail func(int) string) error {
			_, err := r.Review(args[0], n, args[1], tail(2))
			return err
		}),
	"request": onPull("NAME REVIEWER", 2, func(_ *hub, r *githubtest.Repo, n int, args []string, _ func(int) string) error {
		return r.RequestReview(args[0], n, args[1])
	}),
	"ready": onPull("NAME", 1, func(_ *hub, r *githubtest.Repo, n int, args []string, _ func(int) string) error {
		return r.Ready(args[0], n)
	}),
	"merge": onPull("NAME [METHOD]", 1, func(_ *hub, r *githubtest.Repo, n int, args []string, tail func(int) string) error {
		_, err := r.Merge(args[0], n, tail(1))
		return err
	}),
	"close": onPull("NAME", 1, func(_ *hub, r *githubtest.Repo, n int, args []string, _ func(int) string) error {
		return r.Close(args[0], n)
	}),
	"reopen": onPull("NAME", 1, func(_ *hub, r *githubtest.Repo, n int, args []string, _ func(int) string) error {
		return r.Reopen(args[0], n)
	}),
	"check": onPull("NAME CONCLUSION [TITLE]", 2,
		func(_ *hub, r *githubtest.Repo, n int, args []string, tail func(int) string) error {
			conclusion := args[1]
			if conclusion == "running" {
				conclusion = ""
			}
			_, err := r.Check(r.Pull(n).Head,
				githubtest.Check{Name: args[0], Conclusion: conclusion, Title: tail(2), Summary: tail(2)})
			return err
		}),
	"workflow": onPull("NAME CONCLUSION", 2,
		func(_ *hub, r *githubtest.Repo, n int, args []string, _ func(int) string) error {
			_, err := r.Workflow(r.Pull(n).Head, args[0], args[1])
			return err
		}),
}

// lineOf returns the line of a number, or of words between slashes.
func lineOf(r *githubtest.Repo, n int, path, rest string) (line int, text string, err error) {
	if words, is := strings.CutPrefix(rest, "/"); is {
		words, text, is = strings.Cut(words, "/")
		if !is {
			return 0, "", errors.New("the words that are in the line end with a slash")
		}
		content, err := r.File(r.Pull(n).HeadSHA, path)
		if err != nil {
			return 0, "", err
		}
		at := 0
		for l := range strings.Lines(content) {
			if at++; strings.Contains(l, words) {
				return at, strings.TrimSpace(text), nil
			}
		}
		return 0, "", fmt.Errorf("%q is in no line of %s", words, path)
	}
	number, text, _ := strings.Cut(rest, " ")
	line, err = strconv.Atoi(number)
	return line, strings.TrimSpace(text), err
}

// within calls try until it succeeds, for at most limit seconds.
func within(ctx context.Context, limit string, try func(context.Context) error) error {
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
