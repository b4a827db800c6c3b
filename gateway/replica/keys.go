package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
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

// FetchKeys fetches the keys of the installation from the home, unless dir has keys. It waits for the home until ctx ends.
func (f *Front) FetchKeys(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, firstKey)); f.isHome() || err == nil {
		return nil
	}
	f.Log.Info("waiting for the keys of the installation", "home", f.Home)
	keys, err := f.keys(ctx)
	if err != nil {
		return fmt.Errorf("cannot fetch the keys of the installation: %w", err)
	}
	first, ok := keys[firstKey]
	if !ok {
		return fmt.Errorf("cannot fetch the keys of the installation: the home %s has no %s", f.Home, firstKey)
	}
	delete(keys, firstKey)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of keys: %w", err)
	}
	for name, key := range keys {
		if err == nil {
			err = writeKey(dir, name, key)
		}
	}
	if err == nil {
		err = writeKey(dir, firstKey, first)
	}
	if err == nil {
		err = durable.Folder(dir)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the keys of the installation: %w", err)
	}
	return nil
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
