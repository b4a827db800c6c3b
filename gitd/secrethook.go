package gitd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitfile"
)

// hooksFolder below Root holds the hook. No repository can have its name.
const hooksFolder = ".ramus-hooks"

// hookScript is a pre-receive hook. It asks over file descriptor 3 and reads the answer from 4. Any failure refuses
// the push.
const hookScript = `#!/bin/sh
# Asks the Git server whether what was pushed may stay.
printf '%s\n' "${GIT_QUARANTINE_PATH:-}" >&3 || exit 1
IFS= read -r answer <&4 || exit 1
[ "$answer" = ok ] && exit 0
printf '%s\n' "$answer" >&2
exit 1
`

// secretHook is the folder of the hook. The zero value has not been made yet.
type secretHook struct {
	mu    sync.Mutex // guards tried
	tried bool       // the hook was run, and answered
}

// prepare makes sure that the hook exists and runs, and returns its folder. Git treats a hook that it cannot
// run as if there were none.
func (h *secretHook) prepare(ctx context.Context, root string) (dir string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dir = filepath.Join(root, hooksFolder)
	file := filepath.Join(dir, "pre-receive")
	text, err := gitfile.ReadSmall(file)
	info, err2 := os.Stat(file)
	if err != nil || err2 != nil || string(text) != hookScript || info.Mode().Perm() != 0o700 {
		h.tried = false
		if err := writeHook(dir, file); err != nil {
			return "", fmt.Errorf("cannot make the hook that looks for secrets: %w", err)
		}
	}
	if h.tried {
		return dir, nil
	}
	if err := tryHook(ctx, file); err != nil {
		return "", fmt.Errorf("cannot run the hook that looks for secrets: %w", err)
	}
	h.tried = true
	return dir, nil
}

func writeHook(dir, file string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hookScript)
	if err := errors.Join(err, f.Chmod(0o700), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// tryHook runs the hook as git would, with an answer that is written beforehand.
func tryHook(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		p, err := newHookPipes()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, file)
		cmd.Env = []string{"GIT_QUARANTINE_PATH=here"}
		cmd.ExtraFiles = p.hookFiles()
		_, err = p.answer.WriteString("ok\n")
		if err == nil {
			err = cmd.Run()
		}
		p.closeHookFiles()
		asked, _ := bufio.NewReader(p.ask).ReadString('\n')
		p.close()
		switch {
		case errors.Is(err, syscall.ETXTBSY) && ctx.Err() == nil:
			// A child that is being started still has the file open for writing.
			time.Sleep(10 * time.Millisecond)
			continue
		case err != nil:
			return err
		case asked != "here\n":
			return fmt.Errorf("it asked %q", asked)
		}
		return nil
	}
}

// hookPipes are the two pipes between the hook and this process.
type hookPipes struct {
	ask, hookAnswer *os.File // read ends
	hookAsk, answer *os.File // write ends
}

func newHookPipes() (*hookPipes, error) {
	var t hookPipes
	var err error
	if t.ask, t.hookAsk, err = os.Pipe(); err != nil {
		return nil, err
	}
	if t.hookAnswer, t.answer, err = os.Pipe(); err != nil {
		t.ask.Close()
		t.hookAsk.Close()
		return nil, err
	}
	return &t, nil
}

// hookFiles returns the file descriptors 3 and 4 of the hook.
func (t *hookPipes) hookFiles() []*os.File { return []*os.File{t.hookAsk, t.hookAnswer} }

func (t *hookPipes) closeHookFiles() {
	t.hookAsk.Close()
	t.hookAnswer.Close()
}

func (t *hookPipes) close() {
	t.ask.Close()
	t.answer.Close()
}
