package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/gateway/links"
)

// linkKeyBytes is the length of the key that signs links.
const linkKeyBytes = 32

// newLinks returns the signer of links to evidence. Its key is in the folder of keys, and is made if it is missing.
// Deleting it invalidates all links.
func newLinks(keys string, c Config, secret *secrets) (*links.Signer, error) {
	key, err := linkKey(filepath.Join(keys, "links.key"))
	if err != nil {
		return nil, err
	}
	secret.known("links.key", string(key))
	return &links.Signer{Key: key, URL: c.URL, TTL: time.Duration(c.Artifacts.LinkTTL)}, nil
}

func linkKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	switch {
	case err == nil && len(key) == linkKeyBytes:
		return key, nil
	case err == nil:
		return nil, fmt.Errorf("the key of links in %s has %d bytes, want %d; remove it and start again, which makes a new key and invalidates all links", path, len(key), linkKeyBytes)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cannot read the key of links: %w", err)
	}
	key = make([]byte, linkKeyBytes)
	_, _ = rand.Read(key) // Read never fails
	if err := writeKey(path, key); err != nil {
		return nil, fmt.Errorf("cannot write the key of links: %w", err)
	}
	return key, nil
}

// writeKey writes a file atomically, readable only by its owner.
func writeKey(path string, key []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // the mode is 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // no longer exists after the rename
	_, err = f.Write(key)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
