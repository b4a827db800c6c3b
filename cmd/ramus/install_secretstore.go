package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/internal/redact"
)

// openSecretStore opens the store of the repositories' secrets. set gets every value.
func openSecretStore(c Config, key []byte, read *secrets, set *redact.Secrets) (*secret.Store, error) {
	token, err := read.value("vault.token", c.Vault.TokenEnv, c.Vault.TokenFile)
	if err != nil {
		return nil, err
	}
	store := &secret.Store{
		File:   filepath.Join(c.Data, "secrets.json"),
		Key:    key,
		Redact: set,
		References: secret.Resolver{
			Environ:        read.environ,
			VaultURL:       c.Vault.URL,
			VaultNamespace: c.Vault.Namespace,
			VaultToken: func() (string, error) {
				if token == "" {
					return "", errors.New("the configuration has no `vault.token_env` and no `vault.token_file`")
				}
				return token, nil
			},
		},
	}
	return store, store.Open()
}

// keyOf returns the key in a file, and makes a missing one.
func keyOf(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	switch {
	case err == nil && len(key) == secret.KeyBytes:
		return key, nil
	case err == nil:
		return nil, fmt.Errorf("the key of secrets in %s has %d bytes, want %d; restore it from a backup", path, len(key), secret.KeyBytes)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cannot read the key of secrets: %w", err)
	}
	key = make([]byte, secret.KeyBytes)
	_, _ = rand.Read(key) // Read never fails
	if err := writeKey(path, key); err != nil {
		return nil, fmt.Errorf("cannot write the key of secrets: %w", err)
	}
	return key, nil
}
