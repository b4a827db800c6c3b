package main

import "github.com/ramus-dev/ramus/gitd"

// newSigner returns the signer of commits. Returns nil if no key is configured.
func newSigner(c BotConfig, secret *secrets) (*gitd.CommitSigner, error) {
	key, err := secret.value("bot.signing_key", c.SigningKeyEnv, c.SigningKeyFile)
	if err != nil || key == "" {
		return nil, err
	}
	return gitd.NewCommitSigner([]byte(key + "\n"))
}
