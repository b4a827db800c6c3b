package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/gitd"
)

// newSigner returns the signer of commits. Returns nil if no key is configured.
func newSigner(c BotConfig, secret *secrets) (*gitd.CommitSigner, error) {
	key, err := secret.value("bot.signing_key", c.SigningKeyEnv, c.SigningKeyFile)
	if err != nil || key == "" {
		return nil, err
	}
	return gitd.NewCommitSigner([]byte(key + "\n"))
}

// ownSigner returns the signer with the key in a file. It makes a missing key.
func ownSigner(path, comment string) (*gitd.CommitSigner, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if text, err = gitd.NewSignerKey(comment); err == nil {
			err = writeKey(path, text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read or write the key of %s: %w", comment, err)
	}
	return gitd.NewCommitSigner(text)
}

// sealSigner returns the signer of seals, which signs nothing else, and all signers whose seals count. Their public
// keys are in a file of the data folder, which keeps those of earlier signers.
func sealSigner(data, keys string) (*gitd.CommitSigner, gitd.Signers, error) {
	s, err := ownSigner(filepath.Join(keys, "seals.pem"), "seals of ramus")
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(data, sealSigners)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("cannot read the signers of seals: %w", err)
	}
	line := s.AllowedSigner(gitd.Person{Email: seal.Principal})
	if !bytes.Contains(text, []byte(line)) {
		if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
			text = append(text, '\n')
		}
		text = append(text, line...)
		if err := writeKey(path, text); err != nil {
			return nil, nil, fmt.Errorf("cannot write the signers of seals: %w", err)
		}
	}
	all, err := gitd.ParseSigners(text, seal.Principal)
	return s, all, err
}

// sealSigners is the file in the data folder with the public keys of seals, as gpg.ssh.allowedSignersFile has it.
const sealSigners = "seal_signers"
