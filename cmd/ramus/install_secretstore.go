package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gateway/audit"
	"github.com/ramus-dev/ramus/internal/redact"
)

// openSecretStore opens the store of credentials. keys is the folder of keys. set gets every value.
func openSecretStore(c Config, keys string, read *secrets, set *redact.Secrets) (*secret.Store, error) {
	token, err := read.value("vault.token", c.Vault.TokenEnv, c.Vault.TokenFile)
	if err != nil {
		return nil, err
	}
	box := &sealed.Box{Dir: filepath.Join(c.Data, "sealed"), KeyFile: filepath.Join(keys, "seal.key")}
	present, err := sealKey(read, "seal_key", c.SealKeyEnv, c.SealKeyFile)
	if err != nil {
		return nil, err
	}
	earlier, err := sealKey(read, "seal_key_earlier", c.SealKeyEarlierEnv, c.SealKeyEarlierFile)
	if err != nil {
		return nil, err
	}
	box.Key = present
	if earlier != nil {
		box.Earlier = append(box.Earlier, *earlier)
	}
	store := &secret.Store{
		Box:         box,
		EarlierFile: filepath.Join(c.Data, "secrets.json"),
		EarlierKey:  filepath.Join(keys, "secrets.key"),
		Redact:      set,
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

// sealKey returns a key of the configuration, or nil if it has none.
func sealKey(read *secrets, path, env, file string) (*sealed.Key, error) {
	text, err := read.value(path, env, file)
	if err != nil || text == "" {
		return nil, err
	}
	k, err := sealed.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("cannot use %s: %w", path, err)
	}
	return &k, nil
}

// recordedUses adds the uses of credentials to the log of actions.
type recordedUses struct{ log *audit.Log }

// Used implements [secret.Audit].
func (r recordedUses) Used(ctx context.Context, x secret.Secret, u secret.Use) error {
	return r.log.Append(ctx, audit.Entry{Who: cmp.Or(u.By, u.Run, "ramus"), Action: "credential.use",
		Object: fmt.Sprintf("%s %s to %s in %s", x.Owner, x.Name, u.To, u.Run), Result: audit.OK})
}
