package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/internal/durable"
)

// All replicas have the same keys, because each of them verifies tokens, signs links and opens sealed credentials.

const (
	// firstKey is the name of the key that is fetched last, so that a folder which has it has all.
	firstKey = "grants.pem"
	// keyMax bounds a key, in bytes.
	keyMax = 1 << 20
)

// refreshWait bounds the wait of a replica that has keys for the home, which may be away.
const refreshWait = 5 * time.Second

// FetchKeys fetches the keys of the installation from the home that dir does not have. The first time it waits for the home
// until ctx ends. Later it does without an answer, and names the keys that are not those of the home.
func (f *Front) FetchKeys(ctx context.Context, dir string) error {
	if f.isHome() {
		return nil
	}
	_, err := os.Stat(filepath.Join(dir, firstKey))
	first := err != nil
	if first {
		f.Log.Info("waiting for the keys of the installation", "home", f.Home)
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, refreshWait)
		defer cancel()
	}
	keys, err := f.keys(ctx)
	switch {
	case err != nil && first:
		return fmt.Errorf("cannot fetch the keys of the installation: %w", err)
	case err != nil:
		f.Log.Warn("cannot ask the home for keys that are new; those of this replica are used", "home", f.Home, "err", err)
		return nil
	case first && keys[firstKey] == nil:
		return fmt.Errorf("cannot fetch the keys of the installation: the home %s has no %s", f.Home, firstKey)
	}
	if err := f.keepKeys(dir, keys); err != nil {
		return fmt.Errorf("cannot keep the keys of the installation: %w", err)
	}
	return nil
}

// keepKeys writes the keys that dir does not have, the first key last.
func (f *Front) keepKeys(dir string, keys map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(keys)), func(name string) bool { return name == firstKey })
	for _, name := range append(names, firstKey) {
		has, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case err == nil && !bytes.Equal(has, keys[name]) && keys[name] != nil:
			f.Log.Warn("a key is not that of the home; stop this replica, move the key away and start again", "key", name)
		case errors.Is(err, fs.ErrNotExist):
			err = writeKey(dir, name, keys[name])
		}
		if err != nil {
			return err
		}
	}
	return durable.Folder(dir)
}

func writeKey(dir, name string, key []byte) error {
	if !fs.ValidPath(name) || filepath.Base(name) != name {
		return fmt.Errorf("%.100q is no name of a key", name)
	}
	path := filepath.Join(dir, name)
	if err := durable.Replace(path, key, true); err != nil {
		return err
	}
	return os.Chmod(path, 0o600)
}

// keys asks the home until it answers.
func (f *Front) keys(ctx context.Context) (keys map[string][]byte, err error) {
	for {
		home, err := f.homeOf(ctx)
		if err != nil {
			return nil, err
		}
		if err = f.ask(ctx, home, http.MethodGet, "/replica/keys", nil, &keys); err == nil {
			return keys, nil
		}
		f.Log.Debug("the home has no keys yet", "err", err)
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (f *Front) serveKeys(w http.ResponseWriter, _ *http.Request) {
	keys, err := readKeys(f.Keys)
	if err != nil || !f.isHome() {
		f.Log.Error("cannot give the keys to another replica", "err", err)
		http.Error(w, "no keys here", http.StatusNotFound)
		return
	}
	answer(w, keys)
}

func readKeys(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	keys := map[string][]byte{}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err == nil && info.Size() > keyMax {
			err = fmt.Errorf("%s has more than %d bytes", e.Name(), keyMax)
		}
		var b []byte
		if err == nil {
			b, err = os.ReadFile(filepath.Join(dir, e.Name()))
		}
		if err != nil {
			return nil, err
		}
		keys[e.Name()] = b
	}
	return keys, nil
}
