package pushed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
)

// maxNotice bounds the file of a notice in bytes. The commands of a push have at most half of it.
const maxNotice = 32 << 20

// notice is a push that may start work. Its file is written before the push changes refs, and removed once the work is
// claimed. A start of the server takes up those that are left.
type notice struct {
	Key     string           `json:"key,omitempty"` // of the run that the push asks for
	Repo    string           `json:"repo"`
	Grant   gitd.Grant       `json:"grant"` // of the person who pushed
	Options []string         `json:"options,omitempty"`
	Refs    []gitd.PushedRef `json:"refs"`
	Base    string           `json:"base"`         // ref of the repository's base
	At      gitd.Hash        `json:"at,omitempty"` // its tip before the push; empty if it had none
}

// newKey returns a key that looks like the ids of other runs.
func newKey() string { return time.Now().UTC().Format("20060102-150405") + "-" + record.NewToken()[:8] }

// ask returns the work that the options of the push ask for, or the names of its refs.
func (n *notice) ask() (Ask, error) {
	ask, err := Parse(n.Options)
	if err != nil {
		return ask, err
	}
	for _, ref := range n.Refs {
		name, named := strings.CutPrefix(ref.Name, gitd.AskRefs)
		review := strings.HasPrefix(ref.Name, gitd.ReviewRefs)
		switch {
		case (named || review) && len(n.Refs) > 1:
			return ask, fmt.Errorf("%w push: %s asks for work, and is pushed alone", record.ErrInvalid, ref.Name)
		case named:
			return ask.byName(name)
		case review && ask.None():
			ask.Task = testTask
		}
	}
	return ask, nil
}

// base returns the commit whose workflows count, which is the pushed one if the push moved the base.
func (n *notice) base() gitd.Hash {
	for _, ref := range n.Refs {
		if ref.Name == n.Base {
			return ref.Commit
		}
	}
	return n.At
}

// keeping says how a notice is kept.
type keeping int

const (
	keepNothing keeping = iota
	keepFast            // it survives a killed server
	keepSafe            // it survives a loss of power, too
)

// keep writes the file of a notice. Returns "" if none is kept.
func (s *Starter) keep(n *notice, how keeping) (file string, err error) {
	if how == keepNothing {
		return "", nil
	}
	safe := how == keepSafe
	text, err := json.Marshal(n)
	if err == nil && len(text) > maxNotice {
		err = fmt.Errorf("it has %d bytes: %w", len(text), gitd.ErrTooLarge)
	}
	file = filepath.Join(s.Dir, record.NewToken()+".json")
	if err == nil {
		err = durable.Replace(file, text, safe)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(s.Dir, 0o700); err == nil {
			if err = durable.Folder(filepath.Dir(s.Dir)); err == nil {
				err = durable.Replace(file, text, safe)
			}
		}
	}
	if err != nil {
		return "", fmt.Errorf("cannot keep a notice of the push: %w", err)
	}
	return file, nil
}

// drop removes the file of a notice. One that is left does no harm, because its workflows do not run again.
func (s *Starter) drop(file string) {
	if file == "" {
		return
	}
	if err := os.Remove(file); err != nil {
		s.Log.Warn("cannot remove the notice of a push", "file", file, "err", err)
	}
}

// TakeUp starts the work of pushes that an earlier process had accepted, and did not come to start. It must be called
// before the server takes pushes.
func (s *Starter) TakeUp(ctx context.Context) {
	files, err := os.ReadDir(s.Dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.Log.Error("cannot read the notices of pushes", "err", err)
		}
		return
	}
	for _, f := range files {
		file := filepath.Join(s.Dir, f.Name())
		done := true // of another name, it is a part of a notice of a push that was not done
		if strings.HasSuffix(f.Name(), ".json") {
			if done, err = s.takeUp(ctx, file); err != nil {
				s.Log.Error("cannot take up a push", "file", file, "err", err)
			}
		}
		if done {
			s.drop(file)
		}
	}
}

// takeUp starts the work of one notice. Returns false if it should be tried again.
func (s *Starter) takeUp(ctx context.Context, file string) (done bool, err error) {
	if info, err := os.Stat(file); err != nil || info.Size() > maxNotice {
		return err == nil, errors.Join(err, gitd.ErrTooLarge)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	var n notice
	if err := json.Unmarshal(text, &n); err != nil {
		return true, err // its push was not done, because a notice is whole before that
	}
	repo, err := s.Find.Git.Repo(n.Repo)
	if err != nil {
		return errors.Is(err, gitd.ErrNotFound), err
	}
	var moved []gitd.PushedRef
	for _, ref := range n.Refs {
		ok, err := isMoved(ctx, repo, ref)
		if err != nil {
			return false, err
		}
		if ok {
			moved = append(moved, ref)
		}
	}
	s.Log.Info("taking up a push that the server did not end", "repo", n.Repo, "refs", len(moved))
	if n.Refs = moved; len(moved) == 0 {
		return true, nil
	}
	if bound := s.Find.Git.Bound; bound != nil && n.Grant.Person.ID != "" { // rights that the person has no more are gone
		if n.Grant, err = bound(n.Grant); err != nil {
			return errors.Is(err, gitd.ErrDenied), err
		}
	}
	if _, done = s.start(ctx, &n, &screen{}); !done {
		return false, nil
	}
	for _, ref := range moved {
		err = errors.Join(err, repo.ForgetAsk(ctx, ref))
	}
	return err == nil, err
}

// isMoved reports whether a push moved a ref, by the ref as it is now. Another push may have moved it further.
func isMoved(ctx context.Context, repo *gitd.Repo, ref gitd.PushedRef) (bool, error) {
	tip, err := tipOf(ctx, repo, ref.Name)
	if err != nil || tip == "" || tip == ref.Commit {
		return tip != "" && err == nil, err
	}
	if tip == ref.Old {
		return false, nil
	}
	has := func(commit, ancestor gitd.Hash) (bool, error) {
		ok, err := repo.Descends(ctx, commit, ancestor)
		if errors.Is(err, gitd.ErrNotFound) {
			return false, nil
		}
		return ok, err
	}
	later, err := has(tip, ref.Commit)
	if err != nil || !later || ref.Old == "" {
		return later, err
	}
	back, err := has(ref.Old, ref.Commit)
	return !back, err
}
